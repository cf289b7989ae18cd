"""Draw bubble charts: better is up and to the left, bubbles on the Pareto front are filled and joined."""

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree as ET

import lets_plot as lp
import numpy as np
from numpy.typing import NDArray
from PIL import ImageFont

from tfopt import formatting
from tfopt.charts.axis import Axis, create_axis
from tfopt.charts.figure import COLORS, SVG, WIDTHS, draw, page_theme, to_markup
from tfopt.charts.label_placement import Box, Label, Obstacles, Point, free_boxes, place_labels

LOG_FROM = 4  # ratio of the largest to the smallest value from which an axis is logarithmic
MOST_NAMED = 16  # with more bubbles only the important ones may have labels and bars; the others have tooltips
MOST_AT_A_POINT = 3  # with more bubbles at one point, one label stands for them
LARGEST, LEAST = 24.0, 5.0  # radii in pixels
STROKE = 2.0  # pixels
FONT, LINE = 12.0, 13.0  # size of the font, and distance of lines, in pixels
WIDER, WIDER_BOLD = 1.13, 1.3  # text in the widest font of the page, DejaVu Sans, relative to Pillow's font
STRIP, FRAME = 26, 44  # pixels of an edge with goals that are out of the picture, of the horizontal axis
GROWTH = 0.4  # an axis is extended to goals by this share of its length at most
PIXELS_PER_SIZE, PIXELS_PER_STROKE = 1.1, 2.2  # radius and outline of a point in lets-plot's units
KINDS = {"chosen": "accent", "baseline": "baseline", "other": "other"}

Range = tuple[float, float]


@dataclass(frozen=True)
class Bubble:
    """One measured item of a bubble chart."""

    name: str  # first line of the label
    note: str  # second line of the label
    tooltip: str  # text of the tooltip
    across: float  # value on the horizontal axis; lower is better
    up: float
    area: float
    kind: str = "other"  # ``chosen``, ``baseline`` or ``other``; selects the color
    front: bool = False  # True if it is on the Pareto front
    ranges: tuple[Range, Range] | None = None  # intervals of ``across`` and ``up``, drawn as bars; None to draw no bars


@dataclass(frozen=True)
class BubbleChart:
    """The content of a bubble chart."""

    bubbles: Sequence[Bubble]
    title: str  # title for screen readers
    description: str  # full description for screen readers
    across: str  # label of the horizontal axis
    up: str  # label of the vertical axis
    more_is_better: bool = True  # True if higher values of ``up`` are better
    share: bool = False  # True if ``up`` is a fraction, shown in percent
    least: float = 0  # minimum range of the vertical axis
    spread: bool = False  # True if the vertical axis may be logarithmic
    # goals for ``up`` by their texts: horizontal lines, or an arrow at the edge for those far from the data
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Goal:
    """A goal in a picture."""

    words: str
    down: float  # its position from 0, the upper edge, to 1, the lower edge
    is_distant: bool = False  # True if it is beyond that edge


def draw_both_widths(chart: BubbleChart, key: str) -> list[str]:
    """Draw the chart as SVG in each of `WIDTHS`, higher for more labels; ``key`` begins the element ids."""
    named = min(len(chart.bubbles), MOST_NAMED)
    heights = {"wide": 360 + 14 * named, "narrow": 300 + 24 * named}
    return [draw_bubbles(chart, width, heights[name], f"{key}-{name}") for name, width in WIDTHS.items()]


