"""Test which labels of a drawn chart count as collisions."""

from xml.etree import ElementTree as ET

import pytest

from tfopt.charts.label_check import count_collisions

LABEL = '<g><g transform="rotate(0)"><g transform="translate({x}, {y})"><text>name</text></g></g>{line}</g>'


def draw(*labels: tuple[float, float], line: str = "<g/>") -> ET.Element:
    """Draw bubbles of radius 10 at (100, 100) and (300, 100), and labels in this order."""
    circles = "".join(f'<circle cx="{x}" cy="100" r="10"/>' for x in (100, 300))
    texts = "".join(LABEL.format(x=x, y=y, line=line) for x, y in labels)
    return ET.fromstring(
        f'<svg xmlns="http://www.w3.org/2000/svg"><rect width="400" height="200"/>{circles}{texts}</svg>'
    )


@pytest.mark.parametrize(
    ("labels", "collisions"),
    [
        ([(100, 100), (300, 100)], 0),  # each over its own bubble
        ([(300, 100), (100, 100)], 2),  # each over the other bubble
        ([(100, 130), (100, 135)], 1),  # over each other
        ([(0, 130), (300, 130)], 1),  # outside of the chart
    ],
)
def test_labels_collide_with_others_and_the_edge_and_not_with_their_own_bubble(labels, collisions):
    assert count_collisions(draw(*labels), [0, 1]) == collisions


@pytest.mark.parametrize(("end", "collisions"), [(310, 1), (250, 0), (150, 0)])
def test_the_line_of_a_label_collides_with_another_bubble_that_it_reaches(end, collisions):
    line = f'<g><line x1="100" y1="100" x2="{end}" y2="100"/></g>'
    assert count_collisions(draw((200, 150), line=line), [0]) == collisions
