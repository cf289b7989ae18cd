"""What earlier runs measured is on the page and the Pareto front where it can be compared, and says what it is of."""

import copy
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.components.test_push_model import changed, push
from tests.reports import DIGITS, TRAINED, Row, make_models, parsed_reports
from tfopt.artifacts import Model, Recipe
from tfopt.components.tune_recipe import previous_recipe as last
from tfopt.components.tune_recipe.component import tune_recipe
from tfopt.components.tune_recipe.earlier import add_earlier
from tfopt.components.tune_recipe.report import page
from tfopt.errors import ComponentError
from tfopt.model_store import run_history as past
from tfopt.model_store.warm_start import load_recipe, store_recipe

CHOICES = {"graph": "as it is", "format": "tflite", "tflite": "int8"}
FAST, EXACT, WORSE = (
    {"quality": -0.004, "speed": 8.0, "size": 0.3},
    {"quality": 0.0, "speed": 3.0, "size": 0.6},
    {"quality": -0.001, "speed": 0.5, "size": 1.2},
)


def run(before: dict, found: dict[str, dict | None], *, parent="p", examples="e", day=1, size=186_400) -> dict:
    """The content of a run's recipe: what each recipe was next to its parent, None where it could not be made."""
    rows = [TRAINED, Row("child")]
    metrics = {"accuracy": 0.981, "latency": 0.4, "size": size}
    trial = {"choices": CHOICES, "reason": "so measured", "seconds": 1.0, "score": 0.0, "winner": False}
    content = {
        "reason": "the model itself stays", "winner": None, "stopped": "enough", "goals": [], "objective": "latency",
        "minutes": 1.0, "examples": examples, "time": f"2026-10-{day:02}T03:00:00+00:00",
        "trials": [
            trial
            | {"name": name, "finalist": False, "state": "measured" if beside else "not made", "beside_parent": beside}
            | {"metrics": {**metrics, "accuracy": 0.981 + beside["quality"]} if beside else {}}
            for name, beside in found.items()
        ],
        "decision": {
            "models": [{"digest": parent, "format": "saved_model", "parent": True, "metrics": metrics}],
            "conditions": asdict(past.measurement_conditions(*parsed_reports(rows, [parent, "c"]))),
        },
    }  # fmt: skip
    content = json.loads(json.dumps(content))  # as it is read back
    add_earlier(before, content)
    return content


def front(content: dict) -> set[str]:
    return {row["name"] for row in [*content["trials"], *content["earlier"]] if row["pareto"]}


def test_each_recipe_is_there_once_with_its_newest_measurement_through_any_number_of_runs():
    first = run({}, {"a": FAST, "b": EXACT, "c": None})
    assert (first["earlier"], first["left_out"]) == ([], "")
    second = run(first, {"b": FAST, "a": None}, parent="p2", day=8)
    assert [(row["name"], row["beside_parent"], row["parent"]) for row in second["earlier"]] == [("a", FAST, "p")]
    third = run(second, {"d": EXACT}, parent="p2", examples="e2", day=15)
    assert [(row["name"], row["parent"], row["time"][:10], row["examples"]) for row in third["earlier"]] == [
        ("b", "p2", "2026-10-08", "e"),
        ("a", "p", "2026-10-01", "e"),
    ]
    assert [row["same_parent"] for row in third["earlier"]] == [True, False]
    assert not any(row["same_examples"] for row in third["earlier"])


def test_the_front_is_of_all_that_was_measured_and_of_the_model_itself():
    first = run({}, {"fast": FAST, "worse": WORSE})
    assert front(first) == {"fast"}
    second = run(first, {"exact": EXACT, "slow": EXACT | {"speed": 2.0}, "none": None})
    assert front(second) == {"fast", "exact"}
    third = run(second, {"best": {"quality": 0.001, "speed": 9.0, "size": 0.2}})
    assert front(third) == {"best"}


