"""Test the ranges of activations on planted distributions against independent computations on all values."""

import math

import numpy as np
import pytest

from tfopt.conversion.activation_ranges import AUTO, BINS, Histogram, choose_method
from tfopt.errors import ComponentError

DRAW = np.random.default_rng(0)
VALUES = {
    "gaussian": DRAW.normal(size=60_000),
    "outlier": np.append(DRAW.normal(size=60_000), 100.0),
    "uniform": DRAW.uniform(-2, 5, 60_000),
    "tail": DRAW.standard_t(2, 60_000),
    "relu": np.maximum(DRAW.normal(size=60_000), 0),
}


def histogram(values, parts: int = 20) -> Histogram:
    """Return the histogram of values that are the data of some records."""
    result = Histogram("x")
    for part in np.array_split(np.asarray(values, np.float32), parts):
        result.add(part)
    return result


def squared_error(values, low: float, high: float, bits: int = 8, *, symmetric: bool = False) -> float:
    """Quantize and dequantize the values themselves."""
    step = max(-low, high) / (2 ** (bits - 1) - 1) if symmetric else (high - low) / (2**bits - 1)
    levels = np.clip(np.round(values / step), np.round(low / step), np.round(high / step))
    return float(np.mean((values - levels * step) ** 2))


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("symmetric", [False, True])
def test_mse_finds_the_least_error_of_all_thresholds(values, symmetric):
    measured = histogram(values).range_of("mse", symmetric=symmetric)
    thresholds = np.abs(values).max() * 0.98 ** np.arange(300)
    least = min(
        squared_error(values, max(values.min(), -t, -1e9), min(values.max(), t), symmetric=symmetric)
        if values.min() < 0
        else squared_error(values, 0.0, min(values.max(), t), symmetric=symmetric)
        for t in thresholds
    )
    assert squared_error(values, *measured, symmetric=symmetric) <= 1.03 * least


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_percentile_cuts_off_one_value_in_ten_thousand(values):
    """Of the values other than zero, half of them at each end, up to the next edge of a bin."""
    measured, single = histogram(values), np.float32(values)
    low, high = measured.range_of("percentile")
    cut = 0.00005 * np.count_nonzero(single)
    assert (single > high).sum() <= cut < (single >= high - measured.width).sum()
    assert (single < low).sum() <= cut
    assert (single < low + measured.width).sum() > cut if single.min() < 0 else low == 0


def divergences(counts, levels: int) -> list[float]:
    """Return the divergences for ranges of the first bins, written as loops over levels and bins."""
    result = []
    for end in range(levels, len(counts) + 1):
        p = counts[:end].astype(float)
        q = np.zeros(end)
        step = end / levels
        for level in range(levels):
            bins = [i for i in range(end) if int((i + 0.5) / step) == level and counts[i]]
            for i in bins:
                q[i] = counts[bins].sum() / len(bins)
        p[-1] += counts[end:].sum()
        p, q = p / p.sum(), q / q.sum()
        result.append(sum(a * math.log(a / max(b, 1e-9)) for a, b in zip(p, q, strict=True) if a))
    return result


@pytest.mark.parametrize("name", ["gaussian", "tail"])
def test_entropy_finds_the_least_divergence(name):
    """Three bits, so that loops over all ranges of a histogram take little time."""
    values = np.abs(VALUES[name][:20_000])
    measured = histogram(values)
    low, high = measured.range_of("entropy", bits=3)
    width = measured.width * 16
    counts = np.bincount((values // width).astype(int))
    expected = divergences(counts, 7)
    reached = expected[max(0, round(high / width) - 7)]
    assert low == 0 and reached <= 1.3 * min(expected) + 1e-3


def test_entropy_cuts_off_an_outlier_and_keeps_a_uniform_range():
    low, high = histogram(VALUES["outlier"]).range_of("entropy")
    assert 3 < high < 20 and -6 < low < -3
    assert histogram(VALUES["uniform"]).range_of("entropy") == pytest.approx((-2, 5), rel=0.06)


def test_min_max_and_moving_average_are_those_of_the_records():
    records = [np.float32([-1, 2]), np.float32([-3, 6]), np.float32([1, 1])]
    measured = Histogram("x")
    for record in records:
        measured.add(record)
    assert measured.range_of("min_max") == (-3, 6)
    assert measured.range_of("moving_average") == pytest.approx((-1, 3))
    for _ in range(5000):
        measured.add(np.float32([-2, 2]))
    mean = np.array([-1.0, 3.0])
    for count in range(4, 5004):
        mean += (np.array([-2, 2]) - mean) * max(1 / count, 0.001)
    assert measured.range_of("moving_average") == pytest.approx(tuple(mean))


@pytest.mark.parametrize("method", ["percentile", "entropy", "mse", "moving_average"])
@pytest.mark.parametrize(("value", "expected"), [(0.0, (0, 0)), (3.0, (0, 3)), (-0.5, (-0.5, 0))])
def test_constants_have_the_range_from_zero(method, value, expected):
    assert histogram(np.full(1000, value)).range_of(method) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("method", ["percentile", "entropy", "mse"])
def test_rare_ones_among_zeros_are_not_cut_off(method):
    values = np.zeros(60_000)
    values[::15_000] = 1.0
    assert histogram(values, 1).range_of(method)[1] > 0.9


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_with_the_name_of_the_tensor(value):
    with pytest.raises(ComponentError, match="'x' is NaN or infinite") as refused:
        histogram([1.0, value, 2.0], 1)
    assert "check the parent's weights" in refused.value.fix


def test_counts_do_not_depend_on_the_order_of_the_records():
    values = VALUES["tail"][:30_000]
    one, other = histogram(values, 10), histogram(values[::-1], 10)
    assert one.width == other.width and one.first == other.first
    assert (one.counts == other.counts).all() and one.counts.sum() == len(values)
    expected, _ = np.histogram(np.float32(values), (one.first + np.arange(BINS + 1)) * one.width)
    assert (one.counts == expected).all()


def test_every_channel_of_a_large_tensor_is_counted():
    values = np.zeros((300, 300, 6), np.float32)
    values[..., 4] = 7
    measured = Histogram("x")
    measured.add(values)
    step = 37  # the least number of at least 540000 / 16384 without a common divisor
    assert measured.counts.sum() == pytest.approx(540_000 / step / 6, abs=1)


def test_auto_takes_the_method_with_the_least_error_and_reports_all():
    errors = dict(zip(AUTO, (0.3, 0.1, 0.2), strict=True))
    form, method, facts = choose_method("auto", lambda method: method, errors.__getitem__, AUTO)
    assert form == method == AUTO[1] and facts["activation_ranges"] == {"chosen": AUTO[1], "error": errors}
    form, method, facts = choose_method("entropy", lambda method: method, errors.__getitem__, AUTO)
    assert form == method == "entropy" and facts == {"activation_ranges": {"chosen": "entropy"}}
