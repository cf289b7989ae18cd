"""Test docs/diagram.py: all nodes and wires are drawn, boxes do not overlap, and no wire crosses a box."""

import re
import sys
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tfopt.dag.tracing import load, pipelines

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def diagram():
    sys.path.insert(0, str(DOCS))
    try:
        import diagram

        yield diagram
    finally:
        sys.path.remove(str(DOCS))


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of each box."""
    areas = []
    for box in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        left, top, width, height = (float(box.get(key)) for key in ("x", "y", "width", "height"))
        areas.append((left, top, left + width, top + height))
    return areas


def pictures(diagram) -> list[str]:
    flowchart = (DOCS / "architecture.mmd").read_text()
    return [diagram.draw_flowchart(flowchart), *(diagram.draw_dag(load(name)) for name in pipelines())]


def test_boxes_do_not_overlap_and_are_in_the_picture(diagram):
    for svg in pictures(diagram):
        width, height = map(float, ElementTree.fromstring(svg).get("viewBox").split()[2:])
        for one, other in combinations(boxes(svg), 2):
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert all(
            left >= 0 and top >= 0 and right <= width and bottom <= height for left, top, right, bottom in boxes(svg)
        )


def test_wires_touch_boxes_at_their_ends_only(diagram):
    for svg in pictures(diagram):
        for path in re.findall(r'<path d="([^"]+)"', svg):
            _, top, *_, end_x, bottom = map(float, re.findall(r"[\d.]+", path.partition(" V")[0]))
            assert not [box for box in boxes(svg) if box[1] < bottom and box[3] > top]
            through = re.search(r" V(\d+)", path)
            lowest = float(through[1]) if through else bottom
            assert not [box for box in boxes(svg) if box[0] < end_x < box[2] and box[1] < lowest and box[3] > bottom]


def test_every_source_and_step_of_a_dag_is_drawn_with_a_wire(diagram):
    dag = load("retrain")
    svg = diagram.draw_dag(dag)
    assert len(boxes(svg)) == len(dag.steps) + len(dag.sources)
    for name in [*dag.sources, *(step.component.name for step in dag.steps.values())]:
        assert f">{name}</text>" in svg
    assert svg.count("<path") >= len(dag.steps) + len(dag.sources) - 1


def test_wires_that_a_longer_path_implies_are_not_drawn(diagram):
    edges = diagram.draw_flowchart('A["a"] --> B["b"]\nB --> C["c"]').count("<path")
    assert edges == 2
    assert 'aria-label="DAG of retrain"' in diagram.draw_dag(load("retrain"))
    exports = sum(step.component.name.startswith("export") for step in load("retrain").steps.values())
    # five sources; train; fold; then two wires of each export and one to it; four steps and select's two
    assert diagram.draw_dag(load("retrain")).count("<path") == 5 + 1 + 1 + 3 * exports + 5


def test_a_line_that_is_not_understood_is_refused(diagram):
    with pytest.raises(ValueError, match="one arrow in a line"):
        diagram.draw_flowchart('A["a"] --> B["b"] --> C["c"]')
