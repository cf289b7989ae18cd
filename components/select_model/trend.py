"""How a metric went over the last blessed runs, as a picture the size of a few words."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfopt import formatting as wording
from tfopt.charts.axes import add_element, create_svg, to_text
from tfopt.model_store.run_history import WINNER

WIDTH, HEIGHT, ROOM = 180, 36, 6
NOT_MEASURED = "\N{EN DASH}"


def trend_rows(history: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each watched metric of the winner and of the parent, with its picture."""
    return [
        {
            "what": f"{wording.title(trend['metric'])} of the {'chosen model' if trend['who'] == WINNER else 'parent'}",
            "picture": trend_picture(trend, f"trend-{number}-trend"),
            "median": _said(trend["metric"], trend["median"]),
            "now": _said(trend["metric"], trend["value"]),
            "regression": trend["regression"],
            "verdict": trend["regression"] or _verdict(trend, history["fewest"]),
        }
        for number, trend in enumerate(history["trends"])
    ]


def trend_picture(trend: Mapping[str, Any], key: str) -> str:
    """Draw the values in the order of the runs; those that cannot be compared leave a gap."""
    values: Sequence[float | None] = [*trend["earlier"], trend["value"]]
    known = [value for value in values if value is not None]
    title = f"{wording.title(trend['metric'])} of the {trend['who']} over {len(values)} runs"
    svg = create_svg(WIDTH, HEIGHT, key, title, ", ".join(_said(trend["metric"], value) for value in values))
    low, high = min(known, default=0.0), max(known, default=0.0)
    if low == high:  # in the middle
        low, high = low - 1, high + 1
    span = high - low
    step = (WIDTH - 2 * ROOM) / max(1, len(values) - 1)
    points = [
        None if value is None else (ROOM + number * step, HEIGHT - ROOM - (value - low) / span * (HEIGHT - 2 * ROOM))
        for number, value in enumerate(values)
    ]
    if trend["median"] is not None:
        y = HEIGHT - ROOM - (trend["median"] - low) / span * (HEIGHT - 2 * ROOM)
        add_element(svg, "line", class_="usual", x1=0, y1=y, x2=WIDTH, y2=y)
    course = " ".join(f"{point[0]:.1f},{point[1]:.1f}" for point in points if point)
    add_element(svg, "polyline", class_="course", points=course)
    for point in points[:-1]:
        if point:
            add_element(svg, "circle", class_="run", cx=point[0], cy=point[1], r=2)
    if points[-1]:
        kind = "now worse" if trend["regression"] else "now"
        add_element(svg, "circle", class_=kind, cx=points[-1][0], cy=points[-1][1], r=4)
    return to_text(svg)


def _verdict(trend: Mapping[str, Any], fewest: int) -> str:
    compared = sum(value is not None for value in trend["earlier"])
    return "as before" if compared >= fewest else f"only {compared} runs to compare with"


def _said(metric: str, value: float | None) -> str:
    return NOT_MEASURED if value is None else wording.amount(metric, value)
