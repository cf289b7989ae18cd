"""Test `benchmark` with models that do not fit into memory together, on simulated processes."""

from typing import Any

import numpy as np
import pytest

from tfopt.artifacts import Model
from tfopt.components.benchmark import interleaving
from tfopt.components.benchmark.comparison import compare
from tfopt.components.benchmark.interleaving import measure_interleaved
from tfopt.components.benchmark.measured_model import MeasuredModel
from tfopt.components.benchmark.parameters import Settings
from tfopt.measurement.speedup import BETWEEN_RUNS

SETTINGS = Settings(batch_sizes=("1",), seconds=4.0, rounds=12)
BYTES = {"base": 300, "a": 500, "b": 500, "c": 500, "large": 2000}
SPEEDUPS = {"a": 2.0, "b": 1.25, "c": 0.5, "large": 4.0}


class Machine:
    """A machine whose speed changes by several percent from group to group, with the models that are loaded on it."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.sets: list[set[str]] = []  # the models that were loaded at each burst
        self.starts = 0
        self._rng = np.random.default_rng(0)
        self._speed = 1.0

    def start(self, name: str) -> None:
        self.loaded.append(name)
        self.starts += 1
        if set(self.loaded) - {"base"} == {name}:  # the first candidate of a group
            self._speed = float(np.exp(self._rng.normal(0, 0.1)))

    def run(self, name: str) -> int:
        self.sets.append(set(self.loaded))
        return int(1e7 * self._speed / SPEEDUPS.get(name, 1.0))


class SimulatedProcess:
    """The process of one model on the machine."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine, self._name = machine, name

    @property
    def is_running(self) -> bool:
        return self._name in self._machine.loaded

    def renew(self) -> None:
        self._machine.start(self._name)

    def end(self) -> None:
        if self.is_running:
            self._machine.loaded.remove(self._name)

    def call(self, name: str, *arguments: Any) -> Any:
        results: dict[str, Any] = {
            "load": {"inputs": {}, "load_seconds": 0.0, "runtime_memory_bytes": 10_000},
            "prepare": {"seconds": 0.0, "not_finite": []},
            "facts": {"peak_memory_bytes": 10_000 + BYTES[self._name]},
        }
        return (np.full(3, self._machine.run(self._name)), 0.0) if name == "burst" else results.get(name, {})


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return the machine, the models and the schedule of a measurement with at most 1,400 bytes of models."""
    monkeypatch.setattr(interleaving, "GROUP_BYTES", 1400)
    (tmp_path / "model.tflite").touch()
    machine, model = Machine(), Model(tmp_path / "model.tflite")
    models = [MeasuredModel(name, model, SimulatedProcess(machine, name), name == "base") for name in BYTES]
    return machine, models, measure_interleaved(models, SETTINGS, lambda inputs: "inputs")


def test_models_are_loaded_in_groups_that_fit_each_with_the_baseline(measured):
    machine, models, _ = measured
    in_rounds = [names for names in machine.sets if len(names) > 1]
    assert all("base" in names for names in in_rounds)
    assert all(sum(BYTES[name] for name in names) <= 1400 or names == {"base", "large"} for names in in_rounds)
    assert {frozenset(names - {"base"}) for names in in_rounds} >= {frozenset("ab"), frozenset("bc"), frozenset("ac")}
    assert machine.loaded == []
    assert machine.starts == len(BYTES) * (1 + SETTINGS.rounds)  # the baseline once in each round
    assert all(len(model.samples[1]) == SETTINGS.rounds for model in models)


def test_a_model_is_compared_with_the_baselines_turns_of_its_group(measured):
    _, (baseline, *candidates), schedule = measured
    assert np.ptp(np.log(baseline.round_medians(1))) > 0.05
    for model in candidates:
        estimate = compare(model, baseline, 1, 0.005, schedule)
        ratio = SPEEDUPS[model.name]
        bounds = sorted([ratio ** (1 - BETWEEN_RUNS), ratio ** (1 + BETWEEN_RUNS)])
        np.testing.assert_allclose([estimate.low, estimate.high], bounds, rtol=1e-6)
