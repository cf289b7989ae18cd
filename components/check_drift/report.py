"""HTML report of a check for drift: the decision, the largest changes with their limits, and all of them."""

from pathlib import Path

from lets_plot import (
    aes,
    element_blank,
    geom_point,
    geom_segment,
    geom_text,
    ggplot,
    labs,
    scale_identity,
    scale_x_continuous,
    scale_y_continuous,
)

from tfopt.charts.axis import create_axis
from tfopt.charts.figure import COLORS, TEXT_SIZE, WIDTHS, draw_safely, page_theme, plain, render
from tfopt.charts.page_templates import report_template
from tfopt.components.check_drift.decision import KINDS, TWO_SIDED
from tfopt.reports.drift_report import Change, DriftReport

DRAWN, ROW_HEIGHT = 10, 40  # rows of the chart, and their height in pixels
WIDEST = {"wide": 70, "narrow": 34}  # characters of the text of a row
TITLES = {
    "nothing": "nothing has to be done",
    "recalibrate": "recalibrate: new ranges, without a training",
    "retrain": "retrain",
}


def render_report(report: DriftReport) -> str:
    """Render the page as one HTML file without external resources."""
    rows = sort_changes(report.changes)
    return report_template(Path(__file__).parent, share=_share).render(
        report=report,
        title=TITLES[report.decision],
        rows=rows,
        kinds=KINDS,
        chart=draw_safely("the chart of changes", lambda: [_draw(rows, name) for name in WIDTHS] if rows else []),
    )


def sort_changes(changes: list[Change]) -> list[Change]:
    """Return the changes, those first that are furthest beyond their limit."""
    return sorted(changes, key=lambda one: (one.limit is None, not one.is_exceeded, -_excess(one)))


def _excess(change: Change) -> float:
    low = max(change.low, -change.high) if change.kind in TWO_SIDED else change.low
    return low - (change.limit or 0.0)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.3g}%"


def _draw(rows: list[Change], name: str) -> str:
    """Draw the largest changes with their intervals and limits."""
    width, rows = WIDTHS[name], rows[:DRAWN]
    ends = [end for row in rows for end in (row.low, row.high, row.limit or 0.0)]
    across = create_axis([0.0, *ends], is_share=True)
    up = [float(len(rows) - number) for number in range(len(rows))]
    color = [COLORS["bad" if row.is_exceeded else "accent" if row.limit is not None else "other"] for row in rows]
    data = {
        "x": [across(row.change) for row in rows],
        "low": [across(row.low) for row in rows],
        "high": [across(row.high) for row in rows],
        "y": up,
        "color": color,
    }
    most = WIDEST[name]
    texts = [f"{row.subject}: {KINDS[row.kind].text}" for row in rows]
    texts = [text if len(text) <= most else f"{text[: most - 1]}…" for text in texts]
    words = {"x": [across(across.low)] * len(rows), "y": [y + 0.42 for y in up], "name": list(map(plain, texts))}
    limited = [(row.limit, y) for row, y in zip(rows, up, strict=True) if row.limit is not None]
    limits = {
        "x": [across(limit) for limit, _ in limited],
        "y": [y - 0.2 for _, y in limited],
        "end": [y + 0.2 for _, y in limited],
    }
    plot = ggplot(data) + geom_text(
        aes("x", "y", label="name"), data=words, hjust=0, size=TEXT_SIZE, color=COLORS["soft"]
    )
    plot += geom_segment(aes("low", "y", xend="high", yend="y", color="color"), size=1.2)
    plot += geom_point(aes("x", "y", color="color"), size=4) + scale_identity("color")
    plot += geom_segment(aes("x", "y", xend="x", yend="end"), data=limits, color=COLORS["goal"], size=1.0)
    plot += across.scale(scale_x_continuous, width // 90)
    plot += scale_y_continuous(breaks=[], limits=[0.5, len(rows) + 0.8], expand=[0, 0])
    plot += labs(x="change, with its interval", y="") + page_theme(axis_text_y=element_blank())
    tooltips = [
        f"{row.subject}: {KINDS[row.kind].text}, change {_share(row.change)}, {_share(row.low)} to {_share(row.high)}"
        for row in rows
    ]
    height = ROW_HEIGHT * len(rows) + 70
    return render(plot, width, height, f"changes-{name}", "Largest changes", "; ".join(tooltips), tooltips)
