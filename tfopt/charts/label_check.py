"""Count labels of a drawn bubble chart that could be taken for those of another bubble."""

import functools
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from PIL import ImageFont

from tfopt.charts.figure import SVG

LINE = 12.0  # font size in pixels
WIDER = 1.3  # bold text in the widest font of the page, DejaVu Sans, relative to the font that Pillow contains


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "_Box") -> bool:
        across = min(self.right, other.right) - max(self.left, other.left)
        return across > 0 and min(self.bottom, other.bottom) > max(self.top, other.top)

    def gap(self, x: float, y: float) -> float:
        """Return the distance of a point from the box."""
        near = min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)
        return math.dist(near, (x, y))


def count_collisions(svg: ET.Element, owners: Sequence[int]) -> int:
    """Return the number of labels over another label or bubble, outside of the chart, or with a misleading line.

    Args:
        svg: The chart, as lets-plot draws it.
        owners: The index of the circle of each label in the order in which they are drawn.
    """
    circles = [_numbers(circle, "cx", "cy", "r") for circle in svg.iter(f"{SVG}circle")]
    labels = _labels(svg)
    boxes = [box for box, _ in labels]
    panel = next(_numbers(rect, "width", "height") for rect in svg.iter(f"{SVG}rect"))
    count = sum(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    count += sum(min(box.left, box.top) < 0 or box.right > panel[0] or box.bottom > panel[1] for box in boxes)
    for (box, line), owner in zip(labels, owners, strict=True):
        for index, (x, y, radius) in enumerate(circles):
            if index == owner:
                continue
            count += box.gap(x, y) < radius
            is_apart = math.dist((x, y), circles[owner][:2]) > radius + circles[owner][2]
            count += is_apart and line is not None and _distance(line, x, y) < radius
    return count


def _labels(svg: ET.Element) -> list[tuple[_Box, list[float] | None]]:
    """Return the box of each label, and the line from it to its bubble."""
    labels: list[tuple[_Box, list[float] | None]] = []
    for parent in svg.iter(f"{SVG}g"):
        for group, following in itertools.zip_longest(parent, list(parent)[1:]):
            inner = group.find(f"{SVG}g")
            if not group.get("transform", "").startswith("rotate") or inner is None:
                continue
            line = None if following is None else following.find(f"{SVG}line")
            ends = None if line is None else _numbers(line, "x1", "y1", "x2", "y2")
            labels.append((_box(inner), ends))
    return labels


def _box(group: ET.Element) -> _Box:
    x, y = (float(number) for number in re.findall(r"-?[\d.]+", group.get("transform", ""))[:2])
    lines = ["".join(text.itertext()).strip() for text in group]
    reach = WIDER * max(map(_font().getlength, lines)) / 2
    return _Box(x - reach, y - 0.9 * LINE, x + reach, y + LINE * (len(lines) - 1) + 0.3 * LINE)


@functools.cache
def _font() -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(LINE)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font


def _distance(line: Sequence[float], x: float, y: float) -> float:
    """Return the distance of a point from a line between two points."""
    x1, y1, x2, y2 = line
    length = math.dist((x1, y1), (x2, y2)) ** 2 or 1.0
    part = min(1.0, max(0.0, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length))
    return math.dist((x1 + part * (x2 - x1), y1 + part * (y2 - y1)), (x, y))


def _numbers(element: ET.Element, *names: str) -> list[float]:
    return [float(element.get(name, "nan")) for name in names]
