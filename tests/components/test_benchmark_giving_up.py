"""`benchmark`: what is hopelessly slow is left out at that batch size; made-up calls on both sides of each rule."""

from typing import Any

import numpy as np
import pytest

from tfopt.artifacts import Model
from tfopt.components.benchmark.interleaving import Plan, measure
from tfopt.components.benchmark.measured_model import Contender
from tfopt.processes.rpc import Refused

PLAN = Plan(batch_sizes=[1, 8], threads=1, seconds=8.0, rounds=20, seed=0)  # 4 s each: 15 calls of 0.267 s
USUAL = {1: 0.06, 8: 0.01}  # seconds of the baseline's calls, by batch size


class Steady:
    """Stands in for a model's process: a call takes so many seconds, by batch size, and is not waited for."""

    def __init__(self, calls: dict[int, float], events: list[str] | None = None) -> None:
        self._calls, self._size = calls, 0
        self._events = [] if events is None else events

    def renew(self) -> None:
        self._events.append("begun")

    def end(self) -> None:
        self._events.append("ended")

    def ask(self, what: str, *given: Any) -> Any:
        if what == "prepare":
            if given[0] not in self._calls:
                raise Refused("not for this model")
            self._size = given[0]
        if what == "burst":
            return np.array([int(self._calls[self._size] * 1e9)] * 3), 0.0
        return {"load": {"inputs": {}, "load_seconds": 0.0}, "prepare": {"seconds": 0.0, "not_finite": []}}.get(
            what, {}
        )


def measured(calls: dict[int, float], usual: dict[int, float] = USUAL) -> Contender:
    """What becomes of a candidate with such calls."""
    baseline = Contender("as it was", Model("a"), Steady(usual), is_baseline=True)
    candidate = Contender("other", Model("b"), Steady(calls), is_baseline=False)
    measure([baseline, candidate], PLAN, lambda inputs: "inputs")
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
def test_a_call_five_times_as_long_as_the_baselines_of_which_not_15_fit_is_given_up(calls, sizes):
    found = measured(calls)
    assert list(found.samples) == sizes
    assert len(found.notes) == 2 - len(sizes)
    assert not found.error


def test_each_round_is_a_process_of_its_own_begun_when_all_of_the_last_have_ended():
    events: list[str] = []
    baseline, candidate = (
        Contender(name, Model(name), Steady(USUAL, events), is_baseline=name == "a") for name in ("a", "b")
    )
    measure([baseline, candidate], PLAN, lambda inputs: "inputs")
    assert len(baseline.samples[1]) == len(candidate.samples[8]) == PLAN.rounds
    assert events == ["begun"] * 2 + ["ended", "ended", "begun", "begun"] * PLAN.rounds


def test_what_is_given_up_takes_nobodys_time_and_says_what_it_took():
    found = measured({1: 300.0, 8: 0.01})
    assert found.notes == [
        "batch size 1 is not measured: a call took 3e+02 s as it warmed up, 5000.0 times the baseline's"
    ]
    assert len(found.samples[8]) == PLAN.rounds


def test_with_no_batch_size_left_it_drops_out_and_with_nothing_to_compare_it_stays():
    assert "batch size 8 is not measured: a call took 2 s" in measured({1: 2.0, 8: 2.0}).error
    assert list(measured({1: 2.0, 8: 2.0}, usual={8: 1.0}).samples) == [1, 8]


def test_a_turn_is_never_so_short_that_only_its_first_calls_are_measured():
    assert Plan(batch_sizes=[1, 8], threads=1, seconds=0.5, rounds=60, seed=0).burst == 0.02
    assert Plan(batch_sizes=[1, 8], threads=1, seconds=6.0, rounds=60, seed=0).burst == 6.0 / 2 / 60 / 2
