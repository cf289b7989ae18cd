"""Chart axes (values to pixels, round ticks) and SVG elements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tfopt.formatting import visible

LETTER = 6.7  # mean width of a letter in pixels, at 12 px in the fonts of the reports
STEPS = (1, 2, 5)
CHART_CSS = Path(__file__).with_name("pictures.css")  # the styles that a report with charts includes


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic map from values to pixels.

    Attributes:
        low: The value at ``start``.
        high: The value at ``end``.
        start: First pixel.
        end: Last pixel; less than ``start`` on a vertical axis.
        logarithmic: True for a logarithmic scale.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
        part = (value - low) / (high - low)
        return self.start + part * (self.end - self.start)

    def ticks(self, apart: float) -> list[float]:
        """Return round values on the axis, at least ``apart`` pixels from each other."""
        most = max(2, int(abs(self.end - self.start) / apart))
        low, high = sorted((self.low, self.high))
        if self.logarithmic and high / low > 3:
            ticks = _logarithmic_ticks(low, high)
            while len(ticks) > most:
                ticks = ticks[::2]
            return ticks
        return _linear_ticks(low, high, most)


def create_axis(
    values: Sequence[float], start: float, end: float, *, logarithmic: bool = False, least: float = 0
) -> Axis:
    """Create an axis that contains all values with a margin.

    Args:
        values: The values to show.
        start: First pixel.
        end: Last pixel.
        logarithmic: True for a logarithmic scale.
        least: Minimum range, for values that are nearly equal.
    """
    low, high = min(values), max(values)
    if logarithmic:
        room = max((high / low) ** 0.12, 1.15)
        return Axis(low / room, high * room, start, end, True)
    room = max(0.14 * (high - low), (least - (high - low)) / 2) or 1.0
    return Axis(low - room, high + room, start, end)


def add_element(parent: ET.Element, name: str, text: str | None = None, /, **attributes: object) -> ET.Element:
    """Add an SVG element; numbers are rounded to a tenth of a pixel, ``_`` in names becomes ``-``."""
    texts = {
        key.rstrip("_").replace("_", "-"): f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        for key, value in attributes.items()
    }
    child = ET.SubElement(parent, name, texts)
    child.text = None if text is None else visible(text)
    return child


def create_svg(width: int, height: int, key: str, title: str, description: str) -> ET.Element:
    """Create an empty SVG with a title and description for screen readers."""
    svg = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {width} {height}",
            "role": "img",
            "aria-labelledby": f"{key}-title {key}-desc",
            "class": f"picture {key.rpartition('-')[2]}",
        },
    )
    add_element(svg, "title", title, id=f"{key}-title")
    add_element(svg, "desc", description, id=f"{key}-desc")
    return svg


def to_text(svg: ET.Element) -> str:
    """Return the SVG markup for an HTML page."""
    return ET.tostring(svg, encoding="unicode")


def shorten(name: str, most: int) -> str:
    """Shorten a name to a number of letters for a chart; the tables show the full name.

    >>> shorten("tflite int8", 26), len(shorten("a folder with a very long name 2026-11-21", 26))
    ('tflite int8', 26)
    """
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-most // 2 :]}"


def tick_label(value: float) -> str:
    """Return the label of a tick.

    >>> tick_label(0.05), tick_label(20.0), tick_label(2000.0)
    ('0.05', '20', '2,000')
    """
    return f"{value:,.10g}" if abs(value) >= 1 else f"{value:.4g}"


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [step * 10.0**power for power in range(first, last + 1) for step in STEPS]
    return [value for value in values if low <= value <= high]


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (*STEPS, 10) if factor * power >= rough)
    count = math.floor(high / step) - math.ceil(low / step) + 1
    return [(math.ceil(low / step) + index) * step for index in range(count)]
