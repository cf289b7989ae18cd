"""Each run's numbers are kept beside the versions; what is worse than the last blessed runs is told, or refused."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import TRAINED, Row, make_models, write_reports
from tfopt.artifacts import Blessing, Decision
from tfopt.components.push_model.component import push_model
from tfopt.components.select_model.component import select_model
from tfopt.errors import ComponentError
from tfopt.model_store import run_history as past

LITE = Row("tflite", accuracy=0.98, p50=0.05, speedup=(8.0, 7.8, 8.2, "faster"), size=45_000)


def run(folder: Path, served: Path, lite: Row = LITE, parent: Row = TRAINED, *, measured=None, **parameters) -> dict:
    """A whole run on measured rows: decide, push, keep; returns the decision."""
    models = make_models([parent, lite], folder / "models")
    for place in models:  # each run has models of its own
        for file in (place / "Format-Serving").iterdir():
            file.write_text(f"{folder.name} {place.name}")
    evaluation, benchmark = write_reports([parent, lite], models, folder, samples=False)
    benchmark.write(benchmark.read() | (measured or {}))
    made = select_model(
        models[0], models[1:], evaluation, benchmark, folder / "selected", folder / "decision", folder / "blessing",
        history=str(served), **parameters,
    )  # fmt: skip
    push(made, folder, served)
    return Decision(folder / "decision").read()


def push(made: dict, folder: Path, served: Path) -> dict:
    out = folder / f"pushed {len(list(folder.glob('pushed*')))}"
    push_model(made["selected"], made["blessing"], out, decision=made["decision"], destination=str(served))
    return json.loads((out / "pushed.json").read_text())


def runs(tmp_path: Path, count: int, **parameters) -> Path:
    served = tmp_path / "served"
    for number in range(count):
        lite = replace(LITE, accuracy=0.98 + 0.001 * (number % 3), p50=0.05 + 0.0004 * (number % 3))
        run(tmp_path / f"run {number}", served, lite, **parameters)
    return served


def test_each_run_is_kept_once_with_what_it_chose_and_its_version(tmp_path):
    served = runs(tmp_path, 2)
    kept = past.read_runs(served, 10)
    assert [(one["version"], one["winner"]["name"], one["parent"]["name"]) for one in kept] == [
        (1, "tflite", "trained"),
        (2, "tflite", "trained"),
    ]
    folder = tmp_path / "run 1"
    made = {"selected": folder / "selected", "blessing": Blessing(folder / "blessing"), "decision": folder / "decision"}
    again = push(made, folder, served)  # a step that is tried again
    assert again["history"] == str(served / "history" / Path(again["history"]).name)
    assert past.read_runs(served, 10) == kept
    assert not list((served / "history").glob(".*"))
    assert [one["version"] for one in past.read_runs(served, 1)] == [2]


def test_a_run_like_those_before_is_as_before(tmp_path):
    decision = run(tmp_path / "new", runs(tmp_path, 3))
    assert decision["blessed"]
    assert decision["history"]["regressions"] == []
    assert [trend["metric"] for trend in decision["history"]["trends"]] == [
        "accuracy", "accuracy", "latency", "latency", "size", "size",
    ]  # fmt: skip
    assert decision["history"]["trends"][0]["earlier"] == pytest.approx([0.98, 0.981, 0.982])


def test_a_regression_is_told_and_blesses_all_the_same_unless_a_goal_says_otherwise(tmp_path):
    served = runs(tmp_path, 3)
    slow = replace(LITE, p50=0.08, speedup=(5.0, 4.9, 5.1, "faster"))
    told = run(tmp_path / "told", served, slow)
    assert told["blessed"]
    assert told["history"]["regressions"] == [
        "the winner tflite is 0.0296 ms worse in latency against the median of the last 3 blessed runs, 0.0504 ms; "
        "the goal allows 0.00504 ms (10%)"
    ]
    page = (tmp_path / "told" / "decision" / "report.html").read_text()
    assert "Worse than it used to be: the winner tflite is 0.0296 ms worse" in page
    assert page.count('class="picture trend"') == 6
    refused = run(tmp_path / "refused", served, slow, goals=["latency max_regression 10%"])
    assert not refused["blessed"]
    assert (
        past.read_runs(served, 10)[-1]["winner"]["metrics"]["latency"] == 0.08
    )  # the run that was told of; not this one
    assert len(list((served / "history").glob("*.json"))) == 5


@pytest.mark.parametrize(
    ("accuracy", "flagged"),
    [(0.968, False), (0.955, True)],
    ids=["within the doubt of 1,000 examples", "beyond it"],
)
def test_quality_on_other_data_is_worse_only_beyond_doubt(tmp_path, accuracy, flagged):
    served = runs(tmp_path, 3)  # the median is 98.1 %, a percent of it is allowed, the interval reaches 0.8 points up
    decision = run(tmp_path / "new", served, replace(LITE, accuracy=accuracy), goals=[])
    assert any("accuracy" in said for said in decision["history"]["regressions"]) == flagged


def test_the_median_of_runs_that_differ_is_doubted():
    one = {"winner": {"metrics": {}}, "conditions": {"quality": 0, "speed": 0}}
    kept = [one | {"winner": {"metrics": {"size": size}}} for size in (100.0, 130.0, 90.0, 110.0)]
    found = past.RunHistory(kept, {"quality": 0, "speed": 0}).reference("winner", "size")
    assert (found.value, found.runs) == (105.0, 4)  # half of them lie within 10 of it
    assert found.half_interval == pytest.approx(1.96 * 1.2533 * 1.4826 * 10 / 2)
    assert past.RunHistory(kept[:2], None).reference("winner", "size") is None


def test_a_worse_parent_is_told_though_the_winner_is_as_ever(tmp_path):
    decision = run(tmp_path / "new", runs(tmp_path, 3), parent=replace(TRAINED, size=400_000))
    (said,) = decision["history"]["regressions"]
    assert said.startswith("the parent trained is 214 kB worse in size")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_before_three_runs_nothing_is_a_regression(tmp_path, count):
    slow = replace(LITE, p50=0.5)
    decision = run(tmp_path / "new", runs(tmp_path, count), slow, goals=["latency max_regression 1%"])
    assert decision["history"]["regressions"] == []
    assert len(decision["history"]["runs"]) == count


@pytest.mark.parametrize(
    "other", [{"threads": 2}, {"batch_sizes": [1, 64]}, {"environment": {"cpu": {"model": "another"}}}], ids=str
)
def test_speed_is_not_compared_with_another_machine_but_size_is(tmp_path, other):
    served = runs(tmp_path, 3, measured=other)
    decision = run(tmp_path / "new", served, replace(LITE, p50=0.5, size=90_000))
    assert [said.split(" in ")[1].split()[0] for said in decision["history"]["regressions"]] == ["size"]
    latency = next(trend for trend in decision["history"]["trends"] if trend["metric"] == "latency")
    assert latency["earlier"] == [None, None, None]


def test_an_unblessed_run_is_kept_and_not_held_against_others(tmp_path):
    served = runs(tmp_path, 2)
    run(tmp_path / "bad", served, goals=["accuracy threshold 0.999"])
    assert len(list((served / "history").glob("*.json"))) == 3
    assert [one["version"] for one in past.read_runs(served, 10)] == [1, 2]


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_a_damaged_file_is_named(tmp_path, content):
    served = runs(tmp_path, 1)
    (served / "history" / "x.json").write_text(content)
    with pytest.raises(ComponentError, match=re.escape("x.json")):
        run(tmp_path / "new", served)


def test_an_object_store_is_refused(tmp_path):
    with pytest.raises(ComponentError, match="mounted"):
        run(tmp_path / "new", "s3://bucket/served")


def test_steps_that_keep_the_same_run_at_once_keep_it_once_and_later_ones_leave_it(tmp_path):
    runs(tmp_path, 1)
    decision, served = Decision(tmp_path / "run 0" / "decision"), tmp_path / "served elsewhere"

    def keep(version: int) -> bytes:
        return past.write_run(served, decision, {"version": version, "pushed": True, "fallback": False}).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(keep, range(24)))
    assert found == {keep(99)}
    assert len(list((served / "history").iterdir())) == 1


@pytest.mark.parametrize(("pushed", "fallback"), [(False, False), (True, True)])
def test_what_could_not_be_served_is_no_blessed_run(tmp_path, pushed, fallback):
    runs(tmp_path, 1)
    facts = {"version": None, "pushed": pushed, "fallback": fallback}
    file = past.write_run(tmp_path / "elsewhere", Decision(tmp_path / "run 0" / "decision"), facts)
    assert file.is_file()
    assert past.read_runs(tmp_path / "elsewhere", 10) == []
