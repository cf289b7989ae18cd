"""Axes of figures: linear or logarithmic, with round values as ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic range of values; figures are drawn in its coordinates."""

    low: float
    high: float
    is_log: bool = False  # True for a logarithmic axis, whose coordinates are decimal logarithms
    is_share: bool = False  # True for fractions, whose ticks are percentages up to 100%
    is_reversed: bool = False  # True if lower values are further up, or to the right

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        return math.log10(max(value, self.low)) if self.is_log else value

    def extended(self, below: float, above: float) -> "Axis":
        """Return an axis that is longer by these shares of its length."""
        if self.is_log:
            ratio = self.high / self.low
            return replace(self, low=self.low / ratio**below, high=self.high * ratio**above)
        length = self.high - self.low
        return replace(self, low=self.low - below * length, high=self.high + above * length)

    def ticks(self, most: int) -> list[float]:
        """Return round values on the axis, at most ``most``."""
        if self.is_log and self.high / self.low > 3:
            return _logarithmic_ticks(self.low, self.high, most)
        ticks = _linear_ticks(self.low, self.high, most)
        return [value for value in ticks if value <= 1 + 1e-9] if self.is_share else ticks

    def scale(self, make: Any, most: int, ticks: Sequence[float] | None = None) -> Any:
        """Return the scale that ``make`` makes, ``scale_x_continuous`` or ``scale_y_continuous`` of lets-plot."""
        values = self.ticks(most) if ticks is None else ticks
        return make(
            breaks=[self(value) for value in values],
            labels=[f"{100 * value:.4g}%" if self.is_share else tick_label(value) for value in values],
            limits=[self(self.low), self(self.high)],
            expand=[0, 0],
            trans="reverse" if self.is_reversed else None,
        )


def create_axis(
    values: Sequence[float],
    *,
    is_log: bool = False,
    is_share: bool = False,
    is_reversed: bool = False,
    least: float = 0,
) -> Axis:
    """Create an axis that contains all values with a margin; it spans ``least`` if they are nearly equal."""
    low, high = min(values), max(values)
    if is_log:
        room = max((high / low) ** 0.12, 1.15)
        return Axis(low / room, high * room, is_log, is_share, is_reversed)
    room = max(0.14 * (high - low), (least - (high - low)) / 2) or 1.0
    return Axis(low - room, high + room, is_log, is_share, is_reversed)


def tick_label(value: float) -> str:
    """Return the label of a tick.

    >>> tick_label(0.05), tick_label(20.0), tick_label(2000.0)
    ('0.05', '20', '2,000')
    """
    return f"{value:,.10g}" if abs(value) >= 1 else f"{value:.4g}"


def _logarithmic_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [step * 10.0**power for power in range(first, last + 1) for step in STEPS]
    ticks = [value for value in values if low <= value <= high]
    while len(ticks) > most:
        ticks = ticks[::2]
    return ticks


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    # Between 1 and 10 times the power; an axis of `most` steps that begins and ends at a tick has one tick more.
    steps = [factor * power for factor in (*STEPS, 10, 20)]
    ranges = ((step, range(math.ceil(low / step), math.floor(high / step) + 1)) for step in steps)
    step, numbers = next((step, numbers) for step, numbers in ranges if len(numbers) <= most)
    return [number * step for number in numbers]
