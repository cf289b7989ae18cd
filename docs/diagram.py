"""Draw a directed graph as SVG, in rows: a DAG of tfopt, or a flowchart in a subset of Mermaid's language.

Mermaid's own script draws better, but a site would have to request it from elsewhere, and indexes of packages show no
Mermaid at all.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from tfopt.dag.dag import Dag, StepOutput

FONT, LETTER, LINE = 12, 7.0, 15  # px: text size, width of a letter, height of a line
GAP, SPACE = 12, 34  # px: between boxes of a row, between rows
STYLE = f"""
text {{ font: {FONT}px system-ui, sans-serif; text-anchor: middle; fill: #1f2328; }}
rect {{ fill: #dbeafe; stroke: #3b82f6; }}
rect.source {{ fill: #f3f4f6; stroke: #9ca3af; }}
path {{ fill: none; stroke: #8b949e; }}"""
NODE = re.compile(r'\b(\w+)\[\(?"(.*?)"\)?\]')
EDGE = re.compile(r"\s*(\w+) --> (\w+)")


@dataclass
class Box:
    """A node in the picture; without lines, a point that a wire passes in a row between its ends."""

    lines: list[str]
    is_source: bool = False
    row: int = 0
    left: float = 0
    top: float = 0
    height: float = 0

    @property
    def width(self) -> float:
        """The width of the box in pixels."""
        return max(map(len, self.lines)) * LETTER + 14 if self.lines else GAP

    @property
    def center(self) -> float:
        """The horizontal middle in pixels."""
        return self.left + self.width / 2


Edge = tuple[str, str]  # from, to


def draw_dag(dag: Dag) -> str:
    """Return the SVG of a DAG, without wires that a longer path implies."""
    boxes = {name: Box([name], is_source=True) for name in dag.sources}
    for name, step in dag.steps.items():
        variant = name.removeprefix(step.component.name).strip("_")
        boxes[name] = Box([step.component.name, variant] if variant else [step.component.name])
    parents: dict[str, set[str]] = {}
    for step in dag.steps.values():
        wires = [one for wire in step.inputs.values() for one in (wire if isinstance(wire, tuple) else (wire,))]
        parents[step.id] = {one.step if isinstance(one, StepOutput) else one.name for one in wires}
    edges = [
        (source, name)
        for name, sources in parents.items()
        for source in sorted(sources.difference(*(_ancestors(source, parents) for source in sources)))
    ]
    return _draw(boxes, edges, f"DAG of {dag.name}")


def draw_flowchart(text: str) -> str:
    """Return the SVG of a flowchart: lines like ``A["text<br>text"] --> B``."""
    boxes = {name: Box(label.split("<br>")) for name, label in NODE.findall(text)}
    edges = []
    for line in NODE.sub(r"\1", text).splitlines():
        if edge := EDGE.fullmatch(line):
            edges.append((edge[1], edge[2]))
        elif "-->" in line:
            raise ValueError(f"received: {line}\nexpected: A --> B\nhow to fix: write one arrow in a line")
    return _draw(boxes, edges, "flowchart")


def _ancestors(name: str, parents: dict[str, set[str]]) -> set[str]:
    direct = parents.get(name, set())
    return direct.union(*(_ancestors(parent, parents) for parent in direct))


def _draw(boxes: dict[str, Box], edges: list[Edge], title: str) -> str:
    _set_rows(boxes, edges)
    segments = _split(boxes, edges)
    _place(boxes, segments)
    right = max(box.left + box.width for box in boxes.values()) + 1
    bottom = max(box.top + box.height for box in boxes.values()) + 1
    wires = [_draw_wire(boxes[source], boxes[target]) for source, target in segments]
    drawn = [_draw_box(box) for box in boxes.values() if box.lines]
    size = f'width="{right:.0f}" height="{bottom:.0f}" viewBox="0 0 {right:.0f} {bottom:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
    return "\n".join([head, f"<style>{STYLE}\n</style>", *wires, *drawn, "</svg>"]) + "\n"


def _set_rows(boxes: dict[str, Box], edges: list[Edge]) -> None:
    """Put each node below its lowest parent, and a source above its first child."""
    for _ in boxes:  # at most one more row in each round
        for source, target in edges:
            boxes[target].row = max(boxes[target].row, boxes[source].row + 1)
    for name, box in boxes.items():
        if box.is_source:
            box.row = min(boxes[target].row for source, target in edges if source == name) - 1


def _split(boxes: dict[str, Box], edges: list[Edge]) -> list[Edge]:
    """Return the edges as segments between neighboring rows, with points in the rows that an edge passes."""
    segments = []
    for source, target in edges:
        previous = source
        for row in range(boxes[source].row + 1, boxes[target].row):
            point = f"{source} to {target}, row {row}"
            boxes[point] = Box([], row=row)
            segments.append((previous, point))
            previous = point
        segments.append((previous, target))
    return segments


def _place(boxes: dict[str, Box], segments: Iterable[Edge]) -> None:
    """Set the position of each box: rows are centered, and ordered by the positions of the boxes above."""
    by_row: dict[int, list[Box]] = {}
    above: dict[int, list[Box]] = {}
    for box in boxes.values():
        by_row.setdefault(box.row, []).append(box)
    for source, target in segments:
        above.setdefault(id(boxes[target]), []).append(boxes[source])
    widths = {row: sum(box.width + GAP for box in content) - GAP for row, content in by_row.items()}
    top = 1.0
    for row in sorted(by_row):
        left = (max(widths.values()) - widths[row]) / 2 + 1
        for box in sorted(by_row[row], key=lambda box: (box.is_source, _mean(above.get(id(box), [])))):
            box.left, box.top = left, top
            left += box.width + GAP
        lines = max(len(box.lines) for box in by_row[row])
        for box in by_row[row]:
            box.height = lines * LINE + 10  # the same for a row, so that no wire passes a taller box
        top += lines * LINE + 10 + SPACE


def _mean(boxes: list[Box]) -> float:
    return sum(box.center for box in boxes) / len(boxes) if boxes else 0


def _draw_wire(source: Box, target: Box) -> str:
    top, bottom = source.top + source.height, target.top
    middle = (top + bottom) / 2
    curve = f"M{source.center:.0f} {top:.0f} C{source.center:.0f} {middle:.0f} {target.center:.0f} {middle:.0f}"
    through = "" if target.lines else f" V{bottom + target.height:.0f}"
    return f'<path d="{curve} {target.center:.0f} {bottom:.0f}{through}"/>'


def _draw_box(box: Box) -> str:
    kind = ' class="source"' if box.is_source else ""
    size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
    shape = f'<rect{kind} x="{box.left:.0f}" y="{box.top:.0f}" {size} rx="5"/>'
    first = box.top + (box.height - len(box.lines) * LINE) / 2 + FONT - 1
    texts = [
        f'<text x="{box.center:.0f}" y="{first + number * LINE:.0f}">{escape(line)}</text>'
        for number, line in enumerate(box.lines)
    ]
    return "".join([shape, *texts])
