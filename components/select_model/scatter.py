"""The picture of the choice: quality up, latency across, size as area, Pareto front filled."""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from tfopt import wording
from tfopt.components.select_model.axes import LETTER, Axis, element, markup, picture, plain, shortened, spanning
from tfopt.components.select_model.labels import Anchor, Box, place
from tfopt.measurements import Measured

LOG_FROM = 4  # latencies this many times apart need a logarithmic axis
MOST_NAMED = 12  # of more models only the parent, the chosen one and the front are named; the others have tooltips
LARGEST, LEAST = 24.0, 5.0  # radii in pixels


@dataclass(frozen=True)
class View:
    """What is drawn.

    Attributes:
        models: Those that were measured whole.
        metric: The main metric.
        front: Names on the Pareto front.
        chosen: The chosen model's name.
        limits: Lines at values of the metric, by what they are called.
    """

    models: Sequence[Measured]
    metric: str
    front: Collection[str]
    chosen: str
    limits: dict[str, float]


def scatter(view: View, width: int, height: int, key: str) -> str:
    """Draw it as SVG of a size; ``key`` makes its ids unique on the page."""
    svg = picture(width, height, key, _title(view), _description(view))
    frame = Box(64, 16, width - 80, height - 66)
    across, up = _axes(view, frame)
    _grid(svg, view, across, up, frame)
    taken = _limits(svg, view, up, frame)
    taken += _front_line(svg, view, across, up)
    points = [_Point(model, across, up, view, width) for model in sorted(view.models, key=lambda m: -m.value("size"))]
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
    """One model in the picture."""

    def __init__(self, model: Measured, across: Axis, up: Axis, view: View, width: int) -> None:
        self.model, self.across, self.up, self.view = model, across, up, view
        self.x, self.y = across(model.value("latency")), up(model.value(view.metric))
        largest = max(other.value("size") for other in view.models)
        self.radius = max(LEAST, LARGEST * math.sqrt(width / 760 * model.value("size") / largest))
        self.name = shortened(model.name, 26 if width > 500 else 17)
        self.size = wording.data_size(model.value("size"))
        self.kind = "chosen" if model.name == view.chosen else "parent" if model.parent is None else "other"

    @property
    def stands_out(self) -> bool:
        return self.kind != "other" or self.model.name in self.view.front

    @property
    def anchor(self) -> Anchor:
        letters = max(len(self.name), len(self.size))
        return Anchor(self.x, self.y, self.radius, letters * LETTER + 4, 28)

    def bars(self, svg: ET.Element) -> list[Box]:
        """Draw the intervals of the differences to the parent, around the parent's value."""
        if self.model.parent is None:
            return []
        moved = {metric: self.model.change(metric) for metric in (self.view.metric, "latency")}
        base = {metric: self.model.parent.value(metric) for metric in moved}
        low, high = (self.up(base[self.view.metric] + end) for end in moved[self.view.metric].interval)
        left, right = (self.across(max(base["latency"] + end, self.across.low)) for end in moved["latency"].interval)
        ends = (self.x, low, self.x, high), (left, self.y, right, self.y)
        for x1, y1, x2, y2 in ends:
            element(svg, "line", class_=f"bar {self.kind}", x1=x1, y1=y1, x2=x2, y2=y2)
        return [Box(min(x1, x2) - 2, min(y1, y2) - 2, abs(x2 - x1) + 4, abs(y2 - y1) + 4) for x1, y1, x2, y2 in ends]

    def draw(self, svg: ET.Element) -> None:
        """Draw the bubble, filled on the front."""
        on_front = "front" if self.model.name in self.view.front else "off"
        group = element(svg, "g")
        element(group, "title", self._tooltip())
        element(group, "circle", class_=f"bubble {self.kind} {on_front}", cx=self.x, cy=self.y, r=self.radius)

    def label(self, svg: ET.Element, box: Box, *, crowded: bool) -> None:
        """Write name and size, with a line to the point where it is not plain which point is meant."""
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
        text = element(svg, "text", class_=f"label {self.kind}", x=x, y=line, text_anchor=side)
        element(text, "tspan", self.name, class_="name")
        element(text, "tspan", self.size, class_="size", x=x, dy=14)

    def _tooltip(self) -> str:
        value = wording.amount(self.view.metric, self.model.value(self.view.metric))
        return f"{self.model.name}: {value}, {wording.amount('latency', self.model.value('latency'))}, {self.size}"


