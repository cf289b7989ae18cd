"""Draw bubble charts: better is up and to the left, bubbles on the Pareto front are filled and joined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import lets_plot as lp

from tfopt import formatting
from tfopt.charts.axis import Axis, create_axis
from tfopt.charts.figure import COLORS, TEXT_SIZE, WIDTHS, draw, page_theme, plain, to_markup
from tfopt.charts.label_check import count_collisions

LOG_FROM = 4  # ratio of the largest to the smallest value from which an axis is logarithmic
MOST_NAMED = 12  # with more bubbles only the important ones may have labels; the others have tooltips
LARGEST, LEAST = 24.0, 5.0  # radii in pixels
SEEDS = 8  # placements that are tried
TOLERATED = 1  # collisions with which no label is removed: they are counted for the widest font of the page
STROKE = 2.0  # pixels
PIXELS_PER_SIZE, PIXELS_PER_STROKE = 1.1, 2.2  # radius and outline of a point in lets-plot's units
KINDS = {"chosen": "accent", "parent": "parent", "other": "other"}

Range = tuple[float, float]


@dataclass(frozen=True)
class Bubble:
    """One measured item of a bubble chart.

    Attributes:
        name: First line of the label.
        note: Second line of the label.
        tooltip: Text of the tooltip.
        across: Value on the horizontal axis; lower is better.
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
        title: Title for screen readers.
        description: Full description for screen readers.
        across: Label of the horizontal axis.
        up: Label of the vertical axis.
        more_is_better: True if higher values of ``up`` are better.
        share: True if ``up`` is a fraction, shown in percent.
        least: Minimum range of the vertical axis.
        spread: True if the vertical axis may be logarithmic.
        limits: Values of ``up`` for horizontal lines.
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
    limits: Sequence[float] = ()


def draw_both_widths(chart: BubbleChart, key: str) -> list[str]:
    """Draw the chart as SVG in each of `WIDTHS`, higher for more labels; ``key`` begins the element ids."""
    named = min(len(chart.bubbles), MOST_NAMED)
    heights = {"wide": 360 + 14 * named, "narrow": 300 + 24 * named}
    return [draw_bubbles(chart, width, heights[name], f"{key}-{name}") for name, width in WIDTHS.items()]