def draw_bubbles(chart: BubbleChart, width: int, height: int, key: str) -> str:
    """Draw the chart as SVG of a size in pixels; ``key`` makes the element ids unique on the page."""
    # smaller ones are drawn on top, and the selected one over others of its size
    bubbles = sorted(chart.bubbles, key=lambda bubble: (-bubble.area, bubble.kind == "chosen"))
    important = _most_important(bubbles)
    across, (up, distant) = _horizontal_axis(chart), _vertical_axis(chart, height - FRAME)
    plot = lp.ggplot()
    for layer in (
        *_front_line(best_by_speed(chart), across, up),
        *_bars([bubbles[index] for index in important], across, up),
    ):
        plot += layer
    for text, value in chart.limits.items():
        if text not in distant:
            plot += lp.geom_hline(yintercept=up(value), color=COLORS["goal"], linetype="dashed", size=0.7)
    plot += _circles(bubbles, across, up, width)
    plot += lp.scale_identity(["size", "color", "fill"])
    plot += across.scale(lp.scale_x_continuous, width // 75) + up.scale(lp.scale_y_continuous, height // 60)
    plot += lp.labs(x=chart.across, y=chart.up) + page_theme()
    drawn = draw(plot, width, height)
    _add_texts(drawn, bubbles, important, _goals(chart, up, distant), 26 if width > 500 else 17)
    return to_markup(drawn, key, chart.title, chart.description, [bubble.tooltip for bubble in bubbles])


def _most_important(bubbles: Sequence[Bubble]) -> list[int]:
    few = len(bubbles) <= MOST_NAMED
    ranks = {
        index: (bubble.kind == "other", not bubble.front, bubble.across)
        for index, bubble in enumerate(bubbles)
        if few or bubble.kind != "other" or bubble.front
    }
    return sorted(ranks, key=lambda index: ranks[index])[:MOST_NAMED]


def _horizontal_axis(chart: BubbleChart) -> Axis:
    times = [time for bubble in chart.bubbles for time in (bubble.across, *(bubble.ranges or ((),))[0]) if time > 0]
    alike = max(times) if max(times) == min(times) else 0  # all values equal: an axis must have a range above zero
    return create_axis(times, is_log=max(times) > LOG_FROM * min(times), least=alike)


def _vertical_axis(chart: BubbleChart, pixels: int) -> tuple[Axis, dict[str, bool]]:
    """Return an axis of a length for the data and the goals near them, and whether each other goal is above it."""
    values = [bubble.up for bubble in chart.bubbles]
    ends = [*values, *(end for bubble in chart.bubbles if bubble.ranges for end in bubble.ranges[1])]
    is_log = chart.spread and min(ends) > 0 and max(ends) > LOG_FROM * min(ends)
    if not is_log and 3 * (max(values) - min(values)) < max(ends) - min(ends):  # the values are in the middle
        middle = (max(values) + min(values)) / 2
        reach = max(max(ends) - middle, middle - min(ends))
        ends += [middle - reach, middle + reach]
    is_reversed = not chart.more_is_better
    create = functools.partial(
        create_axis, is_log=is_log, is_share=chart.share, is_reversed=is_reversed, least=chart.least
    )
    axis = create(ends)
    near = axis.extended(GROWTH, GROWTH)
    inside = [value for value in chart.limits.values() if near.low <= value <= near.high]
    axis = create([*ends, *inside])
    distant = {text: value > axis.high for text, value in chart.limits.items() if value not in inside}
    strip = STRIP / (pixels - 2 * STRIP)
    return axis.extended(strip * (False in distant.values()), strip * (True in distant.values())), distant


def _goals(chart: BubbleChart, up: Axis, distant: Mapping[str, bool]) -> list[_Goal]:
    low, high = up(up.low), up(up.high)
    goals: list[_Goal] = []
    for is_above in (False, True):
        texts = [text for text, above in distant.items() if above == is_above]
        if texts:
            down, arrow = (0, "\N{UPWARDS ARROW}") if is_above != up.is_reversed else (1, "\N{DOWNWARDS ARROW}")
            goals.append(_Goal(f"{arrow} goal {', '.join(texts)}", down, is_distant=True))
    for text, value in chart.limits.items():
        if text not in distant:
            part = (high - up(value)) / (high - low)
            goals.append(_Goal(f"goal {text}", 1 - part if up.is_reversed else part))
    return goals


def best_by_speed(chart: BubbleChart) -> list[Bubble]:
    """Return the bubbles that no faster one exceeds; a line joins them if there are several."""
    best: list[Bubble] = []
    sign = 1 if chart.more_is_better else -1
    for bubble in sorted(chart.bubbles, key=lambda one: (one.across, -sign * one.up)):
        if not best or sign * bubble.up > sign * best[-1].up:
            best.append(bubble)
    return best


def _front_line(best: Sequence[Bubble], across: Axis, up: Axis) -> list[Any]:
    line = {"x": [across(bubble.across) for bubble in best], "y": [up(bubble.up) for bubble in best]}
    step = lp.geom_step(lp.aes("x", "y"), data=line, color=COLORS["soft"], size=0.5, linetype="dotted")
    return [step] if len(best) > 1 else []


def _bars(bubbles: Sequence[Bubble], across: Axis, up: Axis) -> list[Any]:
    """Return a layer with the intervals as a vertical and a horizontal line for each bubble, if any has some."""
    bars: list[tuple[Any, ...]] = []
    for bubble in bubbles:
        if bubble.ranges:
            (left, right), (low, high) = bubble.ranges
            x, y = across(bubble.across), up(bubble.up)
            bars += [(x, up(low), x, up(high), _color(bubble)), (across(left), y, across(right), y, _color(bubble))]
    ends = dict(zip(("x", "y", "xend", "yend", "color"), map(list, zip(*bars, strict=True)), strict=False))
    mapping = lp.aes("x", "y", xend="xend", yend="yend", color="color")
    return [lp.geom_segment(mapping, data=ends, size=0.7)] if bars else []


def _circles(bubbles: Sequence[Bubble], across: Axis, up: Axis, width: int) -> Any:
    data = {
        "x": [across(bubble.across) for bubble in bubbles],
        "y": [up(bubble.up) for bubble in bubbles],
        "size": _sizes(bubbles, width),
        "color": [_color(bubble) for bubble in bubbles],
        "fill": [_color(bubble) if bubble.front else COLORS["card"] for bubble in bubbles],
    }
    mapping = lp.aes("x", "y", size="size", color="color", fill="fill")
    return lp.geom_point(mapping, data=data, shape=21, alpha=0.55, stroke=STROKE / PIXELS_PER_STROKE)


def _add_texts(
    drawn: ET.Element, bubbles: Sequence[Bubble], important: Sequence[int], goals: Sequence[_Goal], letters: int
) -> None:
    """Write the labels of bubbles and goals into a drawn chart, where nothing is drawn."""
    panel = next(group for group in drawn.iter(f"{SVG}g") if "clip-path" in group.attrib)[0]
    rect = drawn.find(f".//{SVG}clipPath/{SVG}rect")
    assert rect is not None
    size = (float(rect.attrib["width"]), float(rect.attrib["height"]))
    circles = np.array([_numbers(circle, "cx", "cy", "r") for circle in panel.iter(f"{SVG}circle")])
    obstacles = Obstacles(size, circles, np.array(_lines(panel)).reshape(-1, 4), np.empty((0, 4)))
    for goal in goals:
        if box := _goal_box(goal, obstacles):
            obstacles = replace(obstacles, boxes=np.vstack([obstacles.boxes, [*vars(box).values()]]))
            panel.append(_text(goal.words, box.right, box.top, "end", "goal", COLORS["goal"]))
    texts = _label_texts(bubbles, important, circles, letters)
    widths = (max(_text_width(lines[0], WIDER_BOLD), *map(_text_width, lines)) for lines in texts.values())
    heights = (LINE * len(lines) + 1 for lines in texts.values())
    labelled = zip(circles[[*texts]].tolist(), widths, heights, strict=True)
    points = [Point(x, y, radius, width, height) for (x, y, radius), width, height in labelled]
    for (index, lines), label in zip(texts.items(), place_labels(points, obstacles), strict=True):
        if label:
            panel.append(_label(lines, label, bubbles[index]))


def _label_texts(
    bubbles: Sequence[Bubble], important: Sequence[int], circles: NDArray[np.float64], letters: int
) -> dict[int, list[str]]:
    """Return the lines of each label by the index of its bubble; one label stands for many bubbles at one point."""
    names = formatting.shorten_names([bubble.name for bubble in bubbles], letters)
    texts: dict[int, list[str]] = {}
    for index in important:
        note = bubbles[index].note
        alike = np.hypot(*(circles[:, :2] - circles[index, :2]).T) < STROKE
        others = [other for other in np.flatnonzero(alike).tolist() if bubbles[other].kind == "other"]
        if len(others) > MOST_AT_A_POINT and bubbles[index].kind == "other":
            if texts.keys() & set(others):
                continue
            note = f"{note}, {len(others) - 1} more here"
        texts[index] = [formatting.visible(line) for line in (names[index], note) if line]
    return texts


def _label(lines: Sequence[str], label: Label, bubble: Bubble) -> ET.Element:
    group = ET.Element(f"{SVG}g")
    texts = ET.SubElement(group, f"{SVG}g")
    color = COLORS["ink"] if bubble.kind == "other" else _color(bubble)
    for number, (line, kind) in enumerate(zip(lines, ("name", "note"), strict=False)):
        across, top = (label.box.left + label.box.right) / 2, label.box.top + LINE * number
        texts.append(_text(line, across, top, "middle", kind, color))
    ends = dict(zip(("x1", "y1", "x2", "y2"), (f"{end:.1f}" for end in label.line), strict=True))
    ET.SubElement(group, f"{SVG}line", ends | {"stroke": COLORS["ink"], "stroke-width": "0.9"})
    return group


def _goal_box(goal: _Goal, obstacles: Obstacles) -> Box | None:
    """Return the place of a goal's text: at the edge, or along its line where nothing is drawn, else None."""
    width, height = _text_width(goal.words), LINE + 1
    right = np.arange(obstacles.size[0] - 4, width, -8)
    line = goal.down * obstacles.size[1]
    tops = [abs(line - 3) - (height if goal.down else 0)] if goal.is_distant else [line - height - 4, line + 4]
    boxes = np.array([(x - width, top, x, top + height) for top in tops for x in right])
    free = boxes[free_boxes(boxes, obstacles)]
    if not len(free) and not goal.is_distant:
        return None
    return Box(*(free if len(free) else boxes)[0].tolist())


def _text(words: str, across: float, top: float, anchor: str, kind: str, color: str) -> ET.Element:
    place = {"x": f"{across:.1f}", "y": f"{top + FONT - 1:.1f}", "text-anchor": anchor}
    look = {"class": kind, "fill": color, "style": f"font-size:{FONT}px"}
    element = ET.Element(f"{SVG}text", place | look)
    element.text = words
    return element


def _lines(panel: ET.Element) -> list[list[float]]:
    lines = [_numbers(line, "x1", "y1", "x2", "y2") for line in panel.iter(f"{SVG}line")]
    for path in panel.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
        corners = list(zip(numbers[::2], numbers[1::2], strict=True))
        lines += [[*start, *end] for start, end in itertools.pairwise(corners)]
    return lines


def _numbers(element: ET.Element, *names: str) -> list[float]:
    return [float(element.attrib[name]) for name in names]


def _text_width(text: str, wider: float = WIDER) -> float:
    return wider * _font().getlength(text)


@functools.cache
def _font() -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(FONT)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font


def _sizes(bubbles: Sequence[Bubble], width: int) -> list[float]:
    """Return the sizes of points in lets-plot's unit; areas are proportional."""
    largest = max(bubble.area for bubble in bubbles)
    radii = [max(LEAST, LARGEST * math.sqrt(width / 760 * bubble.area / largest)) for bubble in bubbles]
    return [(radius - STROKE / 2) / PIXELS_PER_SIZE for radius in radii]


def _color(bubble: Bubble) -> str:
    return COLORS[KINDS[bubble.kind]]