@pytest.mark.parametrize(
    ("where", "value", "said"),
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
def test_what_cannot_be_compared_is_left_out_and_the_page_says_why(where, value, said):
    before = copy.deepcopy(run({}, {"a": FAST}))
    place = before["decision"]
    for name in where[:-1]:
        place = place[name]
    place[where[-1]] = value
    content = run(before, {"b": EXACT}, parent="p2")
    assert content["earlier"] == [] and said in content["left_out"]
    assert said in page(content).partition('id="left_out"')[2]
    assert front(content) == {"b"}


def test_a_model_trained_again_may_differ_by_the_names_in_its_graph():
    before = run({}, {"a": FAST}, size=186_900)
    assert [row["name"] for row in run(before, {"b": EXACT}, parent="p2")["earlier"]] == ["a"]


def test_the_page_says_what_earlier_rows_are_of_and_gives_their_quality_next_to_their_own_parent():
    same = page(run(run({}, {"a": FAST}), {"b": EXACT}))
    row = same.partition('class="earlier"')[2].partition("</tr>")[0]
    assert ">earlier · Pareto front<" in row and ">97.70%<" in row and "measured on 2026-10-01" in row
    again = page(run(run({}, {"a": FAST}), {"b": EXACT}, parent="p2"))
    row = again.partition('class="earlier"')[2].partition("</tr>")[0]
    assert ">earlier, of another training · Pareto front<" in row and ">0.40 points worse<" in row and "8.00x" in row
    other = page(run(run({}, {"a": EXACT}), {"b": FAST}, examples="e2"))
    row = other.partition('class="earlier"')[2].partition("</tr>")[0]
    assert ">earlier, on other examples · Pareto front<" in row and ">the same<" in row
    assert 'id="left_out"' not in same + again + other
    assert 'id="earlier"' not in page(run({}, {"a": FAST}))


def test_nothing_of_a_recipe_that_does_not_say_what_it_was_measured_on_is_taken_over():
    old = {"winner": None, "trials": [{"name": "a", "speedup": 3.0}], "decision": {}}
    assert run(old, {"b": EXACT})["earlier"] == []


@pytest.mark.parametrize(
    ("before", "formats", "tried"),
    [
        ({}, ["tflite"], False),
        ({"winner": None}, ["tflite"], False),
        ({"winner": {"choices": CHOICES}}, ["tflite"], True),
        ({"winner": {"choices": CHOICES}}, ["onnx"], False),
        ({"winner": {"choices": CHOICES}, "served": True}, ["tflite"], True),
        ({"winner": {"choices": CHOICES}, "served": False}, ["tflite"], False),
        ({"winner": {"choices": CHOICES | {"tflite": "int3"}}, "served": True}, ["tflite"], False),
    ],
)
def test_last_times_winner_is_tried_first_where_it_was_served_and_is_still_a_recipe(before, formats, tried):
    found = last.tried_first(before, formats)
    assert (found is not None and found.choices == CHOICES) == tried


def test_recipes_that_cannot_be_used_are_refused_before_anything_is_made(digits_model, digits_examples, tmp_path):
    def refused(match: str, **given: object) -> None:
        with pytest.raises(ComponentError, match=match):
            tune_recipe(digits_model, digits_examples, tmp_path / "t", tmp_path / "r", **given)
        assert not (tmp_path / "t").exists() and not (tmp_path / "r").exists()

    Recipe(tmp_path / "old").write({"winner": {"choices": {"format": "tflite", "tflite": "int3"}}})
    refused("choices of this version", previous=tmp_path / "old")
    (tmp_path / "served" / "recipe").mkdir(parents=True)
    (tmp_path / "served" / "recipe" / "recipe.json").write_text('{"winner"')
    refused(r"recipe\.json is damaged or of another version: JSONDecodeError", last=str(tmp_path / "served"))
    refused("last=gs://bucket/served", last="gs://bucket/served")  # nothing is ever pushed there


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
        lambda content: content["trials"][0]["metrics"].update(latency="fast"),
        lambda content: content["trials"][0]["beside_parent"].update(speed=float("nan")),
    ],
)
def test_a_recipe_of_another_version_is_refused_before_the_search_and_not_after_it(tmp_path, spoil):
    recipe = Recipe(tmp_path)
    content = run({}, {"a": FAST})
    recipe.write(content)
    assert last.read(recipe) == content
    spoil(content)
    (tmp_path / recipe.file).write_text(json.dumps(content))
    with pytest.raises(ComponentError, match=r"recipe\.json is damaged or of another version: \w+: .") as refusal:
        last.read(recipe)
    assert "leave previous out once" in refusal.value.fix


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """What is pushed."""
    return make_models([DIGITS[4]], tmp_path / "models")[0]


def test_a_push_keeps_the_recipe_and_whether_its_choice_is_what_is_served(model, tmp_path):
    served = tmp_path / "served here"

    def found(chosen: Path, seed: int) -> Path:
        Recipe(tmp_path / f"{seed}").write({"seed": seed, "decision": {"selected_digest": Model(chosen).digest}})
        return tmp_path / f"{seed}"

    assert load_recipe(served) is None
    facts = push(model, served, recipe=found(model, 0)).read()
    assert facts["recipe"] == str(served / "recipe")
    assert load_recipe(served).read()["served"]
    push(model, served, recipe=found(changed(model, "another"), 1))  # the parent, say, was better in the end
    assert (load_recipe(served).read()["seed"], load_recipe(served).read()["served"]) == (1, False)
    push(model, served, recipe=found(model, 2))  # the newest version already
    assert (load_recipe(served).read()["seed"], load_recipe(served).read()["served"]) == (2, True)
    push(model, served, blessed=False, recipe=found(model, 3))
    assert (load_recipe(served).read()["seed"], load_recipe(served).read()["served"]) == (3, False)
    assert "recipe" not in push(model, served).read()
    assert load_recipe(served).read()["seed"] == 3


def test_a_recipe_that_cannot_be_kept_leaves_the_one_before(tmp_path):
    Recipe(tmp_path / "new").write({"decision": {"selected_digest": "d"}})
    store_recipe(tmp_path / "served", Recipe(tmp_path / "new"), "d")
    (tmp_path / "new" / "recipe.json").write_text("{")
    with pytest.raises(json.JSONDecodeError):
        store_recipe(tmp_path / "served", Recipe(tmp_path / "new"), "other")
    assert load_recipe(tmp_path / "served").read()["served"]
    assert [path.name for path in (tmp_path / "served" / "recipe").iterdir()] == ["recipe.json"]
