"""Test recipes of earlier runs: loading, reuse, comparable measurements, the Pareto front, and storage by a push."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components.test_push_model import changed, push
from tests.reports import DIGITS, baseline_metrics, make_models, recipe_report
from tfopt.artifacts import Model, Recipe
from tfopt.components.tune_recipe.component import tune_recipe
from tfopt.components.tune_recipe.earlier_runs import add_earlier_trials, first_trial, read_previous
from tfopt.components.tune_recipe.report import render_report
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import load_recipe, store_recipe
from tfopt.reports.recipe_report import RecipeReport, RelativeMetrics, TrialReport, WinningRecipe

CHOICES = {"graph": "as it is", "format": "tflite", "tflite": "int8"}
FAST, EXACT, WORSE = (
    RelativeMetrics(quality=-0.004, speed=8.0, size=0.3),
    RelativeMetrics(quality=0.0, speed=3.0, size=0.6),
    RelativeMetrics(quality=-0.001, speed=0.5, size=1.2),
)


def run(
    previous: RecipeReport | None,
    measured: dict[str, RelativeMetrics | None],
    *,
    parent="p",
    examples="e",
    day=1,
    size=186_400,
) -> RecipeReport:
    """Return the report of a run with these trials; None is a recipe that could not be made."""
    trials = [_trial(name, relative, baseline_metrics(size)) for name, relative in measured.items()]
    report = recipe_report(trials, parent=parent, examples=examples, day=day, size=size)
    return add_earlier_trials(report, previous)


def _trial(name: str, relative: RelativeMetrics | None, parent: dict[str, float]) -> TrialReport:
    return TrialReport(
        name, CHOICES, "measured" if relative else "not made", "a reason", 1.0, meets_goals=False, proven_better=False,
        finalist=False, winner=False, score=0.0, beside_parent=relative,
        metrics=parent | {"accuracy": 0.981 + relative.quality} if relative else {}, pareto=False,
    )  # fmt: skip


def front(report: RecipeReport) -> set[str]:
    return {trial.name for trial in [*report.trials, *report.earlier] if trial.pareto}


def test_the_newest_measurement_of_each_recipe_is_carried_over_through_any_number_of_runs():
    first = run(None, {"a": FAST, "b": EXACT, "c": None})
    assert (first.earlier, first.left_out) == ([], "")
    second = run(first, {"b": FAST, "a": None}, parent="p2", day=8)
    assert [(trial.name, trial.beside_parent, trial.parent) for trial in second.earlier] == [("a", FAST, "p")]
    third = run(second, {"d": EXACT}, parent="p2", examples="e2", day=15)
    assert [(trial.name, trial.parent, trial.time[:10], trial.examples) for trial in third.earlier] == [
        ("b", "p2", "2026-10-08", "e"),
        ("a", "p", "2026-10-01", "e"),
    ]
    assert [trial.same_parent for trial in third.earlier] == [True, False]
    assert not any(trial.same_examples for trial in third.earlier)


def test_the_front_is_of_all_measured_recipes_and_of_the_model_itself():
    first = run(None, {"fast": FAST, "worse": WORSE})
    assert front(first) == {"fast"}
    second = run(first, {"exact": EXACT, "slow": replace(EXACT, speed=2.0), "none": None})
    assert front(second) == {"fast", "exact"}
    third = run(second, {"best": RelativeMetrics(0.001, 9.0, 0.2)})
    assert front(third) == {"best"}


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        (("conditions", "speed", "cpu"), "another", "CPU, threads or batch sizes"),
        (("conditions", "speed", "threads"), 2, "CPU, threads or batch sizes"),
        (("conditions", "quality", "label"), "another", "task, label or split"),
        (("conditions", "quality", "split"), "test", "task, label or split"),
        (("models", 0, "metrics"), {"recall": 0.9, "size": 186_400}, "task, label or split"),
        (("models", 0, "format"), "onnx", "another one"),
        (("models", 0, "metrics", "size"), 190_000, "another one"),
    ],
)
def test_measurements_that_are_not_comparable_are_left_out_and_the_report_has_the_reason(
    tmp_path, where, value, reason
):
    recipe = Recipe(tmp_path)
    recipe.write(run(None, {"a": FAST}))
    content = recipe.read()
    node = content["decision"]
    for name in where[:-1]:
        node = node[name]
    node[where[-1]] = value
    recipe.write(content)
    report = run(recipe.load(), {"b": EXACT}, parent="p2")
    assert report.earlier == [] and reason in report.left_out
    assert reason in render_report(report).partition('id="left_out"')[2]
    assert front(report) == {"b"}


def test_a_model_trained_again_may_differ_by_the_names_in_its_graph():
    before = run(None, {"a": FAST}, size=186_900)
    assert [trial.name for trial in run(before, {"b": EXACT}, parent="p2").earlier] == ["a"]


def test_the_report_has_the_origin_of_earlier_rows_and_their_quality_relative_to_their_own_parent():
    same = render_report(run(run(None, {"a": FAST}), {"b": EXACT}))
    row = same.partition('class="earlier"')[2].partition("</tr>")[0]
    assert ">earlier · Pareto front<" in row and ">97.70%<" in row and "measured on 2026-10-01" in row
    again = render_report(run(run(None, {"a": FAST}), {"b": EXACT}, parent="p2"))
    row = again.partition('class="earlier"')[2].partition("</tr>")[0]
    assert ">earlier, of another training · Pareto front<" in row and ">0.40 points worse<" in row and "8.00x" in row
    other = render_report(run(run(None, {"a": EXACT}), {"b": FAST}, examples="e2"))
    row = other.partition('class="earlier"')[2].partition("</tr>")[0]
    assert ">earlier, on other examples · Pareto front<" in row and ">the same<" in row
    assert 'id="left_out"' not in same + again + other
    assert 'id="earlier"' not in render_report(run(None, {"a": FAST}))


def won_by(choices: dict[str, str], served: bool | None = None) -> RecipeReport:
    """Return the report of a run with this winner."""
    winner = WinningRecipe("tflite", choices, [], []) if choices else None
    return replace(run(None, {}), winner=winner, served=served)


@pytest.mark.parametrize(
    ("previous", "formats", "tried"),
    [
        (None, ["tflite"], False),
        (won_by({}), ["tflite"], False),
        (won_by(CHOICES), ["tflite"], True),
        (won_by(CHOICES), ["onnx"], False),
        (won_by(CHOICES, served=True), ["tflite"], True),
        (won_by(CHOICES, served=False), ["tflite"], False),
        (won_by(CHOICES | {"tflite": "int3"}, served=True), ["tflite"], False),
    ],
)
def test_the_earlier_winner_is_tried_first_if_it_was_served_and_is_still_a_recipe(previous, formats, tried):
    recipe = first_trial(previous, formats)
    assert (recipe is not None and recipe.choices == CHOICES) == tried


def test_unusable_recipes_are_refused_before_the_search(digits_model, digits_examples, tmp_path):
    def refused(match: str, **parameters: object) -> None:
        with pytest.raises(ComponentError, match=match):
            tune_recipe(digits_model, digits_examples, tmp_path / "t", tmp_path / "r", **parameters)
        assert not (tmp_path / "t").exists() and not (tmp_path / "r").exists()

    Recipe(tmp_path / "old").write(won_by({"format": "tflite", "tflite": "int3"}))
    refused("choices of this version", previous=tmp_path / "old")
    (tmp_path / "served" / "recipe").mkdir(parents=True)
    (tmp_path / "served" / "recipe" / "recipe.json").write_text('{"winner"')
    refused(r"recipe\.json is damaged or of another version: .*Expecting ':'", destination=str(tmp_path / "served"))
    (tmp_path / "served" / "recipe" / "recipe.json").write_text("[]")
    refused(r"recipe\.json is damaged or of another version: ", destination=str(tmp_path / "served"))


def without(*where: str | int):
    def spoil(content: dict) -> None:
        for name in where[:-1]:
            content = content[name]
        del content[where[-1]]

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        without("time"),
        without("decision"),
        without("earlier"),
        without("decision", "conditions", "speed"),
        without("decision", "models", 0),
        without("decision", "models", 0, "format"),
        without("decision", "models", 0, "metrics", "size"),
        without("trials", 0, "beside_parent", "speed"),
        lambda content: content.update(winner="tflite int8"),
        lambda content: content.update(winner={"name": "tflite int8"}),
        lambda content: content.update(trials="none"),
        lambda content: content.update(time=20261001),
        lambda content: content.update(schema_version=99),
        lambda content: content["trials"][0]["metrics"].update(latency="fast"),
        lambda content: content["trials"][0]["beside_parent"].update(speed=float("nan")),
    ],
)
def test_a_recipe_of_another_version_is_refused_before_the_search(tmp_path, spoil):
    recipe = Recipe(tmp_path)
    winner = WinningRecipe("tflite int8", CHOICES, [], [])
    report = replace(run(None, {"a": FAST}), winner=winner)
    recipe.write(report)
    assert read_previous(recipe) == report
    content = recipe.read()
    spoil(content)
    (tmp_path / recipe.file).write_text(json.dumps(content))
    with pytest.raises(ComponentError, match=r"recipe\.json is damaged or of another version: .") as refusal:
        read_previous(recipe)
    assert "leave previous out once" in refusal.value.fix


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model to push."""
    return make_models([DIGITS[4]], tmp_path / "models")[0]


