"""Place labels next to the points of a chart, so that no label covers or crosses anything; all lengths in pixels.

The work is bounded: each label has a place for each of `DIRECTIONS` and `DISTANCES`, and the labels are placed in
`ROUNDS` orders at most. A label without a free place is left out.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Line: TypeAlias = tuple[float, float, float, float]  # x1, y1, x2, y2

# Places of a label: directions around its point, and distances between the edges of both, the preferred ones first.
DIRECTIONS = tuple(math.radians(angle) for angle in (0, 180, 90, 270, *range(9, 360, 9)))
DISTANCES = (6, 14, 24, 36, 50, 66, 86, 110, 140, 180, 230)
ROUNDS = 12
FREE = 2.0  # pixels between a label and everything else


@dataclass(frozen=True)
class Box:
    """The rectangle of a text."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Point:
    """A circle that gets a label of a width and a height."""

    x: float
    y: float
    radius: float
    width: float
    height: float


@dataclass(frozen=True)
class Label:
    """A placed label, and the line from its point to it."""

    box: Box
    line: Line


@dataclass(frozen=True)
class Obstacles:
    """Hold the drawn things that labels must not touch."""

    size: tuple[float, float]  # width and height of the chart; labels are inside of it
    circles: Floats  # x, y and radius of all points
    lines: Floats  # the ends of all drawn lines
    boxes: Floats  # left, top, right and bottom of other texts


def place_labels(points: Sequence[Point], obstacles: Obstacles) -> list[Label | None]:
    """Place the labels of points, the most important first; None for each that has no free place."""
    choices = [_free_places(point, obstacles) for point in points]
    order = list(range(len(points)))
    best: list[Label | None] = [None] * len(points)
    for _ in range(ROUNDS):
        labels = _place_in_order(order, choices)
        best = min(best, labels, key=_lack)
        if None not in best:
            break
        order.sort(key=lambda index: labels[index] is not None)  # those without a place first
    return best


def _lack(labels: Sequence[Label | None]) -> tuple[bool, ...]:
    """Return what placements are compared by: the two most important labels, then the number of those left out."""
    missing = [label is None for label in labels]
    return (*missing[:2], *sorted(missing, reverse=True))


def _place_in_order(order: Sequence[int], choices: Sequence[Floats]) -> list[Label | None]:
    """Give each label, in an order, its first place that is free of the labels before it."""
    placed: list[Label | None] = [None] * len(choices)
    used: list[Floats] = []
    for index in order:
        free = choices[index]
        for place in used:
            free = free[_are_apart(free, place)]
        if len(free):
            used.append(free[:1])
            *box, x1, y1, x2, y2 = free[0].tolist()
            placed[index] = Label(Box(*box), (x1, y1, x2, y2))
    return placed


def _are_apart(places: Floats, other: Floats) -> Mask:
    """Test which places of a label neither touch nor cross another label, which is one row; their points may be one."""
    (boxes, lines), (box, line) = ((_grown(part[:, :4]), part[:, 4:]) for part in (places, other))
    apart: Mask = ~(_hits(box, lines)[0] | _hits(boxes, line)[:, 0] | _cross(lines, line) | _overlap(boxes, box[0]))
    return apart


def _grown(boxes: Floats) -> Floats:
    return np.add(boxes, [-FREE, -FREE, FREE, FREE])


def _overlap(boxes: Floats, other: Floats) -> Mask:
    sizes = np.minimum(boxes[:, 2:], other[2:]) - np.maximum(boxes[:, :2], other[:2])
    overlap: Mask = np.minimum(sizes[:, 0], sizes[:, 1]) > 0
    return overlap


