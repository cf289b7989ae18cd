"""Ranges of activations in 8 bits: histograms of the calibration data, and five methods that select a range.

With n bits an activation x in [a, b] becomes q = round(x / s) with the scale

    s = (b - a) / (2^n - 1),   or symmetrically   s = max(|a|, |b|) / (2^(n-1) - 1),

and values outside of [a, b] become a or b. A narrow range clips large values, a wide one rounds all others more.

- ``min_max``: the smallest and the largest value.
- ``moving_average`` (Jacob et al., 2018, https://arxiv.org/abs/1712.05877, section 3.1): averages of the ends of the
  records, m_k = m_(k-1) + max(1 / k, 0.001) (x_k - m_(k-1)); this is the mean of up to 1000 records.
- ``percentile`` (Wu et al., 2020, https://arxiv.org/abs/2004.09602, section 5.1): cuts off 0.01 % of the values.
- ``mse`` (OMSE: Kravchik et al., 2019, https://arxiv.org/abs/1902.06822; ACIQ: Banner et al., 2019,
  https://arxiv.org/abs/1810.05723): the least mean squared error of rounding and clipping,
  sum_i c_i / w int_(bin i) (x - s q(x))^2 dx, where the values of a bin are distributed evenly.
- ``entropy`` (Migacz, 2017, "8-bit inference with TensorRT", GTC): the least divergence sum_i p_i log(p_i / q_i), with
  p the histogram in [a, b], where clipped values are added to the last bins, and q the same bins without these, each
  replaced by the mean over the bins not empty of its level.

The last two compare the ranges [max(a, -t), min(b, t)] for thresholds t that decrease by 5 % each.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

Method = Literal["min_max", "percentile", "entropy", "mse", "moving_average"]
Range = tuple[float, float]
Form = TypeVar("Form")
Name = TypeVar("Name", bound=str)

AUTO: tuple[Method, ...] = ("min_max", "moving_average", "percentile")  # that `choose_method` compares
BINS = 4096
SAMPLED = 1 << 14  # values of a tensor that are counted for each record; the ends are those of all values
CUT = 1e-4  # share of the values outside of the range of ``percentile``
SLOWEST = 1e-3  # weight of a record in a moving average
THRESHOLDS = 0.95 ** np.arange(128)  # the last one is a 700th
EMPTY = 1e-9  # probability of an empty level, instead of an infinite divergence


class Histogram:
    """Counts of a tensor's values other than zero in bins of equal width, and the ends of the records.

    Bin i has the values of i w to (i + 1) w. The width w is the smallest power of two with which the range has at most
    `BINS` bins. So bins are merged in pairs when the range grows, and the counts do not depend on the order of records.
    Zeros are not counted: quantizers represent them exactly, and after a ReLU most values are zeros.
    """

    def __init__(self, name: str) -> None:
        """Store the name of the tensor."""
        self.name, self.low, self.high = name, math.inf, -math.inf
        self.width, self.first = 2.0**-126, 0
        self.counts = np.zeros(BINS, np.int64)
        self.is_exact = False  # True if an operation reads the values that must not be clipped
        self._records, self._mean = 0, np.zeros(2)
        self._halves: list[Range] = [(math.inf, -math.inf)] * 2  # ends of every other record

    def add(self, values: ArrayLike) -> None:
        """Add the values of one record.

        Raises:
            ComponentError: If one is NaN or infinite.
        """
        flat = np.asarray(values, np.float32).reshape(-1)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        if not math.isfinite(low) or not math.isfinite(high):
            received = f"{self.name!r} is NaN or infinite on examples to calibrate on"
            fix = "check the parent's weights for NaN, and the examples for NaN and values out of range"
            raise ComponentError(received, "finite numbers", fix)
        grows = low < self.low or high > self.high
        self.low, self.high = min(low, self.low), max(high, self.high)
        half = self._halves[self._records % 2]
        self._halves[self._records % 2] = (min(low, half[0]), max(high, half[1]))
        self._records += 1
        self._mean += (np.array([low, high]) - self._mean) * max(1 / self._records, SLOWEST)
        if grows:
            self._extend()
        step = -(-flat.size // SAMPLED)
        while math.gcd(step, flat.size) > 1:  # another one would skip the same channels each time
            step += 1
        sample = flat[::step]
        bins = np.floor(sample[sample != 0] / np.float32(self.width)).astype(np.int64)
        self.counts += np.bincount(bins - self.first, minlength=BINS)

    @property
    def halves(self) -> tuple[Range, Range]:
        """Return the ranges of two disjoint halves of the records, every other record in each; infinite without one."""
        return self._halves[0], self._halves[1]

    def _extend(self) -> None:
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        old, width = np.flatnonzero(self.counts) + self.first, self.width
        while math.floor(high / self.width) - math.floor(low / self.width) >= BINS:
            self.width *= 2
        counts, self.first = self.counts[old - self.first], math.floor(low / self.width)
        moved = (old >> round(math.log2(self.width / width))) - self.first
        self.counts = np.bincount(moved, counts, BINS).astype(np.int64)

    def range_of(self, method: Method, *, bits: int = 8, symmetric: bool = False) -> Range:
        """Return the range that a method selects for a quantizer; all but ``min_max`` include zero."""
        if method == "min_max" or self.is_exact or not self.counts.any():
            return (self.low, self.high)
        if method == "moving_average":
            return min(0.0, float(self._mean[0])), max(0.0, float(self._mean[1]))
        if method == "percentile":
            return self._percentile()
        ranges = [self._clip(-threshold, threshold) for threshold in max(-self.low, self.high) * THRESHOLDS]
        steps = [
            max(-low, high) / (2 ** (bits - 1) - 1) if symmetric else (high - low) / (2**bits - 1)
            for low, high in ranges
        ]
        if method == "mse":
            return ranges[int(np.argmin(self._squared_errors(np.asarray(ranges), np.asarray(steps)[:, None])))]
        # No finer steps than bins: each would be a level of its own.
        divergences = [
            self._divergence(low, high, step) if step >= self.width else math.inf
            for (low, high), step in zip(ranges, steps, strict=True)
        ]
        return ranges[int(np.argmin(divergences))]

    def _clip(self, low: float, high: float) -> Range:
        return float(min(0.0, max(low, self.low))), float(max(0.0, min(high, self.high)))

    def _percentile(self) -> Range:
        below, cut = np.cumsum(self.counts), CUT / 2 * self.counts.sum()
        start = int(np.searchsorted(below, cut, side="right"))
        end = int(np.searchsorted(below, below[-1] - cut)) + 1
        return self._clip((self.first + start) * self.width, (self.first + end) * self.width)

    def _squared_errors(self, ranges: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the squared errors of rounding and clipping for each range."""
        occupied = np.flatnonzero(self.counts)
        lowest, highest = np.rint(ranges[:, :1] / step), np.rint(ranges[:, 1:] / step)

        def integral(edges: NDArray[Any]) -> NDArray[Any]:  # of the squared error, from 0 to the edges
            level = np.clip(np.rint(edges / step), lowest, highest)
            return level * step**3 / 12 + (edges - level * step) ** 3 / 3

        left = (self.first + occupied) * self.width
        errors = (integral(left + self.width) - integral(left)) @ self.counts[occupied]
        return np.asarray(errors / self.width)

    def _divergence(self, low: float, high: float, step: float) -> float:
        """Return the divergence of the quantized histogram in a range from the clipped one."""
        start, end = math.floor(low / self.width) - self.first, math.ceil(high / self.width) - self.first
        inside = self.counts[start:end].astype(np.float64)
        clipped = inside.copy()
        clipped[0] += self.counts[:start].sum()
        clipped[-1] += self.counts[end:].sum()
        centers = (self.first + np.arange(start, end) + 0.5) * self.width
        levels = ((centers - low) / step).astype(np.int64).clip(0)
        sums, occupied = np.bincount(levels, inside), np.bincount(levels, inside > 0)
        quantized = np.where(inside > 0, (sums / np.maximum(occupied, 1))[levels], 0)
        mass = clipped > 0
        p, q = clipped[mass] / clipped.sum(), np.maximum(quantized[mass] / max(inside.sum(), 1), EMPTY)
        return float(np.sum(p * np.log(p / q)))


