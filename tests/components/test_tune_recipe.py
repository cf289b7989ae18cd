"""Test the search of recipes: order of trials, cheap rejection, stop conditions, finalists, and the written outputs."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components.train_modules import DIGITS, write
from tests.reports import TRAINED, Row, join_rows
from tfopt import formatting
from tfopt.artifacts import Examples, Model, PythonModule
from tfopt.component import find
from tfopt.components.select_model.decide import choose
from tfopt.components.train.component import train
from tfopt.components.tune_recipe import search as search_module
from tfopt.components.tune_recipe.component import tune_recipe
from tfopt.components.tune_recipe.parameters import SearchSettings
from tfopt.components.tune_recipe.recipes import FORMATS, Recipe, all_recipes, first_recipes
from tfopt.components.tune_recipe.search import Search, find_excessive_difference, find_missed_size_goal
from tfopt.components.tune_recipe.search_cost import check_cost
from tfopt.components.tune_recipe.trial_models import (
    TRAINING,
    ModelBuilder,
    OutputDifference,
    TrialMeasurement,
    _key,
    training_arguments,
)
from tfopt.components.tune_recipe.tune import _commands, select_finalists
from tfopt.errors import ComponentError
from tfopt.measurement.goals import read_goals, resolve_goals

QUICK = {"seconds": 0.4, "formats": ["tflite"], "batch_sizes": ["1"]}
LOSSLESS = ["quality max_degradation 1%"]


def test_recipes_are_distinct_and_their_steps_fit_the_components():
    recipes = all_recipes(FORMATS)
    assert len(recipes) == len(set(map(str, recipes))) == 53
    for recipe in recipes:
        assert recipe.steps
        for step in recipe.steps:
            component = find(step.component)
            assert list(component.outputs) == [step.output]
            assert component.check(step.parameters).items() >= step.parameters.items()
            assert {"model", "examples"} <= component.inputs.keys()
    assert {step.component for recipe in recipes for step in recipe.steps} == {
        "fold_batch_norm", "optimize_graph", "cast_precision", "compile_xla",
        "quantize_graph", "export_tflite", "export_onnx", "export_openvino",
    }  # fmt: skip


@pytest.mark.parametrize("formats", [FORMATS, ("onnx",), ("saved_model", "openvino")])
def test_only_requested_formats_are_tried_and_each_of_them_first(formats):
    recipes, first = all_recipes(formats), first_recipes(formats)
    assert {recipe.choices["format"] for recipe in recipes} == set(formats)
    assert {recipe.choices["format"] for recipe in first} == set(formats)
    assert set(first) <= set(recipes)


def test_with_fine_tuning_recipes_combine_channels_bits_and_a_teacher():
    recipes, settings = all_recipes(FORMATS, fine_tuning=True), SearchSettings(fine_tuning_epochs=3)
    assert len(recipes) == len(set(map(str, recipes)))
    assert set(all_recipes(FORMATS)) < set(recipes)  # recipes of earlier searches remain valid
    assert set(first_recipes(FORMATS, fine_tuning=True)) < set(recipes)
    assert not any(recipe.is_trained for recipe in all_recipes(FORMATS))
    combined = Recipe({"channels": "75%", "weights": "6 bits", "teacher": "the model", "trained_format": "onnx"})
    assert str(combined) == "prune channel 0.25, quantize 6.0, export_onnx int8"
    assert combined in recipes and combined.format == "onnx"
    for step in itertools.chain.from_iterable(recipe.steps for recipe in recipes):
        component = find(step.component)
        arguments = training_arguments(step, settings, "m.py", "model/") if step.component in TRAINING else {}
        assert arguments.keys() <= component.inputs.keys() | component.check({}).keys()
        assert component.check(step.parameters).items() >= step.parameters.items()
        assert ("teacher" in arguments) == (step.component == "quantize" and "alpha" not in step.parameters)
    commands = _commands(combined.steps, settings)
    assert [command.split()[1] for command in commands] == [
        "prune", "measure_sensitivities", "quantize", "export_onnx",
    ]  # fmt: skip
    assert "--sensitivities sensitivities/ --module module.py --label label --epochs 3 --teacher model/" in commands[2]


def test_a_search_with_fine_tuning_finds_the_best_combination(tmp_path):
    def planned(choices):
        speed = {"all": 1.0, "75%": 1.3, "50%": 1.9}[choices.get("channels", "all")]
        return (4.0 * speed, 0.0) if "weights" in choices else (1.5 * speed, 0.05 if speed > 1.5 else 0.0)

    settings = SearchSettings(trials=30, fine_tuning_epochs=1)
    trials = PlannedTrials(tmp_path, LOSSLESS, planned)
    trials.compare_outputs = lambda child, records, seed: OutputDifference(30, records, 0.1)
    search = Search(trials, trials, settings)
    search.run()
    assert len({trial.recipe for trial in search.trials}) == 30
    best = min(search.trials, key=lambda trial: (not trial.wins, trial.score)).recipe.choices
    assert best["channels"] == "50%" and "weights" in best
    # Half of the classes changed: without training that is a loss; a trained model may be as accurate, and is measured.
    given_up = [trial for trial in search.trials if trial.state == "given up"]
    assert given_up and not any(trial.recipe.is_trained for trial in given_up)


def test_fine_tuning_without_a_module_or_a_keras_model_is_refused_at_once(digits_model, digits_examples, tmp_path):
    folders = tmp_path / "t", tmp_path / "r"
    with pytest.raises(ComponentError, match="fine_tuning_epochs without a module"):
        tune_recipe(digits_model, digits_examples, *folders, fine_tuning_epochs=1)
    (tmp_path / "module.py").write_text("def build_model(): ...\n")
    served = digits_model / "Format-Serving"
    with pytest.raises(ComponentError, match="fine_tuning_epochs without a Keras model"):
        tune_recipe(served, digits_examples, *folders, module=tmp_path / "module.py", fine_tuning_epochs=1)


@pytest.mark.nightly
def test_channels_bits_and_a_teacher_are_combined_in_one_model(digits_examples, tmp_path):
    module = PythonModule(write(tmp_path / "module.py", DIGITS.replace("Conv2D(8", "Conv2D(32")))
    trained = train(digits_examples, module, tmp_path / "trained", epochs=2)["trained"]
    settings = SearchSettings(fine_tuning_epochs=1)
    arguments = trained, Examples(digits_examples), None, tmp_path, settings, module
    builder = ModelBuilder(*arguments, deadline=time.monotonic() + 600)
    choices = {"channels": "75%", "weights": "6 bits", "teacher": "the model", "trained_format": "tflite"}
    model = builder.build(Recipe(choices))
    assert model.format == "tflite"
    quantized = Model(builder.folder / _key(Recipe(choices).steps[:2])).card.facts
    assert quantized["report"]["mix"]["weight_bits"] <= 6 and quantized["report"]["mix"]["int4"]
    assert quantized["teacher"]["digest"] == trained.digest


class PlannedTrials:
    """A model builder and measurer for which speedup and lost accuracy of every recipe are set beforehand."""

    def __init__(self, folder: Path, goals: list[str], figures, *, broken=()) -> None:
        parent = folder / "parent"
        parent.mkdir()
        (parent / "saved_model.pb").write_text("graph")
        self.folder, self.model, self.figures, self.broken = folder, Model(parent), figures, broken
        self.goals = read_goals(goals)

    def build(self, recipe: Recipe) -> Model:
        if recipe.format in self.broken:
            raise ComponentError(f"{recipe} has no such op\nand more", "ops", "others")
        folder = self.folder / str(recipe)
        folder.mkdir()
        (folder / "saved_model.pb").write_text(str(recipe))
        (folder / "choices.json").write_text(json.dumps(recipe.choices))
        return Model(folder)

    def compare_outputs(self, child: Model, records: int, seed: int) -> OutputDifference:
        return OutputDifference(0, records, 0.0)

    def measure(self, children: list[Model], folder: Path) -> list[TrialMeasurement]:
        choices = json.loads((children[0].path / "choices.json").read_text())
        speed, lost = self.figures(choices)
        rows = [
            TRAINED,
            Row("child", "onnx", 0.981 - lost, (-lost, -lost - 0.001, 0.001 - lost), 0.412 / speed,
                (speed, speed * 0.99, speed * 1.01, "faster" if speed > 1.03 else "within noise")),
        ]  # fmt: skip
        measured = join_rows(rows, ["a", "b"])
        goals = resolve_goals(self.goals, "accuracy", measured[0].metrics)
        return [TrialMeasurement(measured[1], "accuracy", goals, "latency", 1000)]


def make_search(planned: PlannedTrials, formats, trials: int, minutes: float = 5.0, seed: int = 0) -> Search:
    return Search(planned, planned, SearchSettings(formats=tuple(formats), trials=trials, minutes=minutes, seed=seed))


def figures(choices) -> tuple[float, float]:
    """Return speedup and lost accuracy: OpenVINO int8 after optimize_graph is best; LiteRT int8 loses too much."""
    kind = choices["format"]
    if choices.get(kind) == "int8":
        graph = {"as it is": 1.0, "fold_batch_norm": 1.3, "optimize_graph": 1.6}[choices["graph"]]
        return {"tflite": (9.0, 0.05), "onnx": (3.0, 0.0), "openvino": (4.0 * graph, 0.0)}[kind]
    return 1.5, 0.0


def run_search(
    folder: Path, goals=LOSSLESS, formats=FORMATS, trials=20, seed=0, minutes=5.0, **planned
) -> tuple[Search, str]:
    folder.mkdir(exist_ok=True)
    search = make_search(PlannedTrials(folder, goals, figures, **planned), formats, trials, minutes, seed)
    return search, search.run()


def test_no_recipe_is_tried_twice_and_the_search_finds_the_best_within_its_trials(tmp_path):
    search, stopped = run_search(tmp_path, trials=25)
    assert stopped == "25 trials were made"
    assert len({trial.recipe for trial in search.trials}) == len(search.trials) == 25
    best = min(search.trials, key=lambda trial: (not trial.wins, trial.score))
    assert best.recipe.choices["openvino"] == "int8"
    assert best.recipe.choices["graph"] == "optimize_graph"
    fast = [trial for trial in search.trials if trial.recipe.choices.get("tflite") == "int8"]
    assert fast and not any(trial.wins for trial in fast)
    assert min(trial.score for trial in fast) > best.score


def test_the_same_seed_and_the_same_figures_give_the_same_trials(tmp_path):
    first, again, other = (
        [str(trial.recipe) for trial in run_search(tmp_path / name, trials=14, seed=seed)[0].trials]
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first == again != other


@pytest.mark.parametrize("target", ["latency min_improvement 75%", "latency threshold 0.1"])
def test_the_search_stops_as_soon_as_a_recipe_meets_the_target(tmp_path, target):
    search, stopped = run_search(tmp_path, goals=[*LOSSLESS, target])
    assert stopped == "a recipe meets the goals"
    assert search.trials[-1].wins
    assert not any(trial.wins for trial in search.trials[:-1])
    assert len(search.trials) == 2  # LiteRT in 8 bits loses too much; OpenVINO in 8 bits meets the target


@pytest.mark.parametrize(("rate", "ends"), [(20_000.0, False), (4_000.0, True), (50.0, True)])
def test_the_search_ends_when_a_further_trial_costs_more_than_it_saves(tmp_path, monkeypatch, rate, ends):
    """A trial of an hour costs 2; at 20,000 requests a second, fewer nodes save hundreds a month.

    At 4,000 the baseline needs two nodes, and the best model one; at 50 each of them needs one.
    """
    clock = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(search_module.time, "monotonic", lambda: next(clock))
    planned = PlannedTrials(tmp_path, LOSSLESS, figures)
    settings = SearchSettings(trials=12, minutes=1e9, price=2.0, requests_per_second=rate)
    search = Search(planned, planned, settings)
    stopped = search.run()
    assert stopped.startswith("a further trial costs") is ends
    assert len(search.trials) == (5 if ends else 12)
    assert not ends or "expected to save 0 a month at" in stopped


def test_a_price_without_a_rate_is_refused(tmp_path):
    for name in ("price", "requests_per_second"):
        with pytest.raises(ComponentError, match=f"{name}=2 alone"):
            check_cost(SearchSettings(**{name: 2.0}))
    with pytest.raises(ComponentError, match="objective=capacity, and benchmark without max_p99_ms"):
        check_cost(SearchSettings(objective="capacity"))


def test_the_search_ends_when_all_recipes_were_tried_or_time_is_up(tmp_path):
    search, stopped = run_search(tmp_path / "all", formats=("onnx",), trials=100)
    assert (stopped, len(search.trials)) == ("every recipe was tried", len(all_recipes(["onnx"])))
    search, stopped = run_search(tmp_path / "time", minutes=1e-9)
    assert (stopped, search.trials) == ("1e-09 minutes were over", [])


def test_the_earlier_winner_ends_the_search_while_it_wins_and_is_the_first_trial_otherwise(tmp_path):
    best, worse = (Recipe({"graph": "as it is", "format": "onnx", "onnx": kind}) for kind in ("int8", "float32"))
    best = Recipe(best.choices | {"onnx_scales": "per tensor"})
    for name, first, goals, reused, count in (
        ("wins", best, LOSSLESS, True, 1),
        ("is slow", worse, ["latency min_improvement 50%"], False, 4),
        ("is none", None, LOSSLESS, False, 4),
    ):
        (tmp_path / name).mkdir()
        planned = PlannedTrials(
            tmp_path / name, goals, lambda choices: (3.0 if choices.get("onnx") == "int8" else 1.1, 0.0)
        )
        search = make_search(planned, ("onnx", "tflite"), trials=4)
        assert search.reuse_or_run(first)[0] == reused
        assert first is None or search.trials[0].recipe == first
        assert len({trial.recipe for trial in search.trials}) == len(search.trials) <= count


@pytest.mark.parametrize("objective", ["latency", "throughput", "memory", "size"])
@pytest.mark.parametrize(
    ("row", "better"),
    [
        (Row("noise", speedup=(1.02, 1.01, 1.03, "within noise"), memory=500_000_000, size=TRAINED.size), False),
        (Row("better", speedup=(1.5, 1.4, 1.6, "faster"), memory=400_000_000), True),
    ],
    ids=["noise", "better"],
)
def test_a_recipe_wins_exactly_where_select_model_would_choose_it(objective, row, better):
    measured = join_rows([TRAINED, row], ["a", "b"])
    goals = resolve_goals(read_goals(LOSSLESS), "accuracy", measured[0].metrics)
    measurement = TrialMeasurement(measured[1], "accuracy", goals, objective, 1000)
    assert not measurement.failures
    assert measurement.is_better == better == (choose(measured, {"trained", row.name}, objective) is measured[1])


def test_the_last_round_has_the_best_that_win_or_the_best_one_if_none_does(tmp_path):
    search, _ = run_search(tmp_path / "some", trials=20)
    finalists = select_finalists(search.trials, 3)
    assert [trial.score for trial in finalists] == sorted(trial.score for trial in search.trials if trial.wins)[:3]
    (tmp_path / "none").mkdir()
    planned = PlannedTrials(tmp_path / "none", LOSSLESS, lambda choices: (1.02, 0.0))  # within noise
    none = make_search(planned, ("onnx",), trials=4)
    none.run()
    assert not any(trial.wins for trial in none.trials)
    assert len(select_finalists(none.trials, 3)) == 1
    broken, _ = run_search(tmp_path / "broken", trials=4, formats=("onnx",), broken=("onnx",))
    with pytest.raises(ComponentError, match=r"(?s)none of 4 recipes could be measured.*has no such op"):
        select_finalists(broken.trials, 3)


def test_two_recipes_that_give_one_file_are_one_finalist(tmp_path):
    search, _ = run_search(tmp_path, trials=4, formats=("onnx",))
    for trial in search.trials:
        (trial.model.path / "saved_model.pb").write_text("the same")
        (trial.model.path / "choices.json").unlink()
    finalists = select_finalists([replace(trial, model=Model(trial.model.path)) for trial in search.trials], 3)
    assert len(finalists) == 1
    assert finalists[0].score == min(trial.score for trial in search.trials)


def test_a_recipe_that_fails_is_a_trial_with_its_reason(tmp_path):
    search, _ = run_search(tmp_path, trials=30, broken=("onnx",))
    failed = [trial for trial in search.trials if trial.state == "not made"]
    assert {trial.recipe.choices["format"] for trial in failed} == {"onnx"}
    assert all(trial.reason.endswith("has no such op") for trial in failed)
    assert any(trial.wins for trial in search.trials)


def test_a_full_disk_ends_the_search(tmp_path):
    planned = PlannedTrials(tmp_path, LOSSLESS, figures)
    planned.build = lambda recipe: (_ for _ in ()).throw(
        ComponentError("No space left on device", "a model", "another op")
    )
    search = make_search(planned, FORMATS, trials=5)
    with pytest.raises(ComponentError, match="room for the outputs"):
        search.run()
    assert len(search.trials) == 1


def test_a_model_too_large_for_a_goal_is_given_up_before_it_is_measured(tmp_path):
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent" / "saved_model.pb").write_bytes(b"a" * 1000)
    (tmp_path / "child").mkdir()
    (tmp_path / "child" / "saved_model.pb").write_bytes(b"a" * 900)
    parent, child = Model(tmp_path / "parent"), Model(tmp_path / "child")
    assert find_missed_size_goal(child, parent, read_goals(["size min_improvement 5%"])) is None
    goals = read_goals(["accuracy threshold 0.9", "size min_improvement 20%"])
    message = find_missed_size_goal(child, parent, goals)
    assert message == "is 100 B better in size; the goal asks for 200 B (20%) better"


@pytest.mark.parametrize(
    ("changed", "decorrelation", "metric", "rejected"),
    [
        (3, 0.0, "accuracy", False),  # at least 1.6 % changed: the goal allows 1 %, twice that is not reached
        (8, 0.0, "accuracy", True),
        (8, 0.0, "mean_absolute_error", False),
        (8, 0.0, None, False),
        (0, 0.6, "mean_absolute_error", True),
    ],
)
def test_only_differences_that_no_goal_allows_reject_a_model(changed, decorrelation, metric, rejected):
    goals = read_goals(["accuracy max_degradation 0.01"])
    difference = OutputDifference(changed, 64, decorrelation)
    assert bool(find_excessive_difference(difference, goals, metric)) == rejected


@pytest.mark.parametrize("formats", [["tflite", "coreml"], []])
def test_unknown_formats_are_refused_at_once(digits_model, digits_examples, tmp_path, formats):
    with pytest.raises(ComponentError, match="formats"):
        tune_recipe(digits_model, digits_examples, tmp_path / "t", tmp_path / "r", formats=formats)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def examples_with_unreadable_test(digits_examples, tmp_path) -> Path:
    """Examples with a split ``test`` that cannot be read: it is reserved for the evaluation of the winner."""
    folder = tmp_path / "examples"
    folder.mkdir()
    for split in digits_examples.iterdir():
        (folder / split.name).symlink_to(split)
    (folder / "Split-test").mkdir()
    (folder / "Split-test/data_tfrecord-00000-of-00001.gz").write_bytes(b"no records")
    return folder


def test_one_trial_becomes_a_model_with_recipe_and_reports_without_reading_the_test_split(
    digits_model, examples_with_unreadable_test, tmp_path, caplog
):
    caplog.set_level("INFO", "tfopt")
    folders = tmp_path / "tuned", tmp_path / "recipe"
    outputs = tune_recipe(digits_model, examples_with_unreadable_test, *folders, trials=1, **{**QUICK, "seconds": 0.1})
    content = outputs["recipe"].read()
    assert content["winner"]["name"] == "fold_batch_norm, export_tflite int8"
    assert [step["component"] for step in content["winner"]["steps"]] == ["fold_batch_norm", "export_tflite"]
    assert content["winner"]["commands"][1].endswith("--precision int8")
    assert content["reason"].startswith("fold_batch_norm, export_tflite int8 (the only recipe that was tried): ")
    assert content["reason"].count("tflite int8") == 1
    assert len(caplog.messages) == 2  # a line for the trial, and the result
    (row,) = content["trials"]
    assert (row["state"], row["winner"], row["pareto"]) == ("measured", True, True)
    assert (outputs["tuned"].format, outputs["tuned"].digest) == ("tflite", content["decision"]["selected_digest"])
    assert sorted(file.name for file in outputs["recipe"].path.iterdir()) == [
        "decision.html", "optuna-journal.log", "recipe.json", "report.html",
    ]  # fmt: skip
    page = (outputs["recipe"].path / "report.html").read_text()
    assert "export_tflite int8" in page
    parent = content["decision"]["models"][0]["metrics"]
    assert formatting.amount("latency", parent["latency"]) in page.partition('id="parent"')[2]


@pytest.mark.nightly
def test_the_earlier_winner_is_reused_while_it_wins_and_a_search_follows_otherwise(
    digits_model, digits_examples, tmp_path
):
    def run(name: str, **parameters):
        folders = tmp_path / f"t {name}", tmp_path / name
        return tune_recipe(digits_model, digits_examples, *folders, **{**QUICK, **parameters})["recipe"].read()

    first = run("first", trials=1)
    again = run("again", trials=5, previous=tmp_path / "first")
    assert again["reused"] and len(again["trials"]) == 1
    assert (again["earlier"], again["left_out"]) == ([], "")  # the same recipe was measured again
    assert again["winner"]["choices"] == first["winner"]["choices"]
    assert not first["reused"]
    searched = run("searched", trials=3, previous=tmp_path / "first", goals=["latency min_improvement 99.99%"])
    assert not searched["reused"]
    assert [row["state"] for row in searched["trials"]] == ["measured"] * 3
    other = run("other", trials=1, previous=tmp_path / "searched", formats=["onnx"])
    assert {row["name"] for row in other["earlier"]} == {row["name"] for row in searched["trials"]}
    assert all(row["same_parent"] and row["same_examples"] for row in other["earlier"])
    two_threads = run("two threads", trials=1, previous=tmp_path / "searched", formats=["onnx"], threads=2)
    assert (two_threads["earlier"], two_threads["left_out"]) == ([], "CPU, threads or batch sizes were others")


@pytest.mark.nightly
def test_an_interrupted_search_leaves_no_files(digits_model, digits_examples, tmp_path):
    words = ["tune_recipe", "--model", digits_model, "--examples", digits_examples, "--tuned", tmp_path / "tuned"]
    command = [sys.executable, "-m", "tfopt.run", *words, "--recipe", tmp_path / "recipe", "--formats", "tflite"]
    process = subprocess.Popen([str(word) for word in command], env=os.environ | {"TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".recipe.partial-*/*/.work/*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert not [file.name for file in tmp_path.iterdir() if "recipe" in file.name or "tuned" in file.name]