def draw_bubbles(chart: BubbleChart, width: int, height: int, key: str) -> str:
    """Draw the chart as SVG of a size in pixels; ``key`` makes the element ids unique on the page."""
    bubbles = sorted(chart.bubbles, key=lambda bubble: -bubble.area)  # smaller ones are drawn on top
    across, up = _axes(chart)
    plot = lp.ggplot()
    for layer in (*_front_line(bubbles, across, up), *_bars(bubbles, across, up)):
        plot += layer
    for value in chart.limits:
        plot += lp.geom_hline(yintercept=up(value), color=COLORS["goal"], linetype="dashed", size=0.7)
    plot += _circles(bubbles, across, up, width)
    plot += lp.scale_identity(["size", "point_size", "color", "fill"])
    plot += across.scale(lp.scale_x_continuous, width // 75) + up.scale(lp.scale_y_continuous, height // 60)
    plot += lp.labs(x=chart.across, y=chart.up) + page_theme()
    drawn = _draw_with_labels(plot, bubbles, across, up, width, height)
    return to_markup(drawn, key, chart.title, chart.description, [bubble.tooltip for bubble in bubbles])


def _draw_with_labels(
    plot: Any, bubbles: Sequence[Bubble], across: Axis, up: Axis, width: int, height: int
) -> ET.Element:
    """Draw the chart with the first placement of labels that has no collisions, or the one with the fewest.

    While each placement has several, bubbles lose their labels, the least important ones first, and have tooltips only.
    """
    named = [bubble for bubble in bubbles if len(bubbles) <= MOST_NAMED or bubble.kind != "other" or bubble.front]
    removable = sorted(
        (bubble for bubble in named if bubble.kind == "other"), key=lambda bubble: (bubble.front, -bubble.across)
    )
    best, fewest = None, math.inf
    while True:
        labels = _labels(bubbles, named, across, up, width)
        owners = [index for index, label in enumerate(labels["label"]) if label]
        for seed in range(SEEDS):
            drawn = draw(plot + _label_layer(labels, seed), width, height)
            collisions = count_collisions(drawn, owners)
            if collisions < fewest:
                best, fewest = drawn, collisions
            if not collisions:
                break
        if fewest <= TOLERATED or not removable:
            assert best is not None
            return best
        removed = [removable.pop(0) for _ in range(1 + len(removable) // 4)]
        named = [bubble for bubble in named if bubble not in removed]


def _axes(chart: BubbleChart) -> tuple[Axis, Axis]:
    times, values = [], list(chart.limits)
    for bubble in chart.bubbles:
        level, upright = bubble.ranges or ((), ())
        times += [bubble.across, *level]
        values += [bubble.up, *upright]
    times = [time for time in times if time > 0]
    alike = max(times) if max(times) == min(times) else 0  # all values equal: an axis must have a range above zero
    is_far = max(times) > LOG_FROM * min(times)
    is_spread = chart.spread and min(values) > 0 and max(values) > LOG_FROM * min(values)
    return create_axis(times, is_log=is_far, least=alike), create_axis(
        values, is_log=is_spread, is_share=chart.share, is_reversed=not chart.more_is_better, least=chart.least
    )


def _front_line(bubbles: Sequence[Bubble], across: Axis, up: Axis) -> list[Any]:
    """Return a step line through the bubbles that no faster one exceeds, if there are several."""
    best: list[Bubble] = []
    sign = -1 if up.is_reversed else 1
    for bubble in sorted(bubbles, key=lambda one: (one.across, -sign * one.up)):
        if not best or sign * bubble.up > sign * best[-1].up:
            best.append(bubble)
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
    data = _positions(bubbles, across, up) | {
        "size": _sizes(bubbles, width),
        "color": [_color(bubble) for bubble in bubbles],
        "fill": [_color(bubble) if bubble.front else COLORS["card"] for bubble in bubbles],
    }
    mapping = lp.aes("x", "y", size="size", color="color", fill="fill")
    return lp.geom_point(mapping, data=data, shape=21, alpha=0.55, stroke=STROKE / PIXELS_PER_STROKE)


def _labels(
    bubbles: Sequence[Bubble], named: Sequence[Bubble], across: Axis, up: Axis, width: int
) -> dict[str, list[Any]]:
    """Return the labels of all bubbles; those without one have an empty text and keep others at a distance."""
    names = formatting.shorten_names([bubble.name for bubble in bubbles], 26 if width > 500 else 17)
    return _positions(bubbles, across, up) | {
        "label": [
            f"{plain(name)}\n{plain(bubble.note)}" if bubble in named else ""
            for name, bubble in zip(names, bubbles, strict=True)
        ],
        "color": [_color(bubble) if bubble.kind != "other" else COLORS["ink"] for bubble in bubbles],
        "point_size": _sizes(bubbles, width),
    }


def _label_layer(labels: dict[str, list[Any]], seed: int) -> Any:
    """Return a layer of labels that are moved away from each other and from all bubbles."""
    return lp.geom_text_repel(
        lp.aes("x", "y", label="label", color="color", point_size="point_size"),
        data=labels,
        size=TEXT_SIZE,
        fontface="bold",
        max_iter=300,
        box_padding=4,
        point_padding=3,
        min_segment_length=0,  # a line shows which bubble a label belongs to
        seed=seed,
        max_time=-1,  # the result does not depend on the machine's speed
        max_overlaps=-1,
        segment_color=COLORS["ink"],
        segment_size=0.4,
    )


def _positions(bubbles: Sequence[Bubble], across: Axis, up: Axis) -> dict[str, list[Any]]:
    return {"x": [across(bubble.across) for bubble in bubbles], "y": [up(bubble.up) for bubble in bubbles]}


def _sizes(bubbles: Sequence[Bubble], width: int) -> list[float]:
    """Return the sizes of points in lets-plot's unit; areas are proportional."""
    largest = max(bubble.area for bubble in bubbles)
    radii = [max(LEAST, LARGEST * math.sqrt(width / 760 * bubble.area / largest)) for bubble in bubbles]
    return [(radius - STROKE / 2) / PIXELS_PER_SIZE for radius in radii]


def _color(bubble: Bubble) -> str:
    return COLORS[KINDS[bubble.kind]]