def _free_places(point: Point, obstacles: Obstacles) -> Floats:
    """Return the box and the line of each place that covers nothing but other labels, the preferred ones first."""
    pairs = np.array([*itertools.product(DISTANCES, DIRECTIONS)])
    reach, across, down = pairs[:, 0] + point.radius, np.cos(pairs[:, 1]), np.sin(pairs[:, 1])
    center_x = point.x + across * (reach + point.width / 2)
    center_y = point.y + down * (reach + point.height / 2)
    half = np.array([point.width, point.height]) / 2
    boxes = np.stack([center_x - half[0], center_y - half[1], center_x + half[0], center_y + half[1]], axis=1)
    # the line from the edge of the circle to the nearest point of the box
    end_x, end_y = np.clip(point.x, boxes[:, 0], boxes[:, 2]), np.clip(point.y, boxes[:, 1], boxes[:, 3])
    length = np.maximum(np.hypot(end_x - point.x, end_y - point.y), 1e-9)
    start_x = point.x + (end_x - point.x) * point.radius / length
    start_y = point.y + (end_y - point.y) * point.radius / length
    lines = np.stack([start_x, start_y, end_x, end_y], axis=1)
    apart = np.hypot(obstacles.circles[:, 0] - point.x, obstacles.circles[:, 1] - point.y)
    others = obstacles.circles[apart > point.radius + obstacles.circles[:, 2]]  # those that the point does not touch
    through = (_distances(lines, others[:, :2]) < others[:, 2] + FREE).any(axis=1)
    over_text = _hits(obstacles.boxes, lines).any(axis=0)
    free = free_boxes(boxes, obstacles) & ~through & ~over_text
    return np.concatenate([boxes, lines], axis=1)[free]


def free_boxes(boxes: Floats, obstacles: Obstacles) -> Mask:
    """Test which boxes are inside of the chart, and cover no circle, line or other box."""
    grown = _grown(boxes)
    inside = (grown[:, :2] >= 0).all(axis=1) & (grown[:, 2:] <= obstacles.size).all(axis=1)
    x, y, radius = obstacles.circles.T
    near_x = np.clip(x, grown[:, :1], grown[:, 2:3])
    near_y = np.clip(y, grown[:, 1:2], grown[:, 3:])
    on_circle = (np.hypot(near_x - x, near_y - y) < radius).any(axis=1)
    on_line = _hits(grown, obstacles.lines).any(axis=1)
    on_box = np.any([_overlap(grown, box) for box in obstacles.boxes], axis=0)
    free: Mask = inside & ~(on_circle | on_line | on_box)
    return free


def _hits(boxes: Floats, lines: Floats) -> Mask:
    """Test which of the boxes (rows) are touched by which of the lines (columns): Liang-Barsky clipping."""
    start, way = lines[None, :, :2], (lines[:, 2:] - lines[:, :2])[None]
    way = np.where(np.abs(way) < 1e-9, 1e-9, way)
    first, second = ((boxes[:, None, corner] - start) / way for corner in (slice(0, 2), slice(2, 4)))
    enter, leave = np.minimum(first, second).max(axis=2), np.maximum(first, second).min(axis=2)
    hit: Mask = np.maximum(enter, 0) < np.minimum(leave, 1)
    return hit


def _distances(lines: Floats, points: Floats) -> Floats:
    start, way = lines[:, None, :2], (lines[:, 2:] - lines[:, :2])[:, None]
    length = np.maximum((way**2).sum(axis=2), 1e-9)
    part = np.clip(((points[None] - start) * way).sum(axis=2) / length, 0, 1)
    distances: Floats = np.hypot(*np.moveaxis(start + part[..., None] * way - points[None], 2, 0))
    return distances


def _cross(lines: Floats, other: Floats) -> Mask:
    def side(line: Floats, point: Floats) -> Floats:
        (x1, y1, x2, y2), (x, y) = line.T, point.T
        value: Floats = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
        return value

    cross: Mask = (side(lines, other[:, :2]) * side(lines, other[:, 2:]) < 0) & (
        side(other, lines[:, :2]) * side(other, lines[:, 2:]) < 0
    )
    return cross
