"""Test which runs are skipped: the expected saving on simulated series of runs, and the command `tfopt run`."""

import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.components.test_select_model_history import LITE, run
from tests.costly_runs import PIPELINE, write_drift
from tfopt.cli.main import main
from tfopt.model_store.run_history import CAPACITY, THROUGHPUT, ModelRecord, RunRecord, read_all_runs
from tfopt.model_store.withdrawals import Change
from tfopt.reports.decision_report import MeasurementConditions, QualityConditions, SpeedConditions
from tfopt.run_records.unprofitable_runs import FEWEST_RUNS, SKIPPED, ExpectedSaving, estimate_saving

PRICE, RATE, NODE = 0.5, 1000.0, 0.5 * 730.5  # of a node for an hour and for a month
HERE = MeasurementConditions(QualityConditions("classification", "label", "eval"), SpeedConditions("a cpu", 1, [1]))


def record(number: int, nodes: float | None, **changes) -> RunRecord:
    """Return the record of a run whose version needs so many nodes at `RATE`; of one without a push for None."""
    metrics = {CAPACITY: RATE / nodes} if nodes else {}
    model = ModelRecord("tflite", "", "tflite", metrics, **{"disturbed": changes.pop("disturbed", [])})
    time = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)).isoformat()
    version = number + 1 if nodes else None
    conditions = changes.pop("conditions", HERE)
    return RunRecord(str(number), time, nodes is not None, version, conditions, model, model)


def history(*nodes: float | None) -> list[RunRecord]:
    return [record(number, each) for number, each in enumerate(nodes)]


def saving(*nodes: float | None) -> float | None:
    """Return the expected saving of the next run, in nodes."""
    value = estimate_saving(history(*nodes), {}, PRICE, RATE).value
    return None if value is None else round(value / NODE, 6)


def test_no_run_can_save_more_than_all_nodes_but_one():
    assert saving(0.8) == 0
    assert "needs 1 node, and no model needs fewer" in estimate_saving(history(0.8), {}, PRICE, RATE).reason
    assert saving(3) == 2  # too few runs for less
    assert saving(*[3] * FEWEST_RUNS) == 2
    assert saving(9, 8, 7, 6, 5, 4, 3, 2) == 1


def test_an_expected_saving_is_the_mean_of_the_runs_and_of_one_more_that_saves_a_node():
    assert saving(3, 3, 3, 3, 3, 3) == round(1 / 6, 6)
    assert saving(3, None, None, 3, None, None, None) == round(1 / 7, 6)  # runs without a push count, too
    assert saving(9, 8, 7, 6, 5, 4) == 1  # what they changed
    assert saving(3, 2, 3, 2, 3, 2) == round(2 / 6, 6)  # the first push was slow by chance
    assert saving(2, 2, 2, 2, 2, 3) == 1  # the served version is slow by chance
    reason = estimate_saving(history(3, 3, 3, None, 3, 2), {}, PRICE, RATE).reason
    assert (
        reason
        == "version 6 needs 2 nodes; 5 runs changed the cost from 1,096 to 730.5 in a month, 1 of them without a push"
    )


def test_nothing_is_expected_where_the_history_says_nothing():
    def reason(runs: list[RunRecord], changes=None) -> str:
        expected = estimate_saving(runs, changes or {}, PRICE, RATE)
        assert expected == ExpectedSaving(None, expected.reason)
        return expected.reason

    assert "no run history" in reason([])
    assert "no run history" in reason(history(None, None))
    taken_back = {6: [Change(6, "withdrawn", "", "2026-11-27T10:00:00+00:00", "ada", "slow")]}
    assert "version 6 was withdrawn, or is a canary" in reason(history(*[3] * 6), taken_back)
    assert "disturbed" in reason([*history(*[3] * 6), record(6, 2, disturbed=[CAPACITY])])
    other = MeasurementConditions(HERE.quality, SpeedConditions("another cpu", 1, [1]))
    elsewhere = [*(record(number, 9, conditions=other) for number in range(6)), record(6, 3)]
    assert estimate_saving(elsewhere, {}, PRICE, RATE).value == 2 * NODE  # as after the first push


Series = Callable[[random.Random, float], float | None]  # the nodes of the next version, after those of the last one
USELESS: dict[str, Series] = {
    "the same cost": lambda draw, nodes: draw.uniform(2.2, 2.9),
    "no push": lambda draw, nodes: None,
    "now better, now worse": lambda draw, nodes: draw.choice([2.5, 3.5]),
}
USEFUL: dict[str, Series] = {
    "a node in one of ten runs": lambda draw, nodes: nodes - (draw.random() < 0.1),
    "a node in one of ten runs, without other pushes": lambda draw, nodes: nodes - 1 if draw.random() < 0.1 else None,
    "faster each time": lambda draw, nodes: nodes - draw.uniform(0.05, 0.15),
}