def test_a_push_stores_the_recipe_and_whether_its_selected_model_is_served(model, tmp_path):
    destination = tmp_path / "served here"

    def recipe_of(selected: Path, seed: int) -> Path:
        Recipe(tmp_path / f"{seed}").write({"seed": seed, "decision": {"selected_digest": Model(selected).digest}})
        return tmp_path / f"{seed}"

    assert load_recipe(destination) is None
    facts = push(model, destination, recipe=recipe_of(model, 0)).read()
    assert facts["recipe"] == str(destination / "recipe")
    assert load_recipe(destination).read()["served"]
    push(model, destination, recipe=recipe_of(changed(model, "another"), 1))  # for example, the baseline was selected
    assert (load_recipe(destination).read()["seed"], load_recipe(destination).read()["served"]) == (1, False)
    push(model, destination, recipe=recipe_of(model, 2))  # the newest version already
    assert (load_recipe(destination).read()["seed"], load_recipe(destination).read()["served"]) == (2, True)
    push(model, destination, blessed=False, recipe=recipe_of(model, 3))
    assert (load_recipe(destination).read()["seed"], load_recipe(destination).read()["served"]) == (3, False)
    assert "recipe" not in push(model, destination).read()
    assert load_recipe(destination).read()["seed"] == 3


def test_a_recipe_that_cannot_be_stored_leaves_the_previous_one(tmp_path):
    Recipe(tmp_path / "new").write({"decision": {"selected_digest": "d"}})
    store_recipe(tmp_path / "served", Recipe(tmp_path / "new"), "d")
    (tmp_path / "new" / "recipe.json").write_text("{")
    with pytest.raises(ComponentError, match="Expecting property name"):
        store_recipe(tmp_path / "served", Recipe(tmp_path / "new"), "other")
    assert load_recipe(tmp_path / "served").read()["served"]
    assert [path.name for path in (tmp_path / "served" / "recipe").iterdir()] == ["recipe.json"]
