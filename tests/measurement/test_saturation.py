"""Where more gives no more: planted points are found, and what is not proven is not said."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tfopt.measurement.saturation import GAIN, Saturation
from tfopt.measurement.speedup import FEWEST_ROUNDS

SIZES = (1, 2, 4, 8, 16)


def measured(means, noise=0.01, rounds=30, seed=0):
    """Rates in rounds of a machine that drifts by far more than its sizes differ in noise."""
    draw = np.random.default_rng(seed)
    machine = np.exp(np.cumsum(draw.normal(0, 0.05, rounds)))
    return {
        size: mean * machine * np.exp(draw.normal(0, noise, rounds)) for size, mean in zip(SIZES, means, strict=False)
    }


@pytest.mark.parametrize(
    ("means", "low", "high", "said"),
    [
        ((100, 190, 300, 301, 300), 4, 4, "saturated from 4 on"),
        ((100, 99, 101, 100, 100), 1, 1, "saturated from 1 on"),
        ((100, 120, 100, 80, 60), 2, 2, "saturated from 2 on"),
        ((100, 190, 360, 700, 1300), 16, None, "not saturated up to 16"),
        ((100, 104, 108, 112, 116), 8, 8, "saturated from 8 on"),  # by 4 % each time: 8 % from 4 to 16
        ((100, 200, 200 * (1 + GAIN), 210, 210), 2, 4, "saturated from 2 or 4 on"),
        ((100, 200, 200 * (1 + GAIN)), 2, None, "saturated from 2 or more on"),
        ((100, 200), 2, None, "not saturated up to 2"),
    ],
)
def test_a_planted_point_is_found(means, low, high, said):
    for seed in range(5):
        found = Saturation.of(measured(means, 0.005, seed=seed))
        assert (found.low, found.high, str(found)) == (low, high, said)


def test_noise_makes_the_answer_wider_and_not_another_one():
    quiet, loud = (Saturation.of(measured((100, 190, 300, 301, 300), noise)) for noise in (0.01, 0.2))
    assert loud.low <= quiet.low == 4 == quiet.high
    assert loud.high is None or loud.high >= 4


def test_of_one_size_there_is_nothing_to_say():
    assert Saturation.of(measured((100,))) is None
    assert Saturation.of({}) is None


@given(st.dictionaries(st.integers(1, 512), arrays(float, FEWEST_ROUNDS, elements=st.floats(1e-3, 1e9)), min_size=2))
def test_the_ends_are_sizes_in_order_and_no_unit_matters(rates):
    found = Saturation.of(rates)
    assert found.low in rates and found.largest == max(rates)
    assert found.high is None or found.low <= found.high < found.largest
    assert Saturation.of({size: 1024 * rate for size, rate in rates.items()}) == found
