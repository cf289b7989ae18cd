"""Test what a run says about its cost, and about what its push saves in a month."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components.test_select_model_history import LITE, run
from tfopt.artifacts import Decision, Pushed
from tfopt.cli.main import main
from tfopt.dag import tracing
from tfopt.dag.outcome import Outcome
from tfopt.model_store.run_history import THROUGHPUT, ModelRecord, read_all_runs
from tfopt.run_records.run_cost import RunCost, compute_cost, describe_cost

BUSY = 2.5  # nodes of the baseline that the rate of requests needs
HOURS_PER_MONTH = 730.5


def cost_of(
    folder: Path,
    *,
    rate: float | None = None,
    price: float | None = 0.5,
    machine: float | None = None,
    elapsed: float = 1e6,
) -> RunCost | None:
    """Return the cost of a run of an hour that wrote a decision and a push into a folder."""
    outcomes = {
        "train": Outcome(False, 3000.0, {}),
        "evaluate": Outcome(True, 500.0, {}),  # reused
        "select_model": Outcome(False, 400.0, {"decision": Decision(folder / "decision")}),
        "push_model": Outcome(False, 200.0, {"pushed": Pushed(folder / "pushed 0")}),
    }
    return compute_cost(tracing.load("optimize"), {"price": price, "rate": rate}, outcomes, elapsed, machine)


def throughput(model: ModelRecord) -> float:
    return model.metrics[THROUGHPUT]


@pytest.fixture
def served(tmp_path) -> Path:
    """A destination with a version that is twice as slow as the one that is pushed after it."""
    run(tmp_path / "first", tmp_path / "served", replace(LITE, p50=0.1, speedup=(4.0, 3.9, 4.1, "faster")))
    run(tmp_path / "second", tmp_path / "served")
    return tmp_path / "served"


def test_a_first_version_is_compared_with_the_baseline(tmp_path, served):
    record = read_all_runs(served)[0]
    rate = BUSY * throughput(record.parent)
    cost = cost_of(tmp_path / "first", rate=rate)
    assert (cost.hours, cost.total) == (1.0, 0.5)  # without the step that was reused
    assert (cost.version, cost.compared_with) == (1, "the baseline trained")
    nodes = -(-rate // throughput(record.winner))
    assert (cost.serving.nodes, cost.serving.baseline_nodes) == (nodes, 3)
    assert cost.serving.saved_per_month == pytest.approx((3 - nodes) * 0.5 * HOURS_PER_MONTH)
    saved_per_day = cost.serving.saved_per_month / (HOURS_PER_MONTH / 24)
    assert cost.paid_after_days == pytest.approx(0.5 / saved_per_day)


def test_a_later_version_is_compared_with_the_one_that_was_served_before(tmp_path, served):
    before, now = read_all_runs(served)
    assert throughput(now.winner) > 1.5 * throughput(before.winner) > 1.5 * throughput(before.parent)
    rate = BUSY * throughput(before.winner)
    cost = cost_of(tmp_path / "second", rate=rate)
    assert (cost.version, cost.compared_with, cost.serving.baseline_nodes) == (2, "version 1", 3)
    text = describe_cost(cost)
    assert text[0] == "cost of this run: 0.5 (1 h 0 min of steps that were not reused, 0.5 an hour)"
    assert text[1].startswith("version 2 saves 365.2 in a month, compared with version 1: 2 nodes instead of 3 at ")
    assert text[2] == "this run has paid for itself after 1 h 0 min"  # a node less for each hour


def test_a_slower_version_costs_more(tmp_path):
    for name, lite in (("fast", LITE), ("slow", replace(LITE, p50=0.1, speedup=(4.0, 3.9, 4.1, "faster")))):
        run(tmp_path / name, tmp_path / "served", lite)
    before, now = read_all_runs(tmp_path / "served")
    cost = cost_of(tmp_path / "slow", rate=throughput(before.winner))
    nodes = -(-throughput(before.winner) // throughput(now.winner))
    assert (cost.serving.baseline_nodes, cost.serving.nodes) == (1, nodes)
    assert cost.paid_after_days is None and cost.serving.saved_per_month < 0
    assert " more in a month, compared with version 1: " in describe_cost(cost)[-1]
    idle = cost_of(tmp_path / "slow", rate=1.0)
    assert describe_cost(idle)[-1].startswith(
        "version 2 saves nothing, compared with version 1: 1 node instead of 1 at 1 "
    )


def test_a_version_that_was_measured_on_another_machine_is_not_compared_with(tmp_path, served):
    file = next(file for file in served.glob("history/*.json") if json.loads(file.read_text())["version"] == 1)
    record = json.loads(file.read_text())
    record["conditions"]["speed"]["cpu"] = "another"
    file.write_text(json.dumps(record))
    assert cost_of(tmp_path / "second", rate=100.0).compared_with == "the baseline trained"


def test_nothing_is_said_about_savings_that_are_unknown(tmp_path, served):
    folder = tmp_path / "second"
    assert cost_of(folder, price=None, rate=100.0) is None
    assert cost_of(folder) == RunCost(0.5, 1.0, 0.5)  # without a rate
    pushed = json.loads((folder / "pushed 0" / "pushed.json").read_text())
    for change in ({"canary": 10}, {"previous": 2}, {"pushed": False}):  # 2 was the newest version already
        (folder / "pushed 0" / "pushed.json").write_text(json.dumps(pushed | change))
        assert cost_of(folder, rate=100.0) == RunCost(0.5, 1.0, 0.5), change
    (folder / "pushed 0" / "pushed.json").write_text(json.dumps(pushed))
    (served / "history" / "damaged.json").write_text("{")
    cost = cost_of(folder, rate=100.0)
    assert cost.serving is None and "damaged.json" in describe_cost(cost)[1]


def test_the_reason_of_an_unknown_saving_is_printed(tmp_path, served):
    for file in served.glob("history/*.json"):
        record = json.loads(file.read_text())
        record["winner"]["disturbed"] = [THROUGHPUT]
        file.write_text(json.dumps(record))
    cost = cost_of(tmp_path / "second", rate=100.0)
    reason = "the speed of tflite and the baseline trained was not measured, or was disturbed"
    assert describe_cost(cost)[1:] == [f"what the push saves is unknown: {reason}"]


def test_steps_side_by_side_cost_no_more_than_the_run_took(tmp_path, served):
    assert cost_of(tmp_path / "second", elapsed=1800.0).total == 0.25


def test_the_price_of_this_machine_is_not_that_of_a_server(tmp_path, served):
    rate = BUSY * throughput(read_all_runs(served)[0].winner)
    cost = cost_of(tmp_path / "second", rate=rate, machine=8.0)
    assert (cost.total, cost.serving.saved_per_month) == (8.0, pytest.approx(0.5 * HOURS_PER_MONTH))


def test_a_command_with_a_price_prints_and_records_the_cost(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("data.txt").write_text("one\n")
    Path("counting.py").write_text(
        "from tests.toys import count\nfrom tfopt import Input, Steps\nfrom tfopt.artifacts import Files\n\n\n"
        'def counting(steps: Steps, data: Input[Files]) -> None:\n    """Count."""\n    steps(count, data=data)\n'
    )
    words = ["run", "counting.py", "--set", "data=data.txt", "--engine", "process", "--root", "runs/a"]
    assert main(words) == 0
    assert "cost" not in capsys.readouterr().out
    Path("run.yaml").write_text("price: 3600000\n")
    assert main([*words, "-f", "run.yaml"]) == 0  # reused, except for tests that are not cached
    printed = capsys.readouterr().out
    assert main(["runs", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["cost"]["price"] == 3_600_000
    assert f"cost of this run: {describe_cost(RunCost(**record['cost']))[0].split(': ')[1]}" in printed
    assert main(["runs"]) == 0
    assert "  counting  succeeded; cost " in capsys.readouterr().out
    for command in ("run", "plan"):
        assert main([command, *words[1:], "--price", "0"]) == 1
    error = capsys.readouterr().err
    assert all(part in error for part in ("received: --price 0", "a number above 0", "write for example --price"))
