"""Axes: values to pixels, round ticks, and SVG elements to draw them with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

LETTER = 6.7  # the width of an average letter at 12 px, in the fonts of the page
STEPS = (1, 2, 5)
PICTURES = Path(__file__).with_name("pictures.css")  # what a page with pictures has among its styles


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels.

    Attributes:
        low: The value at ``start``.
        high: The value at ``end``.
        start: A pixel.
        end: A pixel; less than ``start`` on a vertical axis.
        logarithmic: Whether equal distances are equal ratios.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a value is."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
        part = (value - low) / (high - low)
        return self.start + part * (self.end - self.start)

    def ticks(self, apart: float) -> list[float]:
        """Round values along the axis, at least ``apart`` pixels from each other."""
        most = max(2, int(abs(self.end - self.start) / apart))
        low, high = sorted((self.low, self.high))
        if self.logarithmic and high / low > 3:
            found = _ratios(low, high)
            while len(found) > most:
                found = found[::2]
            return found
        return _rounds(low, high, most)


def spanning(values: Sequence[float], start: float, end: float, *, logarithmic: bool = False, least: float = 0) -> Axis:
    """An axis that holds all values with room around them.

    Args:
        values: What must be on it.
        start: Its first pixel.
        end: Its last.
        logarithmic: Whether ratios count.
        least: The least range, for when all values are nearly the same.
    """
    low, high = min(values), max(values)
    if logarithmic:
        room = max((high / low) ** 0.12, 1.15)
        return Axis(low / room, high * room, start, end, True)
    room = max(0.14 * (high - low), (least - (high - low)) / 2) or 1.0
    return Axis(low - room, high + room, start, end)


def element(parent: ET.Element, name: str, text: str | None = None, /, **attributes: object) -> ET.Element:
    """Add an SVG element; numbers are rounded to a tenth of a pixel, ``_`` in names becomes ``-``."""
    said = {
        key.rstrip("_").replace("_", "-"): f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        for key, value in attributes.items()
    }
    made = ET.SubElement(parent, name, said)
    made.text = text
    return made


def picture(width: int, height: int, key: str, title: str, description: str) -> ET.Element:
    """An empty SVG that says what it shows to those who cannot see it."""
    svg = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {width} {height}",
            "role": "img",
            "aria-labelledby": f"{key}-title {key}-desc",
            "class": f"picture {key.rpartition('-')[2]}",
        },
    )
    element(svg, "title", title, id=f"{key}-title")
    element(svg, "desc", description, id=f"{key}-desc")
    return svg


def markup(svg: ET.Element) -> str:
    """The SVG as text for an HTML page."""
    return ET.tostring(svg, encoding="unicode")


def shortened(name: str, most: int) -> str:
    """A name that is not too long for a picture; the tables have it whole.

    >>> shortened("tflite int8", 26), len(shortened("a folder with a very long name 2026-11-21", 26))
    ('tflite int8', 26)
    """
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-most // 2 :]}"


def plain(value: float) -> str:
    """A tick's label.

    >>> plain(0.05), plain(20.0), plain(2000.0)
    ('0.05', '20', '2,000')
    """
    return f"{value:,.10g}" if abs(value) >= 1 else f"{value:.4g}"


def _ratios(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found = [step * 10.0**power for power in range(first, last + 1) for step in STEPS]
    return [value for value in found if low <= value <= high]


def _rounds(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (*STEPS, 10) if factor * power >= rough)
    count = math.floor(high / step) - math.ceil(low / step) + 1
    return [(math.ceil(low / step) + index) * step for index in range(count)]
