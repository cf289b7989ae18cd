"""Test that intervals of several looks at one measurement hold their level together, on simulated times."""

import numpy as np
import pytest

from tests.measurement.test_speedup import EVERY_NOISE
from tfopt.measurement.interim_looks import FUTILITY, SPREAD_ERROR, LookSchedule, standard_error
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


@EVERY_NOISE
def test_measurements_that_stop_as_futile_would_rarely_have_been_decided(noise):
    """Continue all measurements to the end, with true differences from none to one that is nearly always found."""
    rng, schedule = np.random.default_rng(0), LookSchedule.of(ROUNDS)
    _, *ends = hodges_lehmann(noise(rng, 5 * ROUNDS) - noise(rng, 5 * ROUNDS), SPREAD_ERROR)
    unit = standard_error(*np.exp(ends)) * np.sqrt(5)  # of a whole measurement
    outcomes = []
    for difference in np.linspace(0, 5 * unit, 400):
        values = difference + noise(rng, ROUNDS) - noise(rng, ROUNDS)
        looks = [(look, *hodges_lehmann(values[:look], error)) for look, error in schedule.errors.items()]
        decided = next((look for look, _, low, high in looks if low > 0 or high < 0), None)
        futile = next((look for look, *_ in looks[:-1] if is_futile(schedule, values[:look])), ROUNDS)
        outcomes.append((futile < (decided or ROUNDS), decided is not None))
    stops, decisions = (sum(column) for column in zip(*outcomes, strict=True))
    lost = outcomes.count((True, True))
    assert stops > 60  # otherwise it saves nothing
    assert lost <= 2 * FUTILITY * stops  # there are several looks
    assert lost <= 0.1 * decisions


def is_futile(schedule: LookSchedule, values: np.ndarray) -> bool:
    estimate, *ends = hodges_lehmann(values, SPREAD_ERROR)
    error = standard_error(*np.exp(ends))
    return schedule.is_futile(len(values), estimate, error, 0.0)


def test_a_standard_error_is_that_of_the_mean_for_normal_values():
    values = np.random.default_rng(0).normal(0.3, 0.02, 300)
    _, low, high = hodges_lehmann(values, SPREAD_ERROR)
    assert standard_error(np.exp(low), np.exp(high)) == pytest.approx(0.02 / np.sqrt(300), rel=0.1)


def test_more_noise_a_smaller_difference_and_a_larger_margin_make_a_measurement_futile():
    schedule = LookSchedule.of(60)
    clear = {"difference": 0.05, "standard_error": 0.01, "margin": 0.0}
    assert not schedule.is_futile(16, **clear)
    assert not schedule.is_futile(16, **clear | {"difference": -0.05})
    assert schedule.is_futile(16, **clear | {"difference": 0.001})
    assert not schedule.is_futile(16, **clear | {"standard_error": 0.06})  # it may still change
    assert not schedule.is_futile(16, **clear | {"difference": 0.01})
    assert schedule.is_futile(16, **clear | {"difference": 0.01, "standard_error": 0.06})
    assert schedule.is_futile(16, **clear | {"margin": 0.06})