def choose_method(
    calibration: Name | Literal["auto"],
    quantize: Callable[[Name], Form],
    measure: Callable[[Form], float],
    methods: Sequence[Name],
) -> tuple[Form, Name, ConversionFacts]:
    """Return the quantized form by a method, the method, and metadata for the model card.

    ``auto`` makes one by each of the ``methods``, and returns the one with the least error; ``measure`` returns it for
    records that were not used for calibration.
    """
    if calibration != "auto":
        return quantize(calibration), calibration, {"activation_ranges": {"chosen": calibration}}
    forms = {method: quantize(method) for method in methods}
    errors = {}
    for method, form in forms.items():
        with contextlib.suppress(ComponentError):  # the verification of the result reports it
            errors[method] = measure(form)
    chosen = min(errors, key=errors.__getitem__, default=methods[0])
    facts: JsonObject = {"chosen": chosen, "error": {str(method): error for method, error in errors.items()}}
    return forms[chosen], chosen, {"activation_ranges": facts}


def select_ranges(
    histograms: Mapping[str, Histogram], method: Method, *, bits: int = 8, symmetric: bool = False
) -> dict[str, Range]:
    """Return the range of each tensor by a method; see `Histogram.range_of`."""
    return {name: histogram.range_of(method, bits=bits, symmetric=symmetric) for name, histogram in histograms.items()}