def simulate(series: Series, first: float, cost: float, most: int, seed: int) -> list[RunRecord]:
    """Return the runs of a series until one is skipped, at most so many; a run costs a share of a node in a month."""
    draw, nodes = random.Random(seed), first
    runs = [record(0, nodes)]
    for number in range(1, most):
        expected = estimate_saving(runs, {}, PRICE, RATE).value
        if expected is not None and expected < cost * NODE:
            break
        pushed = series(draw, nodes)
        nodes = pushed or nodes
        runs.append(record(number, pushed))
    return runs


@pytest.mark.parametrize("series", USELESS)
def test_runs_that_save_nothing_end_when_they_have_cost_a_node_for_a_month(series):
    cost = 1 / 25
    for seed in range(10):
        runs = simulate(USELESS[series], 3.0, cost, 250, seed)
        assert len(runs) < 250
        if series != "now better, now worse":
            assert (len(runs) - 1) * cost <= 1
        else:
            assert runs[-1].winner.metrics[CAPACITY] == RATE / 2.5  # it ends with the better version


@pytest.mark.parametrize("series", USEFUL)
def test_runs_that_save_five_times_their_cost_go_on(series):
    ended = [seed for seed in range(20) if len(simulate(USEFUL[series], 30.0, 1 / 50, 100, seed)) < 100]
    assert len(ended) <= 1  # 0.7 % of such series, by Lundberg's equation r (1 - exp(-R)) = R with r = 5


@pytest.fixture
def words(tmp_path, monkeypatch) -> list[str]:
    """Return a command whose first step ran once, in a folder with a destination that has a version."""
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "first", tmp_path / "served", LITE)
    Path("data.txt").write_text("one\n")
    Path("counting.py").write_text(PIPELINE)
    values = {
        "data": "data.txt",
        "model": "first/models/1 tflite",
        "blessing": "first/blessing",
        "destination": "served",
        "price": 0.5,
        "rate": 10,
    }
    pairs = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    words = ["run", "counting.py", *pairs, "--engine", "process", "--root", "run"]
    assert main(words) == 1 and "data.txt" in Path("run/run.json").read_text()
    return [*words, "--set", "scale=2"]  # the first step then runs again


def skipping(**changes: str) -> list[str]:
    """Return the option with a result of check_drift about version 1."""
    return ["--skip-unprofitable", str(write_drift(Path(), **changes))]


def test_a_run_that_cannot_save_its_cost_is_skipped_before_the_first_step(words, capsys):
    before = Path("run/run.json").read_bytes()
    capsys.readouterr()
    for _ in range(2):
        assert main([*words, *skipping()]) == SKIPPED == 8
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith("skipped: the expected cost of this run is ")
        assert line.endswith(
            "expected saving 0 in a month at 10 requests per second: version 1 needs 1 node, and no model needs fewer"
        )
    assert Path("run/run.json").read_bytes() == before
    assert main([*words, *skipping(), "--json"]) == SKIPPED
    assert json.loads(capsys.readouterr().out) == {"skipped": line}
    assert main(["plan", *words[1:], *skipping()]) == 0
    assert "skipped: the expected cost" in capsys.readouterr().out.replace("\n", " ")
    Path("run.yaml").write_text("skip_unprofitable: drift\n")
    assert main([*words, "-f", "run.yaml"]) == SKIPPED


