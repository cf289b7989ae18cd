"""Test the detection of saturation on simulated rates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tfopt.measurement.saturation import GAIN, find_saturation
from tfopt.measurement.speedup import FEWEST_ROUNDS

SIZES = (1, 2, 4, 8, 16)


def simulate(means, noise=0.01, rounds=30, seed=0):
    """Simulate rates in rounds on a machine whose drift is far larger than the noise."""
    draw = np.random.default_rng(seed)
    machine = np.exp(np.cumsum(draw.normal(0, 0.05, rounds)))
    return {
        size: mean * machine * np.exp(draw.normal(0, noise, rounds)) for size, mean in zip(SIZES, means, strict=False)
    }


@pytest.mark.parametrize(
    ("means", "low", "high", "text"),
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
def test_simulated_saturation_is_detected(means, low, high, text):
    for seed in range(5):
        saturation = find_saturation(simulate(means, 0.005, seed=seed))
        assert (saturation.low, saturation.high, saturation.summary) == (low, high, text)


def test_noise_widens_the_range_of_sizes():
    quiet, loud = (find_saturation(simulate((100, 190, 300, 301, 300), noise)) for noise in (0.01, 0.2))
    assert loud.low <= quiet.low == 4 == quiet.high
    assert loud.high is None or loud.high >= 4


def test_fewer_than_two_sizes_have_no_saturation():
    assert find_saturation(simulate((100,))) is None
    assert find_saturation({}) is None


@settings(max_examples=40)
@given(st.dictionaries(st.integers(1, 512), arrays(float, FEWEST_ROUNDS, elements=st.floats(1e-3, 1e9)), min_size=2))
def test_the_bounds_are_ordered_sizes_and_independent_of_units(rates):
    saturation = find_saturation(rates)
    assert saturation.low in rates and saturation.largest == max(rates)
    assert saturation.high is None or saturation.low <= saturation.high < saturation.largest
    assert find_saturation({size: 1024 * rate for size, rate in rates.items()}) == saturation
