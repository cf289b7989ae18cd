"""Test what `benchmark` does with rounds that other processes disturb, on simulated times and loads."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.components.test_benchmark_comparison import MIN_EFFECT, SCHEDULE, look_at, measured
from tests.components.test_benchmark_giving_up import FakeProcess
from tfopt.artifacts import Model
from tfopt.components.benchmark import comparison, interleaving, measured_model, worker
from tfopt.components.benchmark.comparison import compare
from tfopt.components.benchmark.interleaving import measure_interleaved
from tfopt.components.benchmark.machine_conditions import OtherCores
from tfopt.components.benchmark.measured_model import MeasuredModel, RoundLoad
from tfopt.components.benchmark.parameters import Settings

# Before a fixture replaces them:
USED_SHARE, MOST_WAITED, LEAST_WAIT = OtherCores.used_share, measured_model.MOST_WAITED, comparison.LEAST_WAIT

__all__ = ["measured"]  # a fixture

QUIET, WAITED, ELSEWHERE = RoundLoad(), RoundLoad(waited=0.4), RoundLoad(elsewhere=0.5)


@pytest.fixture(autouse=True)
def _limits(monkeypatch):
    monkeypatch.setattr(measured_model, "MOST_WAITED", MOST_WAITED)
    monkeypatch.setattr(comparison, "LEAST_WAIT", LEAST_WAIT)


@pytest.mark.parametrize(
    ("load", "is_disturbed"),
    [
        (QUIET, False),
        (RoundLoad(0.04, 0.04, 0.19), False),
        (RoundLoad(waited=0.06), True),
        (RoundLoad(baseline_waited=0.06), True),
        (RoundLoad(elsewhere=0.21), True),
    ],
)
def test_waiting_for_cores_or_busy_other_cores_disturb_a_round(load, is_disturbed):
    assert load.is_disturbed is is_disturbed


@pytest.mark.parametrize("load", [WAITED, ELSEWHERE])
def test_a_model_whose_rounds_are_disturbed_is_unstable_and_continues(measured, load):
    models = measured({"baseline": 1, "fast": 0.1})
    assert look_at(models).find_open() == []
    models[1].loads[1] = [QUIET] * 9 + [load]
    look = look_at(models)
    assert look.speedups["fast"].verdict == "unstable"
    assert look.find_open() == models and look.find_unstable() == [models[1]]


def test_a_few_disturbed_rounds_of_many_only_widen_the_interval(measured):
    models = measured({"baseline": 1, "fast": 0.5}, rounds=60)
    quiet = compare(models[1], models[0], 1, MIN_EFFECT, SCHEDULE)
    models[1].loads[1] = [ELSEWHERE] * 6 + [QUIET] * 54
    for call in models[1].samples[1][:6]:
        call *= 4
    disturbed = compare(models[1], models[0], 1, MIN_EFFECT, SCHEDULE)
    assert disturbed.verdict == "faster"
    assert disturbed.low < quiet.low < 2 < quiet.high < disturbed.high
    assert disturbed.value == pytest.approx(2, rel=0.01)


def test_short_waits_widen_the_interval_by_as_much(measured):
    models = measured({"baseline": 1, "fast": 0.5})
    quiet = compare(models[1], models[0], 1, MIN_EFFECT, SCHEDULE)
    models[0].loads[1], models[1].loads[1] = [RoundLoad(waited=0.02)] * 10, [RoundLoad(waited=0.03)] * 10
    waited = compare(models[1], models[0], 1, MIN_EFFECT, SCHEDULE)
    assert (waited.low, waited.high) == pytest.approx((quiet.low * 0.98, quiet.high / 0.97))
    models[0].loads[1], models[1].loads[1] = [RoundLoad(waited=0.009)] * 10, [RoundLoad(waited=0.009)] * 10
    assert compare(models[1], models[0], 1, MIN_EFFECT, SCHEDULE) == quiet


def test_a_quiet_repetition_replaces_a_disturbed_round_only():
    model = MeasuredModel("model", Model("a.tflite"), None, is_baseline=False)
    baseline = replace(model, is_baseline=True, samples={}, loads={})
    for number, load, calls in ((0, WAITED, 1), (1, QUIET, 2), (0, ELSEWHERE, 3), (0, QUIET, 4), (1, QUIET, 5)):
        for each in (model, baseline):
            each.record(1, number, np.array([calls]), None if each.is_baseline else np.array([10 * calls]), load)
    assert [calls.tolist() for calls in model.samples[1]] == [[4], [2]]
    assert [calls.tolist() for calls in model.baseline_samples[1]] == [[40], [20]]
    assert model.loads[1] == [QUIET, QUIET]
    assert [calls.tolist() for calls in baseline.samples[1]] == [[4], [2, 5]]  # of several groups in a round


@pytest.mark.parametrize(
    ("busy_rounds", "verdict", "repeated"), [(0, "faster", 0), (2, "faster", 2), (99, "unstable", 99)]
)
def test_disturbed_rounds_are_repeated_while_time_is_left(tmp_path, monkeypatch, busy_rounds, verdict, repeated):
    """Simulate a machine whose other cores are busy in the first rounds."""
    (tmp_path / "a.tflite").touch()
    clock, shares = [0.0], []

    def used_share(cores, since):
        clock[0] += 1.0
        shares.append(0.9 if len(shares) < busy_rounds else 0.0)
        return shares[-1]

    monkeypatch.setattr(OtherCores, "used_share", used_share)
    monkeypatch.setattr(interleaving.time, "monotonic", lambda: clock[0])
    settings = Settings(batch_sizes=("1",), seconds=10.0, rounds=8)
    models = [
        MeasuredModel(name, Model(tmp_path / "a.tflite"), FakeProcess({1: seconds}), is_baseline=name == "a")
        for name, seconds in (("a", 0.02), ("b", 0.01))
    ]
    schedule = measure_interleaved(models, settings, lambda inputs: "inputs")
    assert compare(models[1], models[0], 1, MIN_EFFECT, schedule).verdict == verdict
    assert [len(model.samples[1]) for model in models] == [8, 8]
    budget = int(interleaving.OVERTIME * settings.seconds * len(models))
    assert len(shares) == min(8 + repeated, budget)


def test_the_load_of_other_cores_is_read_without_the_cores_of_the_models(monkeypatch):
    stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 {} 0 0 {} 0 0 0 0 0 0\ncpu1 500 0 0 0 0 0 0 0 0 0\n"
    contents = iter([stat.format(100, 100), stat.format(130, 170), stat.format(0, 0), stat.format(0, 0)])
    monkeypatch.setattr(worker, "STAT", SimpleNamespace(read_text=lambda: next(contents)))
    other = OtherCores([1])
    assert USED_SHARE(other, other.seconds()) == pytest.approx(0.3)
    assert USED_SHARE(OtherCores([0, 1]), (0.0, 0.0)) == 0.0
