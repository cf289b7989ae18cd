"""Test that `benchmark` does not measure a model at batch sizes where it is far too slow, with made-up call times."""

from typing import Any

import numpy as np
import pytest

from tfopt.artifacts import Model
from tfopt.components.benchmark.interleaving import measure_interleaved
from tfopt.components.benchmark.measured_model import MeasuredModel
from tfopt.components.benchmark.parameters import Settings
from tfopt.processes.worker_process import CallFailed

SETTINGS = Settings(batch_sizes=("1", "8"), seconds=8.0, rounds=20)  # 4 s for each size: 15 calls of 0.267 s
FIRST_LOOK = 10  # rounds; calls that always take the same time are decided then
USUAL = {1: 0.06, 8: 0.01}  # seconds of the baseline's calls, by batch size


class FakeProcess:
    """A model process whose calls take a given number of seconds, by batch size, without waiting."""

    def __init__(self, calls: dict[int, float], events: list[str] | None = None, load_seconds: float = 0.0) -> None:
        self._calls, self._size, self._load_seconds = calls, 0, load_seconds
        self._events = [] if events is None else events
        self.is_running = False

    def renew(self) -> None:
        self.is_running = True
        self._events.append("started")

    def end(self) -> None:
        self.is_running = False
        self._events.append("ended")

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "prepare":
            if arguments[0] not in self._calls:
                raise CallFailed("not for this model")
            self._size = arguments[0]
        if name == "burst":
            return np.array([int(self._calls[self._size] * 1e9)] * 3), 0.0
        results = {
            "load": {"inputs": {}, "load_seconds": self._load_seconds},
            "prepare": {"seconds": 0.0, "not_finite": []},
        }
        return results.get(name, {})