def test_a_run_for_the_quality_of_the_model_is_never_skipped(words, capsys):
    old = "the result of check_drift is older than 7 days"
    for changes, reason in (
        ({"decision": "retrain"}, "check_drift decided retrain"),
        ({"decision": "recalibrate"}, "check_drift decided recalibrate"),
        ({"digest": "of another model"}, "check_drift compared another model than version 1"),
        ({"time": "2026-01-01T00:00:00+00:00"}, old),
        ({"time": ""}, old),
    ):
        capsys.readouterr()
        assert main(["plan", *words[1:], *skipping(**changes)]) == 0
        assert f"not skipped: {reason}" in capsys.readouterr().out.replace("\n", " ")
    later = {"decision": "retrain", "time": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    for changes, skipped in (({"time": "2026-01-01T00:00:00+00:00"}, True), ({"digest": "another"}, True), ({}, False)):
        write_drift(Path(), name="of another day", **later | changes)
        assert main(["plan", *words[1:], *skipping()]) == 0
        printed = capsys.readouterr().out.replace("\n", " ")
        assert ("not skipped: check_drift decided retrain" not in printed) is skipped
    assert main([*words, *skipping(decision="retrain")]) == 1  # it ran, and its second step failed
    error = capsys.readouterr().err
    assert "not skipped: check_drift decided retrain" in error and "expected: something else" in error


def test_a_run_that_pays_is_not_skipped(words, capsys):
    throughput = read_all_runs("served")[0].winner.metrics[THROUGHPUT]
    words[words.index("rate=10")] = f"rate={2.5 * throughput}"
    assert main([*words, *skipping()]) == 1
    assert "version 1 needs 3 nodes, 0 runs after the first push, and 5 are needed" in capsys.readouterr().err
    assert main([*words, *skipping()]) == 1  # the first step is reused, and costs nothing
    assert "not skipped: its steps are reused, or there is no earlier time of them" in capsys.readouterr().err


def test_an_option_that_could_not_be_used_is_refused(words, capsys):
    def refusal(*more: str) -> str:
        assert main([*words, *more]) == 1
        error = capsys.readouterr().err
        assert all(part in error for part in ("received:", "expected:", "how to fix:"))
        return error

    assert "no-drift: no such file or folder" in refusal("--skip-unprofitable", "no-drift")
    words[words.index("rate=10")] = "rate=0"
    assert "--skip-unprofitable without rate" in refusal(*skipping())


OPTIMIZE = '''
from tfopt import Group, Input, Steps
from tfopt.artifacts import Examples, SavedModel
from tfopt.pipelines.optimize import Selection, make_candidates, select_and_push


def digits(
    steps: Steps, model: Input[SavedModel], examples: Input[Examples], *, selection: Group[Selection]
) -> dict[str, object]:
    """Optimize a model.

    Args:
        steps: Adds the steps.
        model: A model.
        examples: Its examples.
        selection: Parameters of the selection.
    """
    candidates = make_candidates(steps, model, examples, ("tflite float32",))
    return select_and_push(steps, model, candidates, examples, selection)
'''


def write_requests(images: np.ndarray) -> str:
    Path("requests.jsonl").write_text(
        "\n".join(json.dumps({"instances": [{"image": image.reshape(8, 8, 1).tolist()}]}) for image in images)
    )
    return "requests.jsonl"


@pytest.mark.nightly  # minutes: a real run, its version, and requests to it
def test_a_weekly_run_is_skipped_until_the_requests_drift(digits_model, digits_examples, tmp_path, monkeypatch, capsys):
    from sklearn.datasets import load_digits

    monkeypatch.chdir(tmp_path)
    Path("digits.py").write_text(OPTIMIZE)
    values = {"model": digits_model, "examples": digits_examples, "destination": tmp_path / "served", "rate": 20}
    file = {"pipeline": "digits.py", "engine": "process", "price": 0.5, "skip_unprofitable": "drift"}
    file["values"] = {name: str(value) for name, value in values.items()} | {
        "price": 0.36,
        "max_p99_ms": 10,
        "seconds": 8,
    }
    Path("first.yaml").write_text(json.dumps({key: value for key, value in file.items() if key != "skip_unprofitable"}))
    Path("weekly.yaml").write_text(json.dumps(file))
    assert main(["run", "-f", "first.yaml"]) == 0
    (pushed,) = read_all_runs("served")
    if not any(map(pushed.pushed_model.undisturbed, (CAPACITY, THROUGHPUT))):
        pytest.skip("other processes disturbed the measurement of the speed")

    def check_drift(images: np.ndarray) -> int:
        shutil.rmtree("drift", ignore_errors=True)
        words = ["--model", "served/1", "--reference", str(digits_examples), "--recording", write_requests(images)]
        return main(["check_drift", *words, "--drift", "drift", "--detailed-exitcode"])

    images, labels = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(images))[::-1]
    assert check_drift(images[rows[:397]]) == 0
    again = ["run", "-f", "weekly.yaml", "--set", "seconds=9"]  # benchmark and what follows run again
    capsys.readouterr()
    assert main(again) == SKIPPED
    assert "version 1 needs 1 node, and no model needs fewer" in capsys.readouterr().out
    assert check_drift(images[(labels == 3) | (np.arange(len(labels)) % 6 == 0)]) == 7
    assert main(["plan", *again[1:]]) == 0
    assert "not skipped: check_drift decided retrain" in capsys.readouterr().out.replace("\n", " ")
