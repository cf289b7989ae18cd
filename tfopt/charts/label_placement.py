"""Placing labels beside their points so that none covers another, a point or the frame."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

DIRECTIONS = (
    0,
    180,
    45,
    -45,
    135,
    -135,
    90,
    -90,
    20,
    -20,
    160,
    -160,
    68,
    -68,
    112,
    -112,
)  # degrees, in the order of preference; 90 is up
RINGS = (0, 14, 30, 48, 68, 92)
NEAR = 7  # a label this near to another point would be taken for that one's


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels."""

    left: float
    top: float
    width: float
    height: float

    def overlap(self, other: "Box") -> float:
        """The area both cover."""
        across = min(self.left + self.width, other.left + other.width) - max(self.left, other.left)
        down = min(self.top + self.height, other.top + other.height) - max(self.top, other.top)
        return max(0.0, across) * max(0.0, down)

    def outside(self, frame: "Box") -> float:
        """The area that is not in the frame."""
        return self.width * self.height - self.overlap(frame)


@dataclass(frozen=True)
class Anchor:
    """A round point that wants a label of some size."""

    x: float
    y: float
    radius: float
    width: float
    height: float

    def around(self, room: float) -> Box:
        """The square around the point."""
        reach = self.radius + room
        return Box(self.x - reach, self.y - reach, 2 * reach, 2 * reach)

    def touches(self, other: "Anchor") -> bool:
        """Whether the points cover each other."""
        return math.hypot(self.x - other.x, self.y - other.y) < self.radius + other.radius


def place(anchors: Sequence[Anchor], taken: Sequence[Box], frame: Box) -> list[Box]:
    """Return a box for each anchor's label, those with the least room first served.

    Args:
        anchors: The points.
        taken: What else must not be covered.
        frame: Where labels may be.
    """
    points = [a.around(0) for a in anchors]
    crowded = sorted(range(len(anchors)), key=lambda index: -_neighbours(anchors, index))
    placed: dict[int, Box] = {}
    for index in crowded:
        strangers = [a.around(NEAR) for other, a in enumerate(anchors) if other != index]
        others = [*taken, *points, *strangers, *placed.values()]
        boxes = [_beside(anchors[index], degrees, ring) for ring in RINGS for degrees in DIRECTIONS]
        costs = [
            100 * box.outside(frame) + 10 * sum(box.overlap(other) for other in others) + order
            for order, box in enumerate(boxes)
        ]
        placed[index] = boxes[costs.index(min(costs))]
    return [placed[index] for index in range(len(anchors))]


def _beside(anchor: Anchor, degrees: int, ring: float) -> Box:
    """The box whose nearest edge or corner lies in a direction, a little off the point."""
    across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    reach = anchor.radius + 5 + ring
    x, y = anchor.x + across * reach, anchor.y - up * reach
    left = x - anchor.width * (0.5 if abs(across) < 0.1 else float(across < 0))
    top = y - anchor.height * (0.5 if abs(up) < 0.1 else float(up > 0))
    return Box(left, top, anchor.width, anchor.height)


def _neighbours(anchors: Sequence[Anchor], index: int) -> float:
    own = anchors[index]
    return sum(1 / (1 + math.hypot(own.x - other.x, own.y - other.y)) for other in anchors if other is not own)
