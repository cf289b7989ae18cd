"""Test the run history: records of runs, regressions against recent blessed runs, and goals on them."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import TRAINED, Row, make_models, write_reports
from tfopt.artifacts import Blessing, Decision
from tfopt.components.push_model.component import push_model
from tfopt.components.select_model.component import select_model
from tfopt.errors import ComponentError
from tfopt.model_store.run_history import ModelRecord, RunHistory, RunRecord, is_comparable, read_runs, write_run
from tfopt.reports.benchmark_report import LoadSettings
from tfopt.reports.decision_report import MeasurementConditions, QualityConditions, SpeedConditions
from tfopt.reports.pushed_report import PushedReport

LITE = Row("tflite", accuracy=0.98, p50=0.05, speedup=(8.0, 7.8, 8.2, "faster"), size=45_000)


def run(folder: Path, served: Path, lite: Row = LITE, parent: Row = TRAINED, *, measured=None, **parameters) -> dict:
    """Select, push and record a run on these rows; return the decision."""
    models = make_models([parent, lite], folder / "models")
    for model in models:  # each run has other models
        for file in (model / "Format-Serving").iterdir():
            file.write_text(f"{folder.name} {model.name}")
    evaluation, benchmark = write_reports([parent, lite], models, folder, samples=False)
    benchmark.write(benchmark.read() | (measured or {}))
    outputs = select_model(
        models[0], models[1:], evaluation, benchmark, folder / "selected", folder / "decision", folder / "blessing",
        destination=str(served), **parameters,
    )  # fmt: skip
    push(outputs, folder, served)
    return Decision(folder / "decision").read()


def push(outputs: dict, folder: Path, served: Path) -> dict:
    target = folder / f"pushed {len(list(folder.glob('pushed*')))}"
    push_model(outputs["selected"], outputs["blessing"], target, decision=outputs["decision"], destination=str(served))
    return json.loads((target / "pushed.json").read_text())


def runs(tmp_path: Path, count: int) -> Path:
    served = tmp_path / "served"
    for number in range(count):
        lite = replace(LITE, accuracy=0.98 + 0.001 * (number % 3), p50=0.05 + 0.0004 * (number % 3))
        run(tmp_path / f"run {number}", served, lite)
    return served


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Path:
    return runs(tmp_path_factory.mktemp("earlier"), 3)


@pytest.fixture
def three_runs(earlier, tmp_path) -> Path:
    """Return the destination of three runs, a copy for this test."""
    return shutil.copytree(earlier, tmp_path / "served", symlinks=True)


def test_each_run_is_recorded_once_with_its_models_and_version(tmp_path):
    served = runs(tmp_path, 2)
    records = read_runs(served, 10)
    assert [(record.version, record.winner.name, record.parent.name) for record in records] == [
        (1, "tflite", "trained"),
        (2, "tflite", "trained"),
    ]
    folder = tmp_path / "run 1"
    outputs = {
        "selected": folder / "selected",
        "blessing": Blessing(folder / "blessing"),
        "decision": folder / "decision",
    }
    again = push(outputs, folder, served)  # a retried step
    assert again["history"] == str(served / "history" / Path(again["history"]).name)
    assert read_runs(served, 10) == records
    assert not list((served / "history").glob(".*"))
    assert [record.version for record in read_runs(served, 1)] == [2]


def test_a_clock_that_was_set_back_does_not_make_the_last_runs_old(three_runs, tmp_path):
    newest = read_runs(three_runs, 1)[0]
    (file,) = [file for file in (three_runs / "history").iterdir() if newest.decision in file.read_text()]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"time": "2001-01-02T03:04:05.000006+00:00"}))
    assert [record.version for record in read_runs(three_runs, 2)] == [2, 3]


def test_a_run_like_the_earlier_ones_has_no_regression(three_runs, tmp_path):
    decision = run(tmp_path / "new", three_runs)
    assert decision["blessed"]
    assert decision["history"]["regressions"] == []
    assert [trend["metric"] for trend in decision["history"]["trends"]] == [
        "accuracy", "accuracy", "latency", "latency", "size", "size",
    ]  # fmt: skip
    assert decision["history"]["trends"][0]["earlier"] == pytest.approx([0.98, 0.981, 0.982])
    page = (tmp_path / "new" / "decision" / "report.html").read_text()
    assert "no regression" in page and "runs to compare with" not in page


def test_a_regression_is_reported_and_prevents_the_blessing_only_as_a_goal(three_runs, tmp_path):
    served = three_runs
    slow = replace(LITE, p50=0.08, speedup=(5.0, 4.9, 5.1, "faster"))
    reported = run(tmp_path / "reported", served, slow)
    assert reported["blessed"]
    assert reported["history"]["regressions"] == [
        "the selected model tflite is 0.0296 ms worse in latency against the median of the last 3 blessed runs, "
        "0.0504 ms; the goal allows 0.00504 ms (10%)"
    ]
    page = (tmp_path / "reported" / "decision" / "report.html").read_text()
    assert "Regression: the selected model tflite is 0.0296 ms worse" in page
    assert page.count('class="picture trend ') == 6
    refused = run(tmp_path / "refused", served, slow, goals=["latency max_regression 10%"])
    assert not refused["blessed"]
    assert read_runs(served, 10)[-1].winner.metrics["latency"] == 0.08  # the blessed one of these two runs
    assert len(list((served / "history").glob("*.json"))) == 5


@pytest.mark.parametrize(
    ("accuracy", "flagged"),
    [(0.968, False), (0.955, True)],
    ids=["within the interval of 1,000 examples", "outside"],
)
def test_quality_on_other_data_regresses_only_significantly(three_runs, tmp_path, accuracy, flagged):
    # The median is 98.1 %, a percent of it is allowed, the interval reaches 0.8 points up.
    decision = run(tmp_path / "new", three_runs, replace(LITE, accuracy=accuracy), goals=[])
    assert any("accuracy" in text for text in decision["history"]["regressions"]) == flagged


def test_the_median_of_earlier_runs_has_an_interval():
    conditions = MeasurementConditions(QualityConditions("task", "label", "eval"), SpeedConditions("cpu", 1, [1]))
    records = [
        RunRecord("", "", True, 1, conditions, *(ModelRecord("m", "d", "tflite", {"size": size}) for _ in range(2)))
        for size in (100.0, 130.0, 90.0, 110.0)
    ]
    median = RunHistory(records, conditions).reference("winner", "size")
    assert (median.value, median.runs) == (105.0, 4)  # half of the values are within 10 of it
    assert median.half_interval == pytest.approx(1.96 * 1.2533 * 1.4826 * 10 / 2)
    assert RunHistory(records[:2], None).reference("winner", "size") is None


def test_a_regression_of_the_baseline_is_reported_too(three_runs, tmp_path):
    decision = run(tmp_path / "new", three_runs, parent=replace(TRAINED, size=400_000))
    (regression,) = decision["history"]["regressions"]
    assert regression.startswith("the baseline trained is 214 kB worse in size")


@pytest.mark.parametrize("count", [0, 2])
def test_fewer_than_three_runs_report_no_regression(tmp_path, count):
    slow = replace(LITE, p50=0.5)
    decision = run(tmp_path / "new", runs(tmp_path, count), slow, goals=["latency max_regression 1%"])
    assert decision["history"]["regressions"] == []
    assert len(decision["history"]["runs"]) == count


@pytest.mark.parametrize(
    "other", [{"threads": 2}, {"batch_sizes": [1, 64]}, {"environment": {"cpu": {"model": "another"}}}], ids=str
)
def test_speed_is_not_compared_across_machines_but_size_is(three_runs, tmp_path, other):
    decision = run(tmp_path / "new", three_runs, replace(LITE, p50=0.5, size=90_000), measured=other)
    assert [text.split(" in ")[1].split()[0] for text in decision["history"]["regressions"]] == ["size"]
    latency = next(trend for trend in decision["history"]["trends"] if trend["metric"] == "latency")
    assert latency["earlier"] == [None, None, None]


def test_capacity_is_compared_under_the_same_load_only():
    quality, speed = QualityConditions("task", "label", "eval"), SpeedConditions("cpu", 1, [1])
    one, other = (
        MeasurementConditions(quality, speed, LoadSettings(limit, 300, "poisson", 2, 0.4)) for limit in (20, 5)
    )
    assert is_comparable(one, one, "capacity")
    assert not any(is_comparable(one, other, metric) for metric in ("capacity", "cost", "nodes", "p99_at_rate"))
    assert is_comparable(one, other, "latency")


def test_an_unblessed_run_is_recorded_but_not_compared_with(tmp_path):
    served = runs(tmp_path, 2)
    run(tmp_path / "bad", served, goals=["accuracy threshold 0.999"])
    assert len(list((served / "history").glob("*.json"))) == 3
    assert [record.version for record in read_runs(served, 10)] == [1, 2]


@pytest.mark.parametrize("content", ["{", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("{}", "[]"))])
def test_the_error_for_a_damaged_record_names_the_file(tmp_path, content):
    served = runs(tmp_path, 1)
    (served / "history" / "x.json").write_text(content)
    with pytest.raises(ComponentError, match=re.escape("x.json")):
        run(tmp_path / "new", served)


def pushed_report(version: int | None, *, pushed: bool = True, fallback: bool = False) -> PushedReport:
    """Return a report of a push; only the arguments matter to the run history."""
    return PushedReport(
        pushed=pushed, destination="", version=version, path=None, layout="plain", reason="", previous=None, model="",
        digest="", environment={}, fallback=fallback, blessing="",
    )  # fmt: skip


def test_concurrent_records_of_one_run_write_one_file_that_stays(tmp_path):
    runs(tmp_path, 1)
    decision, served = Decision(tmp_path / "run 0" / "decision"), tmp_path / "served elsewhere"

    def record(version: int) -> bytes:
        return Path(write_run(served, decision, pushed_report(version))).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        contents = set(pool.map(record, range(24)))
    assert contents == {record(99)}
    assert len(list((served / "history").iterdir())) == 1


@pytest.mark.parametrize(("pushed", "fallback"), [(False, False), (True, True)])
def test_a_model_that_was_not_pushed_makes_no_blessed_run(tmp_path, pushed, fallback):
    runs(tmp_path, 1)
    report = pushed_report(None, pushed=pushed, fallback=fallback)
    file = Path(write_run(tmp_path / "elsewhere", Decision(tmp_path / "run 0" / "decision"), report))
    assert file.is_file()
    assert read_runs(tmp_path / "elsewhere", 10) == []


def test_a_record_without_version_has_version_one(tmp_path):
    served = runs(tmp_path, 1)
    (file,) = (served / "history").glob("*.json")
    content = json.loads(file.read_text())
    assert content.pop("schema_version") == 1
    file.write_text(json.dumps(content))
    assert [record.version for record in read_runs(served, 10)] == [1]
    file.write_text(json.dumps(content | {"schema_version": 2}))
    with pytest.raises(ComponentError, match=re.escape(file.name)):
        read_runs(served, 10)