def _axes(view: View, frame: Box) -> tuple[Axis, Axis]:
    times, values = [], list(view.limits.values())
    for model in view.models:
        base = model.parent or model
        times += [model.value("latency"), *(base.value("latency") + end for end in model.change("latency").interval)]
        values += [model.value(view.metric), *(base.value(view.metric) + e for e in model.change(view.metric).interval)]
    times = [time for time in times if time > 0]
    across = spanning(times, frame.left, frame.left + frame.width, logarithmic=max(times) > LOG_FROM * min(times))
    least = 0.01 if wording.is_share(view.metric) else 0.1 * max(abs(value) for value in values)
    up = spanning(values, frame.top + frame.height, frame.top, least=least)
    if not view.models[0].higher_is_better(view.metric):
        up = Axis(up.high, up.low, up.start, up.end)
    return across, up


def _grid(svg: ET.Element, view: View, across: Axis, up: Axis, frame: Box) -> None:
    bottom, right = frame.top + frame.height, frame.left + frame.width
    share = wording.is_share(view.metric)
    for value in up.ticks(44):
        if share and value > 1 + 1e-9:
            continue
        y = up(value)
        element(svg, "line", class_="grid", x1=frame.left, y1=y, x2=right, y2=y)
        said = f"{100 * value:.4g}%" if share else plain(value)
        element(svg, "text", said, class_="tick", x=frame.left - 8, y=y + 4, text_anchor="end")
    for value in across.ticks(52):
        x = across(value)
        element(svg, "line", class_="grid", x1=x, y1=frame.top, x2=x, y2=bottom)
        element(svg, "text", plain(value), class_="tick", x=x, y=bottom + 18, text_anchor="middle")
    said = "latency in ms (p50), faster to the left"
    element(svg, "text", said, class_="axis", x=frame.left + frame.width / 2, y=bottom + 40, text_anchor="middle")
    turned = f"translate(14 {frame.top + frame.height / 2:.1f}) rotate(-90)"
    said = f"{wording.title(view.metric)}, better upwards"
    element(svg, "text", said, class_="axis", text_anchor="middle", transform=turned)


def _limits(svg: ET.Element, view: View, up: Axis, frame: Box) -> list[Box]:
    taken = []
    for name, value in view.limits.items():
        y, right = up(value), frame.left + frame.width
        element(svg, "line", class_="limit", x1=frame.left, y1=y, x2=right, y2=y)
        element(svg, "text", name, class_="limit-name", x=right - 4, y=y + 14, text_anchor="end")
        width = len(name) * LETTER
        taken += [Box(right - 4 - width, y + 3, width, 14), Box(frame.left, y - 4, frame.width, 8)]
    return taken


def _front_line(svg: ET.Element, view: View, across: Axis, up: Axis) -> list[Box]:
    """Draw steps through the models that are best in quality for their latency."""
    steps: list[tuple[float, float]] = []
    for model in sorted(view.models, key=lambda m: (m.value("latency"), up(m.value(view.metric)))):
        x, y = across(model.value("latency")), up(model.value(view.metric))
        if not steps or y < steps[-1][1]:
            steps += [(x, steps[-1][1]), (x, y)] if steps else [(x, y)]
    if len(steps) > 1:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
        element(svg, "polyline", class_="front-line", points=points)
    return [
        Box(min(x1, x2) - 1, min(y1, y2) - 1, abs(x2 - x1) + 2, abs(y2 - y1) + 2)
        for (x1, y1), (x2, y2) in itertools.pairwise(steps)
    ]


def _title(view: View) -> str:
    return f"{wording.title(view.metric).capitalize()}, latency and size of {len(view.models)} models"


def _description(view: View) -> str:
    said = "; ".join(
        f"{m.name}: {wording.amount(view.metric, m.value(view.metric))}, "
        f"{wording.amount('latency', m.value('latency'))}, {wording.data_size(m.value('size'))}"
        + (", on the Pareto front" if m.name in view.front else "")
        for m in view.models
    )
    return f"{said}. Chosen: {view.chosen}."
