"""Test how many examples a goal asks for."""

import pytest

from tfopt.measurement.confidence_bounds import share_difference_interval, simultaneous_error
from tfopt.measurement.goals import examples_needed, read_goals
from tfopt.measurement.model_measurements import Estimate, from_quality
from tfopt.reports.evaluation_report import Metric


def measured(rising: int, falling: int, records: int, candidates: int = 1, *, states_unseen: bool = True) -> Estimate:
    low, high = share_difference_interval(rising, falling, records, simultaneous_error(candidates))
    return Estimate((rising - falling) / records, low, high, 1 / (records + 1) if states_unseen else None)


def test_the_unseen_record_weighs_less_with_more_examples_than_the_sample_does():
    needed = examples_needed(measured(0, 0, 62), -0.01, 62, 1)
    assert 700 < needed < 2000  # 368 if no record ever differs
    assert needed < examples_needed(measured(0, 0, 62, states_unseen=False), -0.01, 62, 1)


def test_more_candidates_need_more_examples():
    few, many = (examples_needed(measured(2, 2, 300, number), -0.01, 300, number) for number in (1, 20))
    assert few < many


def test_a_gain_by_chance_needs_as_many_examples_as_an_equal_model():
    gain, equal = (Estimate(value, value - 0.03, None, 0.001) for value in (0.02, 0.0))
    assert examples_needed(gain, -0.01, 100, 1) == examples_needed(equal, -0.01, 100, 1)
    assert examples_needed(gain, 0.01, 100, 1) == examples_needed(equal, -0.01, 100, 1)  # the goal asks for a gain


@pytest.mark.parametrize("gain", [Estimate(-0.02, -0.03, None, 0.001), Estimate(0.0)])
def test_no_number_of_examples_proves_a_goal_that_is_missed_or_has_no_interval(gain):
    assert examples_needed(gain, -0.01, 100, 1) is None


@pytest.mark.parametrize(
    ("text", "higher", "low", "high"), [("f1 threshold 0.8", True, 0.78, 0.9), ("mae threshold 0.9", False, 0.8, 0.92)]
)
def test_a_threshold_that_is_not_proven_needs_as_many_examples_in_both_directions(text, higher, low, high):
    (goal,) = read_goals([text])
    metric = Metric(0.85, low, high, higher)
    failure = goal.failure(from_quality({goal.metric: metric}, None), proven=True, examples=1000)
    assert failure.endswith("; about 4,000 examples instead of 1,000 could prove it")