@pytest.fixture(autouse=True)
def _model_files(tmp_path, monkeypatch):
    """Create the files of the models, whose format and environment variables are read."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.tflite", "b.tflite"):
        (tmp_path / name).touch()


def measure_candidate(
    calls: dict[int, float], usual: dict[int, float] = USUAL, load_seconds: float = 0.0
) -> MeasuredModel:
    """Measure a candidate with these call times against a baseline, and return it."""
    baseline = MeasuredModel("baseline", Model("a.tflite"), FakeProcess(usual), is_baseline=True)
    process = FakeProcess(calls, load_seconds=load_seconds)
    candidate = MeasuredModel("other", Model("b.tflite"), process, is_baseline=False)
    measure_interleaved([baseline, candidate], SETTINGS, lambda inputs: "inputs")
    assert list(baseline.samples) == list(usual)
    return candidate


@pytest.mark.parametrize(
    ("calls", "sizes"),
    [
        ({1: 0.299, 8: 0.01}, [1, 8]),  # no more than five times the baseline's
        ({1: 0.301, 8: 0.01}, [8]),
        ({1: 0.05, 8: 0.266}, [1, 8]),  # much slower, but 15 fit
        ({1: 0.05, 8: 0.268}, [1]),
    ],
)
def test_a_batch_size_is_dropped_if_calls_take_5_times_the_baselines_and_fewer_than_15_fit(calls, sizes):
    candidate = measure_candidate(calls)
    assert list(candidate.samples) == sizes
    assert sum("is not measured" in note for note in candidate.notes) == 2 - len(sizes)
    assert not candidate.error


@pytest.mark.parametrize(("load_seconds", "sizes"), [(8.1, [8]), (7.9, [1, 8])])  # of 8 seconds
def test_twice_the_baselines_time_is_enough_if_a_start_takes_longer_than_the_seconds_of_the_model(load_seconds, sizes):
    assert list(measure_candidate({1: 0.27, 8: 0.01}, {1: 0.13, 8: 0.01}, load_seconds).samples) == sizes
    assert list(measure_candidate({1: 0.25, 8: 0.01}, {1: 0.13, 8: 0.01}, load_seconds).samples) == [1, 8]


def test_each_round_starts_new_processes_after_all_of_the_previous_round_have_ended():
    events: list[str] = []
    baseline, candidate = (
        MeasuredModel(name, Model(f"{name}.tflite"), FakeProcess(USUAL, events), is_baseline=name == "a")
        for name in ("a", "b")
    )
    measure_interleaved([baseline, candidate], SETTINGS, lambda inputs: "inputs")
    assert len(baseline.samples[1]) == len(candidate.samples[8]) == FIRST_LOOK
    assert events == ["started", "ended"] * 2 + ["started", "started", "ended", "ended"] * FIRST_LOOK


def test_the_second_turn_of_a_round_has_the_reverse_order_of_the_first():
    bursts: list[str] = []

    class Recorded(FakeProcess):
        """A process that records its bursts."""

        def __init__(self, name: str) -> None:
            super().__init__(USUAL)
            self._name = name

        def call(self, name: str, *arguments: Any) -> Any:
            bursts.extend([self._name] * (name == "burst"))
            return super().call(name, *arguments)

    models = [MeasuredModel(name, Model("a.tflite"), Recorded(name), is_baseline=name == "a") for name in "abc"]
    measure_interleaved(models, SETTINGS, lambda inputs: "inputs")
    measured = bursts[-3 * 2 * len(USUAL) * FIRST_LOOK :]  # after the warm-up
    rounds = [measured[start : start + 6] for start in range(0, len(measured), 6)]
    assert all(sorted(names[:3]) == list("abc") and names[3:] == names[2::-1] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 2


def test_a_dropped_batch_size_is_not_measured_and_its_note_reports_the_time_of_a_call():
    candidate = measure_candidate({1: 300.0, 8: 0.01})
    assert candidate.notes == [
        "batch size 1 is not measured: a call took 3e+02 s during warm-up, 5000.0 times the baseline's",
        "batch size 8: decided after 10 of 20 rounds",
    ]
    assert len(candidate.samples[8]) == FIRST_LOOK


@pytest.mark.parametrize(("seconds", "bursts"), [(0.61, 1), (0.59, 3)])  # ten times those of the baseline
def test_a_call_of_ten_times_the_baselines_needs_no_second_burst_to_be_dropped(seconds, bursts):
    events: list[str] = []

    class Recorded(FakeProcess):
        """A process that records its bursts."""

        def call(self, name: str, *arguments: Any) -> Any:
            events.extend(["burst"] * (name == "burst"))
            return super().call(name, *arguments)

    baseline = MeasuredModel("baseline", Model("a.tflite"), FakeProcess({1: 0.06}), is_baseline=True)
    candidate = MeasuredModel("other", Model("b.tflite"), Recorded({1: seconds}), is_baseline=False)
    measure_interleaved([baseline, candidate], SETTINGS, lambda inputs: "inputs")
    assert "batch size 1 is not measured" in candidate.error
    assert len(events) == bursts


def test_a_model_without_batch_sizes_fails_and_one_without_a_baseline_time_is_measured():
    assert "batch size 8 is not measured: a call took 2 s" in measure_candidate({1: 2.0, 8: 2.0}).error
    assert list(measure_candidate({1: 2.0, 8: 2.0}, usual={8: 1.0}).samples) == [1, 8]


def test_a_baseline_that_is_far_slower_than_the_candidate_is_measured():
    assert list(measure_candidate({1: 0.01, 8: 0.01}, {1: 2.0, 8: 2.0}).samples) == [1, 8]


def test_a_turn_is_never_so_short_that_only_its_first_calls_are_measure_candidate():
    assert Settings(batch_sizes=("1", "8"), seconds=0.5, rounds=60).turn_seconds == 0.02
    assert Settings(batch_sizes=("1", "8"), seconds=6.0, rounds=60).turn_seconds == 6.0 / 2 / 60 / 2
