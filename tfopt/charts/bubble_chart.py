"""Bubbles between two axes, the best up and to the left, the Pareto front filled and joined."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from tfopt.charts.axes import LETTER, Axis, element, markup, picture, plain, shortened, spanning
from tfopt.charts.label_placement import Anchor, Box, place

LOG_FROM = 4  # values this many times apart need a logarithmic axis
MOST_NAMED = 12  # of more bubbles only those that stand out are named; the others have tooltips
LARGEST, LEAST = 24.0, 5.0  # radii in pixels

Range = tuple[float, float]


@dataclass(frozen=True)
class Bubble:
    """One thing that was measured twice, and its size.

    Attributes:
        name: Its label's first line.
        note: Its label's second line.
        said: Its tooltip.
        across: Its value on the level axis, where less is better.
        up: Its value on the upright axis.
        area: What its area stands for.
        kind: ``chosen``, ``parent`` or ``other``: its colour.
        front: Whether it is on the Pareto front.
        ranges: The intervals of ``across`` and ``up``, drawn as bars; none where there are none.
    """

    name: str
    note: str
    said: str
    across: float
    up: float
    area: float
    kind: str = "other"
    front: bool = False
    ranges: tuple[Range, Range] | None = None


@dataclass(frozen=True)
class Plane:
    """What is drawn.

    Attributes:
        bubbles: All of them.
        title: For those who cannot see it.
        description: The same in full.
        across: The level axis in words.
        up: The upright axis in words.
        more_is_better: Whether more of ``up`` is.
        share: Whether ``up`` is a part of one, shown in percent.
        least: The least range of the upright axis.
        spread: Whether the upright axis is logarithmic where values are far apart.
        limits: Lines at values of ``up``, by what they are called.
    """

    bubbles: Sequence[Bubble]
    title: str
    description: str
    across: str
    up: str
    more_is_better: bool = True
    share: bool = False
    least: float = 0
    spread: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)


def draw(plane: Plane, width: int, height: int, key: str) -> str:
    """Draw it as SVG of a size; ``key`` makes its ids unique on the page."""
    svg = picture(width, height, key, plane.title, plane.description)
    frame = Box(64, 16, width - 80, height - 66)
    across, up = _axes(plane, frame)
    _grid(svg, plane, across, up, frame)
    taken = _limits(svg, plane, up, frame)
    taken += _front_line(svg, plane, across, up)
    largest = max(bubble.area for bubble in plane.bubbles)
    points = [_Point(bubble, across, up, largest, width) for bubble in sorted(plane.bubbles, key=lambda one: -one.area)]
    for point in points:
        point.draw(svg)
    named = [point for point in points if point.stands_out] if len(points) > MOST_NAMED else points
    taken += [point.anchor.around(0) for point in points if point not in named]
    for point in named:
        taken += point.bars(svg)
    boxes = place([point.anchor for point in named], taken, frame)
    for point, box in zip(named, boxes, strict=True):
        crowded = any(point.anchor.touches(other.anchor) for other in points if other is not point)
        point.label(svg, box, crowded=crowded)
    return markup(svg)


class _Point:
    """One bubble in the picture."""

    def __init__(self, bubble: Bubble, across: Axis, up: Axis, largest: float, width: int) -> None:
        self.bubble, self.across, self.up = bubble, across, up
        self.x, self.y = across(bubble.across), up(bubble.up)
        self.radius = max(LEAST, LARGEST * math.sqrt(width / 760 * bubble.area / largest))
        self.name = shortened(bubble.name, 26 if width > 500 else 17)

    @property
    def stands_out(self) -> bool:
        return self.bubble.kind != "other" or self.bubble.front

    @property
    def anchor(self) -> Anchor:
        letters = max(len(self.name), len(self.bubble.note))
        return Anchor(self.x, self.y, self.radius, letters * LETTER + 4, 28)

    def bars(self, svg: ET.Element) -> list[Box]:
        """Draw the intervals."""
        if self.bubble.ranges is None:
            return []
        left, right = (self.across(max(end, self.across.low)) for end in self.bubble.ranges[0])
        low, high = (self.up(end) for end in self.bubble.ranges[1])
        ends = (self.x, low, self.x, high), (left, self.y, right, self.y)
        for x1, y1, x2, y2 in ends:
            element(svg, "line", class_=f"bar {self.bubble.kind}", x1=x1, y1=y1, x2=x2, y2=y2)
        return [Box(min(x1, x2) - 2, min(y1, y2) - 2, abs(x2 - x1) + 4, abs(y2 - y1) + 4) for x1, y1, x2, y2 in ends]

    def draw(self, svg: ET.Element) -> None:
        """Draw the bubble, filled on the front."""
        group = element(svg, "g")
        element(group, "title", self.bubble.said)
        kind = f"bubble {self.bubble.kind} {'front' if self.bubble.front else 'off'}"
        element(group, "circle", class_=kind, cx=self.x, cy=self.y, r=self.radius)

    def label(self, svg: ET.Element, box: Box, *, crowded: bool) -> None:
        """Write name and note, with a line to the point where it is not plain which point is meant."""
        near_x = min(max(self.x, box.left), box.left + box.width)
        near_y = min(max(self.y, box.top), box.top + box.height)
        gap = math.hypot(near_x - self.x, near_y - self.y) - self.radius
        if gap > 12 or crowded:
            element(svg, "line", class_="leader", x1=self.x, y1=self.y, x2=near_x, y2=near_y)
            element(svg, "circle", class_="centre", cx=self.x, cy=self.y, r=1.8)
        middle, line = box.left + box.width / 2, box.top + 11
        side, x = ("start", box.left) if box.left >= self.x else ("end", box.left + box.width)
        if box.left < self.x < box.left + box.width:
            side, x = "middle", middle
        text = element(svg, "text", class_=f"label {self.bubble.kind}", x=x, y=line, text_anchor=side)
        element(text, "tspan", self.name, class_="name")
        element(text, "tspan", self.bubble.note, class_="size", x=x, dy=14)


def _axes(plane: Plane, frame: Box) -> tuple[Axis, Axis]:
    times, values = [], list(plane.limits.values())
    for bubble in plane.bubbles:
        level, upright = bubble.ranges or ((), ())
        times += [bubble.across, *level]
        values += [bubble.up, *upright]
    times = [time for time in times if time > 0]
    alike = max(times) if max(times) == min(times) else 0  # one bubble, or all in a line: no room below nothing
    far = max(times) > LOG_FROM * min(times)
    across = spanning(times, frame.left, frame.left + frame.width, logarithmic=far, least=alike)
    far = plane.spread and min(values) > 0 and max(values) > LOG_FROM * min(values)
    up = spanning(values, frame.top + frame.height, frame.top, least=plane.least, logarithmic=far)
    if not plane.more_is_better:
        up = Axis(up.high, up.low, up.start, up.end, up.logarithmic)
    return across, up


def _grid(svg: ET.Element, plane: Plane, across: Axis, up: Axis, frame: Box) -> None:
    bottom, right = frame.top + frame.height, frame.left + frame.width
    for value in up.ticks(44):
        if plane.share and value > 1 + 1e-9:
            continue
        y = up(value)
        element(svg, "line", class_="grid", x1=frame.left, y1=y, x2=right, y2=y)
        said = f"{100 * value:.4g}%" if plane.share else plain(value)
        element(svg, "text", said, class_="tick", x=frame.left - 8, y=y + 4, text_anchor="end")
    for value in across.ticks(52):
        x = across(value)
        element(svg, "line", class_="grid", x1=x, y1=frame.top, x2=x, y2=bottom)
        element(svg, "text", plain(value), class_="tick", x=x, y=bottom + 18, text_anchor="middle")
    middle = frame.left + frame.width / 2
    element(svg, "text", plane.across, class_="axis", x=middle, y=bottom + 40, text_anchor="middle")
    turned = f"translate(14 {frame.top + frame.height / 2:.1f}) rotate(-90)"
    element(svg, "text", plane.up, class_="axis", text_anchor="middle", transform=turned)


def _limits(svg: ET.Element, plane: Plane, up: Axis, frame: Box) -> list[Box]:
    taken = []
    for name, value in plane.limits.items():
        y, right = up(value), frame.left + frame.width
        element(svg, "line", class_="limit", x1=frame.left, y1=y, x2=right, y2=y)
        element(svg, "text", name, class_="limit-name", x=right - 4, y=y + 14, text_anchor="end")
        width = len(name) * LETTER
        taken += [Box(right - 4 - width, y + 3, width, 14), Box(frame.left, y - 4, frame.width, 8)]
    return taken


def _front_line(svg: ET.Element, plane: Plane, across: Axis, up: Axis) -> list[Box]:
    """Draw steps through the bubbles that are highest for how far to the left they are."""
    steps: list[tuple[float, float]] = []
    for bubble in sorted(plane.bubbles, key=lambda one: (one.across, up(one.up))):
        x, y = across(bubble.across), up(bubble.up)
        if not steps or y < steps[-1][1]:
            steps += [(x, steps[-1][1]), (x, y)] if steps else [(x, y)]
    if len(steps) > 1:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
        element(svg, "polyline", class_="front-line", points=points)
    return [
        Box(min(x1, x2) - 1, min(y1, y2) - 1, abs(x2 - x1) + 2, abs(y2 - y1) + 2)
        for (x1, y1), (x2, y2) in itertools.pairwise(steps)
    ]
