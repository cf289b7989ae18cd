"""Draw bubble charts: better is up and to the left, bubbles on the Pareto front are filled and joined."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from tfopt.charts.axes import LETTER, Axis, add_element, create_axis, create_svg, shorten, tick_label, to_text
from tfopt.charts.label_placement import Anchor, Box, place_labels

LOG_FROM = 4  # ratio of the largest to the smallest value from which an axis is logarithmic
MOST_NAMED = 12  # with more bubbles only the important ones have labels; the others have tooltips
LARGEST, LEAST = 24.0, 5.0  # radii in pixels

Range = tuple[float, float]


@dataclass(frozen=True)
class Bubble:
    """One measured item of a bubble chart.

    Attributes:
        name: First line of the label.
        note: Second line of the label.
        tooltip: Text of the tooltip.
        across: Value on the horizontal axis; lower is better.
        up: Value on the vertical axis.
        area: Value that the area is proportional to.
        kind: ``chosen``, ``parent`` or ``other``; selects the color.
        front: True if it is on the Pareto front.
        ranges: Intervals of ``across`` and ``up``, drawn as bars; None to draw no bars.
    """

    name: str
    note: str
    tooltip: str
    across: float
    up: float
    area: float
    kind: str = "other"
    front: bool = False
    ranges: tuple[Range, Range] | None = None


@dataclass(frozen=True)
class BubbleChart:
    """The content of a bubble chart.

    Attributes:
        bubbles: All bubbles.
        title: Title for screen readers.
        description: Full description for screen readers.
        across: Label of the horizontal axis.
        up: Label of the vertical axis.
        more_is_better: True if higher values of ``up`` are better.
        share: True if ``up`` is a fraction, shown in percent.
        least: Minimum range of the vertical axis.
        spread: True if the vertical axis may be logarithmic.
        limits: Values of ``up`` for horizontal lines, by the label of the line.
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


def draw_bubbles(chart: BubbleChart, width: int, height: int, key: str) -> str:
    """Draw the chart as SVG of a size in pixels; ``key`` makes the element ids unique on the page."""
    svg = create_svg(width, height, key, chart.title, chart.description)
    frame = Box(64, 16, width - 80, height - 66)
    across, up = _axes(chart, frame)
    _grid(svg, chart, across, up, frame)
    occupied = _limits(svg, chart, up, frame)
    occupied += _front_line(svg, chart, across, up)
    largest = max(bubble.area for bubble in chart.bubbles)
    points = [_Point(bubble, across, up, largest, width) for bubble in sorted(chart.bubbles, key=lambda one: -one.area)]
    for point in points:
        point.draw(svg)
    named = [point for point in points if point.stands_out] if len(points) > MOST_NAMED else points
    occupied += [point.anchor.around(0) for point in points if point not in named]
    for point in named:
        occupied += point.bars(svg)
    boxes = place_labels([point.anchor for point in named], occupied, frame)
    for point, box in zip(named, boxes, strict=True):
        crowded = any(point.anchor.touches(other.anchor) for other in points if other is not point)
        point.label(svg, box, crowded=crowded)
    return to_text(svg)


class _Point:
    """One bubble at its position in the chart."""

    def __init__(self, bubble: Bubble, across: Axis, up: Axis, largest: float, width: int) -> None:
        self.bubble, self.across, self.up = bubble, across, up
        self.x, self.y = across(bubble.across), up(bubble.up)
        self.radius = max(LEAST, LARGEST * math.sqrt(width / 760 * bubble.area / largest))
        self.name = shorten(bubble.name, 26 if width > 500 else 17)

    @property
    def stands_out(self) -> bool:
        return self.bubble.kind != "other" or self.bubble.front

    @property
    def anchor(self) -> Anchor:
        letters = max(len(self.name), len(self.bubble.note))
        return Anchor(self.x, self.y, self.radius, letters * LETTER + 4, 28)

    def bars(self, svg: ET.Element) -> list[Box]:
        """Draw the intervals and return the boxes that they cover."""
        if self.bubble.ranges is None:
            return []
        left, right = (self.across(max(end, self.across.low)) for end in self.bubble.ranges[0])
        low, high = (self.up(end) for end in self.bubble.ranges[1])
        ends = (self.x, low, self.x, high), (left, self.y, right, self.y)
        for x1, y1, x2, y2 in ends:
            add_element(svg, "line", class_=f"bar {self.bubble.kind}", x1=x1, y1=y1, x2=x2, y2=y2)
        return [Box(min(x1, x2) - 2, min(y1, y2) - 2, abs(x2 - x1) + 4, abs(y2 - y1) + 4) for x1, y1, x2, y2 in ends]

    def draw(self, svg: ET.Element) -> None:
        """Draw the bubble, filled if it is on the Pareto front."""
        group = add_element(svg, "g")
        add_element(group, "title", self.bubble.tooltip)
        kind = f"bubble {self.bubble.kind} {'front' if self.bubble.front else 'off'}"
        add_element(group, "circle", class_=kind, cx=self.x, cy=self.y, r=self.radius)

    def label(self, svg: ET.Element, box: Box, *, crowded: bool) -> None:
        """Draw name and note, with a line to the bubble if it is unclear which one they belong to."""
        near_x = min(max(self.x, box.left), box.left + box.width)
        near_y = min(max(self.y, box.top), box.top + box.height)
        gap = math.hypot(near_x - self.x, near_y - self.y) - self.radius
        if gap > 12 or crowded:
            add_element(svg, "line", class_="leader", x1=self.x, y1=self.y, x2=near_x, y2=near_y)
            add_element(svg, "circle", class_="centre", cx=self.x, cy=self.y, r=1.8)
        middle, line = box.left + box.width / 2, box.top + 11
        side, x = ("start", box.left) if box.left >= self.x else ("end", box.left + box.width)
        if box.left < self.x < box.left + box.width:
            side, x = "middle", middle
        text = add_element(svg, "text", class_=f"label {self.bubble.kind}", x=x, y=line, text_anchor=side)
        add_element(text, "tspan", self.name, class_="name")
        add_element(text, "tspan", self.bubble.note, class_="size", x=x, dy=14)


