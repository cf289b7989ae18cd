"""Place labels next to their points so that they do not cover each other, a point or the frame."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Degrees by preference; 90 is up.
DIRECTIONS = (0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160, 68, -68, 112, -112)
RINGS = (0, 14, 30, 48, 68, 92)
NEAR = 7  # pixels; a label closer to another point would seem to belong to that one


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels."""

    left: float
    top: float
    width: float
    height: float

    def overlap(self, other: "Box") -> float:
        """Return the area of the intersection."""
        across = min(self.left + self.width, other.left + other.width) - max(self.left, other.left)
        down = min(self.top + self.height, other.top + other.height) - max(self.top, other.top)
        return max(0.0, across) * max(0.0, down)

    def outside(self, frame: "Box") -> float:
        """Return the area outside a frame."""
        return self.width * self.height - self.overlap(frame)


@dataclass(frozen=True)
class Anchor:
    """A round point, and the size of its label."""

    x: float
    y: float
    radius: float
    width: float
    height: float

    def around(self, room: float) -> Box:
        """Return the square around the point with a margin."""
        reach = self.radius + room
        return Box(self.x - reach, self.y - reach, 2 * reach, 2 * reach)

    def touches(self, other: "Anchor") -> bool:
        """Return True if the points overlap."""
        return math.hypot(self.x - other.x, self.y - other.y) < self.radius + other.radius


def place_labels(anchors: Sequence[Anchor], occupied: Sequence[Box], frame: Box) -> list[Box]:
    """Return a box for each anchor's label; labels in crowded areas are placed first.

    Args:
        anchors: The points.
        occupied: Other boxes that labels must not cover.
        frame: The area for labels.
    """
    points = [a.around(0) for a in anchors]
    crowded = sorted(range(len(anchors)), key=lambda index: -_crowding(anchors, index))
    placed: dict[int, Box] = {}
    for index in crowded:
        strangers = [a.around(NEAR) for other, a in enumerate(anchors) if other != index]
        others = [*occupied, *points, *strangers, *placed.values()]
        boxes = [_adjacent_box(anchors[index], degrees, ring) for ring in RINGS for degrees in DIRECTIONS]
        costs = [
            100 * box.outside(frame) + 10 * sum(box.overlap(other) for other in others) + order
            for order, box in enumerate(boxes)
        ]
        placed[index] = boxes[costs.index(min(costs))]
    return [placed[index] for index in range(len(anchors))]


def _adjacent_box(anchor: Anchor, degrees: int, ring: float) -> Box:
    """Return the label's box in a direction from the point, at a distance."""
    across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    reach = anchor.radius + 5 + ring
    x, y = anchor.x + across * reach, anchor.y - up * reach
    left = x - anchor.width * (0.5 if abs(across) < 0.1 else float(across < 0))
    top = y - anchor.height * (0.5 if abs(up) < 0.1 else float(up > 0))
    return Box(left, top, anchor.width, anchor.height)


def _crowding(anchors: Sequence[Anchor], index: int) -> float:
    own = anchors[index]
    return sum(1 / (1 + math.hypot(own.x - other.x, own.y - other.y)) for other in anchors if other is not own)
