"""Each recipe is tried once, cheap signs first, until it is enough; what was measured best is handed on."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import TRAINED, Row, join_rows
from tfopt import formatting as wording
from tfopt.artifacts import Model
from tfopt.component import find
from tfopt.components.select_model.choice import choose
from tfopt.components.tune_recipe import early_rejection as proxies
from tfopt.components.tune_recipe import recipes
from tfopt.components.tune_recipe import tune as tuning
from tfopt.components.tune_recipe.component import tune_recipe
from tfopt.components.tune_recipe.recipes import FORMATS, Recipe
from tfopt.components.tune_recipe.search import Search
from tfopt.components.tune_recipe.trial_measurement import Judged
from tfopt.errors import ComponentError
from tfopt.measurement.goals import read_goals, resolve_goals

QUICK = {"seconds": 0.4, "formats": ["tflite"]}
LOSSLESS = ["quality max_degradation 1%"]


def test_each_recipe_is_one_and_every_step_of_it_is_what_its_component_takes():
    every = recipes.every(FORMATS)
    assert len(every) == len(set(map(str, every))) == 50
    for recipe in every:
        assert recipe.steps
        for step in recipe.steps:
            component = find(step.component)
            assert list(component.outputs) == [step.output]
            assert component.check(step.parameters).items() >= step.parameters.items()
            assert {"model", "examples"} <= component.inputs.keys()
    assert {step.component for recipe in every for step in recipe.steps} == {
        "fold_batch_norm", "optimize_graph", "cast_precision", "compile_xla",
        "export_tflite", "export_onnx", "export_openvino",
    }  # fmt: skip


@pytest.mark.parametrize("formats", [FORMATS, ("onnx",), ("saved_model", "openvino")])
def test_only_wanted_formats_are_tried_and_each_of_them_first(formats):
    every, first = recipes.every(formats), recipes.first(formats)
    assert {recipe.choices["format"] for recipe in every} == set(formats)
    assert {recipe.choices["format"] for recipe in first} == set(formats)
    assert set(first) <= set(every)


class Known:
    """A kitchen and a judge in one for whom every recipe was measured beforehand: its speed-up and lost accuracy."""

    def __init__(self, folder: Path, goals: list[str], figures, *, broken=()) -> None:
        self.folder, self.model, self.goals, self.figures, self.broken = folder, Model(folder), goals, figures, broken
        self.question = type("Question", (), {"goals": read_goals(goals)})
        (folder / "saved_model.pb").write_text("graph")

    def make(self, recipe: Recipe) -> Model:
        if recipe.choices["format"] in self.broken:
            raise ComponentError(f"{recipe} has no such op\nand more", "ops", "others")
        place = self.folder / str(recipe)
        place.mkdir()
        (place / "saved_model.pb").write_text(str(recipe))
        (place / "choices.json").write_text(json.dumps(recipe.choices))
        return Model(place)

    def changed(self, child: Model, records: int, seed: int) -> tuple[int, int, float]:
        return 0, records, 0.0

    def judge(self, children: list[Model], place: Path) -> list[Judged]:
        choices = json.loads((children[0].path / "choices.json").read_text())
        speed, lost = self.figures(choices)
        rows = [
            TRAINED,
            Row("child", "onnx", 0.981 - lost, (-lost, -lost - 0.001, 0.001 - lost), 0.412 / speed,
                (speed, speed * 0.99, speed * 1.01, "faster" if speed > 1.03 else "within noise")),
        ]  # fmt: skip
        measured = join_rows(rows, ["a", "b"])
        goals = resolve_goals(read_goals(self.goals), "accuracy", measured[0].metrics)
        return [Judged(measured[1], "accuracy", goals, "latency", 1000)]


def figures(choices) -> tuple[float, float]:
    """Eight bits of OpenVINO after optimize_graph is best; eight bits of LiteRT is faster and loses too much."""
    kind = choices["format"]
    if choices.get(kind) == "int8":
        graph = {"as it is": 1.0, "fold_batch_norm": 1.3, "optimize_graph": 1.6}[choices["graph"]]
        return {"tflite": (9.0, 0.05), "onnx": (3.0, 0.0), "openvino": (4.0 * graph, 0.0)}[kind]
    return 1.5, 0.0


def search(folder: Path, goals=LOSSLESS, formats=FORMATS, most=20, seed=0, minutes=5.0, **more) -> tuple[Search, str]:
    folder.mkdir(exist_ok=True)
    known = Known(folder, goals, figures, **more)
    found = Search(known, known, formats, most, minutes, 64, seed)
    return found, found.run()


def test_no_recipe_is_tried_twice_and_the_search_finds_the_best_within_its_trials(tmp_path):
    found, stopped = search(tmp_path, most=25)
    assert stopped == "25 trials were made"
    assert len({trial.recipe for trial in found.trials}) == len(found.trials) == 25
    best = min(found.trials, key=lambda trial: (not trial.wins, trial.score))
    assert best.recipe.choices["openvino"] == "int8"
    assert best.recipe.choices["graph"] == "optimize_graph"
    fast = [trial for trial in found.trials if trial.recipe.choices.get("tflite") == "int8"]
    assert fast and not any(trial.wins for trial in fast)
    assert min(trial.score for trial in fast) > best.score


def test_the_same_seed_and_the_same_figures_give_the_same_trials(tmp_path):
    first, again, other = (
        [str(trial.recipe) for trial in search(tmp_path / name, most=14, seed=seed)[0].trials]
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first == again != other


@pytest.mark.parametrize("enough", ["latency min_improvement 75%", "latency threshold 0.1"])
def test_it_stops_as_soon_as_goals_that_say_what_is_enough_are_met(tmp_path, enough):
    found, stopped = search(tmp_path, goals=[*LOSSLESS, enough])
    assert stopped == "a recipe meets the goals"
    assert found.trials[-1].wins
    assert not any(trial.wins for trial in found.trials[:-1])
    assert len(found.trials) == 2  # LiteRT in 8 bits loses too much; OpenVINO in 8 bits is enough


def test_it_ends_when_everything_was_tried_or_time_is_up(tmp_path):
    found, stopped = search(tmp_path / "all", formats=("onnx",), most=100)
    assert (stopped, len(found.trials)) == ("every recipe was tried", len(recipes.every(["onnx"])))
    found, stopped = search(tmp_path / "time", minutes=1e-9)
    assert (stopped, found.trials) == ("1e-09 minutes were over", [])


def test_last_times_winner_is_enough_while_it_wins_and_the_first_of_a_search_when_not(tmp_path):
    best, worse = (Recipe({"graph": "as it is", "format": "onnx", "onnx": kind}) for kind in ("int8", "float32"))
    best = Recipe(best.choices | {"onnx_scales": "per tensor"})
    for name, last, goals, reused, count in (
        ("wins", best, LOSSLESS, True, 1),
        ("is slow", worse, ["latency min_improvement 50%"], False, 4),
        ("is none", None, LOSSLESS, False, 4),
    ):
        (tmp_path / name).mkdir()
        known = Known(tmp_path / name, goals, lambda choices: (3.0 if choices.get("onnx") == "int8" else 1.1, 0.0))
        found = Search(known, known, ("onnx", "tflite"), 4, 5.0, 64, 0)
        assert found.reuse_or_run(last)[0] == reused
        assert last is None or found.trials[0].recipe == last
        assert len({trial.recipe for trial in found.trials}) == len(found.trials) <= count


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
    judged = Judged(measured[1], "accuracy", goals, objective, 1000)
    assert not judged.failures
    assert judged.proven == better == (choose(measured, {"trained", row.name}, objective) is measured[1])


def test_the_last_round_is_of_the_best_that_win_or_of_the_best_one_where_none_does(tmp_path):
    found, _ = search(tmp_path / "some", most=20)
    finalists = tuning._finalists(found.trials, 3)
    assert [trial.score for trial in finalists] == sorted(trial.score for trial in found.trials if trial.wins)[:3]
    (tmp_path / "none").mkdir()
    known = Known(tmp_path / "none", LOSSLESS, lambda choices: (1.02, 0.0))  # within noise
    none = Search(known, known, ("onnx",), 4, 5.0, 64, 0)
    none.run()
    assert not any(trial.wins for trial in none.trials)
    assert len(tuning._finalists(none.trials, 3)) == 1
    broken, _ = search(tmp_path / "broken", most=4, formats=("onnx",), broken=("onnx",))
    with pytest.raises(ComponentError, match=r"(?s)none of 4 recipes could be measured.*has no such op"):
        tuning._finalists(broken.trials, 3)


def test_two_recipes_that_give_one_file_are_one_finalist(tmp_path):
    found, _ = search(tmp_path, most=4, formats=("onnx",))
    for trial in found.trials:
        (trial.model.path / "saved_model.pb").write_text("the same")
        (trial.model.path / "choices.json").unlink()
    finalists = tuning._finalists([replace(trial, model=Model(trial.model.path)) for trial in found.trials], 3)
    assert len(finalists) == 1
    assert finalists[0].score == min(trial.score for trial in found.trials)


def test_what_cannot_be_made_is_a_trial_with_its_reason(tmp_path):
    found, _ = search(tmp_path, most=30, broken=("onnx",))
    failed = [trial for trial in found.trials if trial.state == "not made"]
    assert {trial.recipe.choices["format"] for trial in failed} == {"onnx"}
    assert all(trial.reason.endswith("has no such op") for trial in failed)
    assert any(trial.wins for trial in found.trials)


def test_a_full_disk_ends_the_search(tmp_path):
    known = Known(tmp_path, LOSSLESS, figures)
    known.make = lambda recipe: (_ for _ in ()).throw(
        ComponentError("No space left on device", "a model", "another op")
    )
    found = Search(known, known, FORMATS, 5, 5.0, 64, 0)
    with pytest.raises(ComponentError, match="room for the outputs"):
        found.run()
    assert len(found.trials) == 1


def test_a_model_too_large_for_a_goal_is_given_up_unmeasured(tmp_path):
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent" / "saved_model.pb").write_bytes(b"a" * 1000)
    (tmp_path / "child").mkdir()
    (tmp_path / "child" / "saved_model.pb").write_bytes(b"a" * 900)
    parent, child = Model(tmp_path / "parent"), Model(tmp_path / "child")
    assert proxies.too_large(child, parent, read_goals(["size min_improvement 5%"])) is None
    said = proxies.too_large(child, parent, read_goals(["accuracy threshold 0.9", "size min_improvement 20%"]))
    assert said == "is 100 B better in size; the goal asks for 200 B (20%) better"


@pytest.mark.parametrize(
    ("changed", "apart", "metric", "given_up"),
    [
        (3, 0.0, "accuracy", False),  # at least 1.6 % changed: the goal allows 1 %, twice that is not reached
        (8, 0.0, "accuracy", True),
        (8, 0.0, "mean_absolute_error", False),
        (8, 0.0, None, False),
        (0, 0.6, "mean_absolute_error", True),
    ],
)
def test_a_few_answers_give_up_only_what_cannot_meet_the_goals(changed, apart, metric, given_up):
    goals = read_goals(["accuracy max_degradation 0.01"])
    assert bool(proxies.too_different(changed, 64, apart, goals, metric)) == given_up


@pytest.mark.parametrize("formats", [["tflite", "coreml"], []])
def test_unknown_formats_are_refused_at_once(digits_model, digits_examples, tmp_path, formats):
    with pytest.raises(ComponentError, match="formats"):
        tune_recipe(digits_model, digits_examples, tmp_path / "t", tmp_path / "r", formats=formats)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def kept(digits_examples, tmp_path) -> Path:
    """Examples with a split ``test`` that whoever reads it cannot read: it is kept for those who judge the winner."""
    (tmp_path / "kept").mkdir()
    for split in digits_examples.iterdir():
        (tmp_path / "kept" / split.name).symlink_to(split)
    (tmp_path / "kept/Split-test").mkdir()
    (tmp_path / "kept/Split-test/data_tfrecord-00000-of-00001.gz").write_bytes(b"no records")
    return tmp_path / "kept"


def test_one_trial_becomes_a_model_with_its_recipe_and_pages_without_a_look_at_test(
    digits_model, kept, tmp_path, caplog
):
    caplog.set_level("INFO", "tfopt")
    made = tune_recipe(digits_model, kept, tmp_path / "tuned", tmp_path / "recipe", trials=1, **QUICK)
    content = made["recipe"].read()
    assert content["winner"]["name"] == "fold_batch_norm, export_tflite int8"
    assert [step["component"] for step in content["winner"]["steps"]] == ["fold_batch_norm", "export_tflite"]
    assert content["winner"]["commands"][1].endswith("--precision int8")
    assert content["reason"].startswith("fold_batch_norm, export_tflite int8 (the only recipe that was tried): ")
    assert content["reason"].count("tflite int8") == 1
    assert len(caplog.messages) == 2  # a line for the trial, and what came of all
    (row,) = content["trials"]
    assert (row["state"], row["winner"], row["pareto"]) == ("measured", True, True)
    assert (made["tuned"].format, made["tuned"].digest) == ("tflite", content["decision"]["selected_digest"])
    assert sorted(file.name for file in made["recipe"].path.iterdir()) == [
        "decision.html", "recipe.json", "report.html",
    ]  # fmt: skip
    page = (made["recipe"].path / "report.html").read_text()
    assert "export_tflite int8" in page
    parent = content["decision"]["models"][0]["metrics"]
    assert wording.amount("latency", parent["latency"]) in page.partition('id="parent"')[2]


@pytest.mark.nightly
def test_last_times_winner_is_used_while_it_serves_and_searched_past_when_not(digits_model, digits_examples, tmp_path):
    def run(name: str, **more):
        asked = {**QUICK, **more}
        made = tune_recipe(digits_model, digits_examples, tmp_path / f"t {name}", tmp_path / name, **asked)
        return made["recipe"].read()

    first = run("first", trials=1)
    again = run("again", trials=5, previous=tmp_path / "first")
    assert again["reused"] and len(again["trials"]) == 1
    assert (again["earlier"], again["left_out"]) == ([], "")  # it measured anew what was measured before
    assert again["winner"]["choices"] == first["winner"]["choices"]
    assert not first["reused"]
    anew = run("anew", trials=3, previous=tmp_path / "first", goals=["latency min_improvement 99.99%"])
    assert not anew["reused"]
    assert [row["state"] for row in anew["trials"]] == ["measured"] * 3
    other = run("other", trials=1, previous=tmp_path / "anew", formats=["onnx"])
    assert {row["name"] for row in other["earlier"]} == {row["name"] for row in anew["trials"]}
    assert all(row["same_parent"] and row["same_examples"] for row in other["earlier"])
    alone = run("alone", trials=1, previous=tmp_path / "anew", formats=["onnx"], threads=2)
    assert (alone["earlier"], alone["left_out"]) == ([], "CPU, threads or batch sizes were others")


@pytest.mark.nightly
def test_interrupted_it_leaves_nothing(digits_model, digits_examples, tmp_path):
    words = ["tune_recipe", "--model", digits_model, "--examples", digits_examples, "--tuned", tmp_path / "tuned"]
    command = [sys.executable, "-m", "tfopt.run", *words, "--recipe", tmp_path / "recipe", "--formats", "tflite"]
    process = subprocess.Popen([str(word) for word in command], env=os.environ | {"TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".recipe.partial-*/.work/*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert not [file.name for file in tmp_path.iterdir() if "recipe" in file.name or "tuned" in file.name]
