"""Test that intervals of several looks at one measurement hold their level together, on simulated times."""

import numpy as np
import pytest

from tests.measurement.test_speedup import EVERY_NOISE
from tfopt.measurement.interim_looks import LookSchedule
from tfopt.measurement.speedup import LEVEL, hodges_lehmann

EXPERIMENTS, ROUNDS = 400, 60


@pytest.mark.parametrize("rounds", range(8, 200, 7))
def test_the_errors_of_all_looks_add_up_to_that_of_the_level_and_each_can_be_reached(rounds):
    errors = LookSchedule.of(rounds).errors
    assert max(errors) == rounds
    assert sum(errors.values()) == pytest.approx(1 - LEVEL)
    assert all(error >= 2 / 2**look for look, error in errors.items())
    assert errors[rounds] >= (1 - LEVEL) / 2  # a full measurement stays sensitive


@EVERY_NOISE
def test_the_intervals_of_all_looks_cover_the_true_ratio_together(noise):
    rng, schedule = np.random.default_rng(0), LookSchedule.of(ROUNDS)
    missed = 0
    for _ in range(EXPERIMENTS):
        values = noise(rng, ROUNDS) - noise(rng, ROUNDS)
        intervals = [hodges_lehmann(values[:look], error)[1:] for look, error in schedule.errors.items()]
        missed += any(not low <= 0 <= high for low, high in intervals)
    assert missed <= EXPERIMENTS * (1 - LEVEL) + 4  # four standard deviations would be 8


def test_intervals_of_the_full_level_at_each_look_would_not_cover_it_together():
    """Show what the schedule is for: the same experiments with an undivided error."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(EXPERIMENTS):
        values = rng.normal(size=ROUNDS)
        intervals = [hodges_lehmann(values[:look])[1:] for look in range(10, ROUNDS + 1, 5)]
        missed += any(not low <= 0 <= high for low, high in intervals)
    assert missed > EXPERIMENTS * 0.02
