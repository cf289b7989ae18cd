"""Test the statistics of speedups on simulated times: verdicts, and coverage of the interval."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from tfopt.measurement.speedup import FEWEST_ROUNDS, LEVEL, hodges_lehmann, speedup, verdict

EXPERIMENTS = 500
ROUNDS = 30
TIMES = arrays(np.float64, st.integers(FEWEST_ROUNDS, 40), elements=st.floats(1e2, 1e9))
NOISES = {
    "log-normal": lambda rng, count: rng.normal(0, 0.01, count),
    "heavy tails": lambda rng, count: 0.01 * rng.standard_t(2, count),
    "now and then three times slower": lambda rng, count: (
        rng.normal(0, 0.01, count) + np.log(3) * (rng.random(count) < 0.05)
    ),
}
EVERY_NOISE = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


def experiments(noise, slowdown: float, rounds: int = ROUNDS, min_effect: float = 0.03):
    """Simulate benchmarks of a baseline and a slower candidate, on a machine that also drifts by 30 %."""
    rng = np.random.default_rng(0)
    for _ in range(EXPERIMENTS):
        machine = 1e6 * np.exp(np.cumsum(rng.normal(0, 0.06, rounds)))
        baseline, candidate = (machine * np.exp(noise(rng, rounds)) for _ in range(2))
        yield speedup(baseline, candidate * (1 + slowdown), min_effect=min_effect)


@EVERY_NOISE
def test_a_simulated_slowdown_is_detected(noise):
    verdicts = [result.verdict for result in experiments(noise, 0.12)]
    assert verdicts.count("slower") >= 0.95 * EXPERIMENTS
    assert "faster" not in verdicts


def test_a_slowdown_of_five_percent_is_detected_in_normal_noise():
    verdicts = [result.verdict for result in experiments(NOISES["log-normal"], 0.05)]
    assert verdicts.count("slower") >= 0.9 * EXPERIMENTS


@EVERY_NOISE
def test_the_same_model_is_within_noise(noise):
    verdicts = [result.verdict for result in experiments(noise, 0.0)]
    assert verdicts.count("within noise") >= 0.995 * EXPERIMENTS


@EVERY_NOISE
def test_without_a_minimum_effect_false_verdicts_stay_below_the_level(noise):
    verdicts = [result.verdict for result in experiments(noise, 0.0, min_effect=0.0)]
    assert EXPERIMENTS - verdicts.count("within noise") <= 0.02 * EXPERIMENTS


@EVERY_NOISE
@pytest.mark.parametrize("rounds", [FEWEST_ROUNDS, ROUNDS])
def test_the_interval_covers_the_true_ratio(noise, rounds):
    covered = [result.low <= 1 / 1.25 <= result.high for result in experiments(noise, 0.25, rounds)]
    assert np.mean(covered) >= LEVEL - 0.01


def test_the_interval_equals_that_of_the_signed_rank_test():
    rng = np.random.default_rng(0)
    for count in (FEWEST_ROUNDS, 9, 15, 30):
        values = rng.normal(0.1, 1, count)
        _, low, high = hodges_lehmann(values)
        for center in np.linspace(-1.5, 1.5, 61):
            p = stats.wilcoxon(values - center, method="exact").pvalue
            assert (low <= center <= high) == (p > 1 - LEVEL)


def test_more_rounds_shorten_the_interval():
    rng = np.random.default_rng(0)
    lengths = [np.ptp(hodges_lehmann(rng.normal(size=count))[1:]) for count in (8, 30, 120, 480)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0] / 5


def test_one_disturbed_round_changes_no_verdict():
    rng = np.random.default_rng(0)
    baseline, candidate = rng.lognormal(10, 0.01, (2, ROUNDS))
    before = speedup(baseline, candidate * 0.8, min_effect=0.03)
    candidate[7] *= 100
    after = speedup(baseline, candidate * 0.8, min_effect=0.03)
    assert before.verdict == after.verdict == "faster"
    assert after.value == pytest.approx(before.value, rel=0.01)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.0301, 1.2, "faster"),
        (1.03, 1.2, "within noise"),
        (0.9, 1 / 1.03, "within noise"),
        (0.9, 0.97, "slower"),
        (0.5, 2.0, "within noise"),
        (1.001, 1.002, "within noise"),
    ],
)
def test_the_whole_interval_must_exceed_the_minimum_effect(low, high, word):
    assert verdict(low, high, 0.03) == word


def test_without_a_minimum_effect_any_interval_without_one_gives_a_verdict():
    assert verdict(1.0001, 1.1, 0.0) == "faster"
    assert verdict(0.9, 0.9999, 0.0) == "slower"


@given(TIMES, st.floats(1e-3, 1e3), st.randoms())
@settings(max_examples=60)
def test_speedup_is_independent_of_units_and_order_of_rounds(times, unit, random):
    other = np.roll(times, 1)
    there = speedup(times, other, min_effect=0.03)
    assert there.low <= there.value <= there.high
    back = speedup(other, times, min_effect=0.03)
    assert (back.value, back.low, back.high) == pytest.approx((1 / there.value, 1 / there.high, 1 / there.low))
    order = random.sample(range(len(times)), len(times))
    again = speedup(times[order] * unit, other[order] * unit, min_effect=0.03)
    assert (again.value, again.low, again.high) == pytest.approx((there.value, there.low, there.high))


def test_a_systematic_error_widens_the_interval():
    times = np.random.default_rng(0).lognormal(10, 0.01, 30)
    sure = speedup(times * 1.025, times, min_effect=0.01)
    uncertain = speedup(times * 1.025, times, min_effect=0.01, systematic_error=0.02)
    assert (sure.verdict, uncertain.verdict) == ("faster", "within noise")
    assert (uncertain.value, uncertain.low, uncertain.high) == pytest.approx(
        (sure.value, sure.low / 1.02, sure.high * 1.02)
    )


@given(TIMES, st.floats(0.1, 10))
@settings(max_examples=60)
def test_an_exact_factor_is_returned_exactly_in_an_interval_for_other_runs(times, factor):
    result = speedup(times * factor, times, min_effect=0.0)
    assert result.value == pytest.approx(factor)
    assert sorted([result.low, result.high]) == pytest.approx(sorted([factor**0.95, factor**1.05]))


@pytest.mark.parametrize("factor", [0.03, 9.4])
def test_intervals_of_two_runs_overlap_if_the_state_of_the_machine_changed_the_ratio(factor):
    """Ratios far from 1 change by as much from run to run, although each run has a narrow interval."""
    rng = np.random.default_rng(0)
    times = rng.lognormal(10, 0.003, 30)
    first = speedup(times * factor, times, min_effect=0.03)
    other = speedup(times * factor**1.04 * rng.lognormal(0, 0.003, 30), times, min_effect=0.03)
    assert first.low <= other.value <= first.high and other.low <= first.value <= other.high


@pytest.mark.parametrize("factor", [0.3, 1.4, 3.0])
def test_the_interval_holds_whatever_disturbed_rounds_show(factor):
    """Simulate load that slows the candidate in 10 % of the rounds: the true ratio is within the interval."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(EXPERIMENTS):
        ratios = np.exp(rng.normal(np.log(2), 0.01, 60))
        disturbed = np.arange(60) < 6
        result = speedup(np.where(disturbed, ratios / factor, ratios), np.ones(60), min_effect=0.0, disturbed=disturbed)
        assert result.verdict == "faster"
        covered += result.low <= 2 <= result.high
    assert covered >= 0.99 * EXPERIMENTS


@pytest.mark.parametrize(("rounds", "disturbed"), [(8, 1), (10, 1), (60, 12), (60, 60)])
def test_too_many_disturbed_rounds_give_no_verdict(rounds, disturbed):
    times = np.exp(np.random.default_rng(2).normal(0, 0.01, rounds))
    result = speedup(32 * times, np.ones(rounds), min_effect=0.0, disturbed=np.arange(rounds) < disturbed)
    assert result.verdict == "unstable"
    assert 0 < result.low <= result.value <= result.high < np.inf


def test_waits_for_the_cores_widen_the_interval():
    times = np.exp(np.random.default_rng(3).normal(0, 0.01, 60))
    plain = speedup(times, np.ones(60), min_effect=0.0)
    waited = speedup(times, np.ones(60), min_effect=0.0, waits=(0.03, 0.02))
    assert (waited.low, waited.high) == pytest.approx((plain.low * 0.97, plain.high / 0.98))