def _axes(chart: BubbleChart, frame: Box) -> tuple[Axis, Axis]:
    times, values = [], list(chart.limits.values())
    for bubble in chart.bubbles:
        level, upright = bubble.ranges or ((), ())
        times += [bubble.across, *level]
        values += [bubble.up, *upright]
    times = [time for time in times if time > 0]
    alike = max(times) if max(times) == min(times) else 0  # all values equal: an axis must have a range above zero
    far = max(times) > LOG_FROM * min(times)
    across = create_axis(times, frame.left, frame.left + frame.width, logarithmic=far, least=alike)
    far = chart.spread and min(values) > 0 and max(values) > LOG_FROM * min(values)
    up = create_axis(values, frame.top + frame.height, frame.top, least=chart.least, logarithmic=far)
    if not chart.more_is_better:
        up = Axis(up.high, up.low, up.start, up.end, up.logarithmic)
    return across, up


def _grid(svg: ET.Element, chart: BubbleChart, across: Axis, up: Axis, frame: Box) -> None:
    bottom, right = frame.top + frame.height, frame.left + frame.width
    for value in up.ticks(44):
        if chart.share and value > 1 + 1e-9:
            continue
        y = up(value)
        add_element(svg, "line", class_="grid", x1=frame.left, y1=y, x2=right, y2=y)
        label = f"{100 * value:.4g}%" if chart.share else tick_label(value)
        add_element(svg, "text", label, class_="tick", x=frame.left - 8, y=y + 4, text_anchor="end")
    for value in across.ticks(52):
        x = across(value)
        add_element(svg, "line", class_="grid", x1=x, y1=frame.top, x2=x, y2=bottom)
        add_element(svg, "text", tick_label(value), class_="tick", x=x, y=bottom + 18, text_anchor="middle")
    middle = frame.left + frame.width / 2
    add_element(svg, "text", chart.across, class_="axis", x=middle, y=bottom + 40, text_anchor="middle")
    turned = f"translate(14 {frame.top + frame.height / 2:.1f}) rotate(-90)"
    add_element(svg, "text", chart.up, class_="axis", text_anchor="middle", transform=turned)


def _limits(svg: ET.Element, chart: BubbleChart, up: Axis, frame: Box) -> list[Box]:
    occupied = []
    for name, value in chart.limits.items():
        y, right = up(value), frame.left + frame.width
        add_element(svg, "line", class_="limit", x1=frame.left, y1=y, x2=right, y2=y)
        add_element(svg, "text", name, class_="limit-name", x=right - 4, y=y + 14, text_anchor="end")
        width = len(name) * LETTER
        occupied += [Box(right - 4 - width, y + 3, width, 14), Box(frame.left, y - 4, frame.width, 8)]
    return occupied


def _front_line(svg: ET.Element, chart: BubbleChart, across: Axis, up: Axis) -> list[Box]:
    """Draw a step line through the Pareto front and return the boxes that it covers."""
    steps: list[tuple[float, float]] = []
    for bubble in sorted(chart.bubbles, key=lambda one: (one.across, up(one.up))):
        x, y = across(bubble.across), up(bubble.up)
        if not steps or y < steps[-1][1]:
            steps += [(x, steps[-1][1]), (x, y)] if steps else [(x, y)]
    if len(steps) > 1:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
        add_element(svg, "polyline", class_="front-line", points=points)
    return [
        Box(min(x1, x2) - 1, min(y1, y2) - 1, abs(x2 - x1) + 2, abs(y2 - y1) + 2)
        for (x1, y1), (x2, y2) in itertools.pairwise(steps)
    ]
