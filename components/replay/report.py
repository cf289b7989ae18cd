"""HTML report of a replay: the result of each goal, the disagreement by records, and latency of both models."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lets_plot import (
    aes,
    geom_hline,
    geom_line,
    geom_point,
    geom_segment,
    geom_text,
    ggplot,
    labs,
    scale_identity,
    scale_x_continuous,
    scale_y_continuous,
)

from tfopt.charts.axis import Axis, create_axis
from tfopt.charts.figure import COLORS, TEXT_SIZE, WIDTHS, draw_safely, page_theme, plain, render
from tfopt.charts.page_templates import report_template
from tfopt.components.replay.replay_goals import DISAGREEMENT, read_replay_goals
from tfopt.formatting import amount, change
from tfopt.reports.replay_report import ReplayReport

HEIGHT = 260
SIDES = {"served": ("the served version", "baseline"), "model": ("the new version", "accent")}


def render_report(report: ReplayReport) -> str:
    """Render the page as one HTML file without external resources."""
    filters: dict[str, Callable[..., str]] = {
        "percent": _percent,
        "ms": partial(amount, "latency"),
        "change": partial(change, "latency"),
    }
    return report_template(Path(__file__).parent, **filters).render(
        report=report,
        answers=draw_safely("the chart of answers", lambda: _both(report, _draw_answers, "answers", report.looks)),
        latency=draw_safely("the chart of latency", lambda: _both(report, _draw_windows, "windows", report.windows)),
        most_late=f"{report.delay_p99_ms:.2g} ms" if report.delay_p99_ms is not None else "",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"


def _both(report: ReplayReport, draw: Callable[[ReplayReport, int, str], str], key: str, rows: list[Any]) -> list[str]:
    return [draw(report, width, f"{key}-{name}") for name, width in WIDTHS.items()] if rows else []


def _draw_answers(report: ReplayReport, width: int, key: str) -> str:
    """Draw the share of other answers with its interval at each look, and the limit."""
    looks = report.looks
    limits = [goal for goal in read_replay_goals([row.goal for row in report.goals]) if goal.metric == DISAGREEMENT]
    across = create_axis([float(look.records) for look in looks], is_log=len(looks) > 1)
    shares = [look.disagreeing / look.records for look in looks]
    up = create_axis([0.0, *(look.high for look in looks), *(goal.number for goal in limits)], is_share=True)
    up = Axis(-0.04 * up.high, up.high, is_share=True)
    data = {
        "x": [across(look.records) for look in looks],
        "y": [up(share) for share in shares],
        "low": [up(look.low) for look in looks],
        "high": [up(look.high) for look in looks],
        "color": [COLORS["accent" if report.blessed else "other"]] * len(looks),
    }
    plot = ggplot(data)
    for goal in limits:
        words = {"x": [across(across.high)], "y": [up(goal.number)], "name": [plain(f"goal {goal.text}")]}
        plot += geom_hline(yintercept=up(goal.number), color=COLORS["goal"], linetype="dashed", size=0.7)
        plot += geom_text(
            aes("x", "y", label="name"), data=words, hjust=1, vjust=-0.4, size=TEXT_SIZE, color=COLORS["goal"]
        )
    plot += geom_segment(aes("x", "low", xend="x", yend="high", color="color"), size=1.2)
    plot += geom_point(aes("x", "y", color="color"), size=4) + scale_identity("color")
    plot += across.scale(scale_x_continuous, width // 90) + up.scale(scale_y_continuous, 5)
    plot += labs(x="compared records", y="other answers") + page_theme()
    tooltips = [
        f"{look.records:,} records: {_percent(share)}, {_percent(look.low)} to {_percent(look.high)}"
        for look, share in zip(looks, shares, strict=True)
    ]
    return render(plot, width, HEIGHT, key, "Share of other answers", "; ".join(tooltips), tooltips)


def _draw_windows(report: ReplayReport, width: int, key: str) -> str:
    """Draw the 99th percentile of both models in each window of time."""
    sides = {side: [getattr(row, f"{side}_p99_ms") for row in report.windows] for side in SIDES}
    values = [value for side in sides.values() for value in side]
    starts = [row.start for row in report.windows]
    across = create_axis([*starts, max(starts) + 1e-3])
    up = create_axis(values, is_log=max(values) > 4 * min(values), least=0.2 * max(values))
    plot, tooltips = ggplot(), []
    for side, (name, color) in SIDES.items():
        data = {"x": [across(start) for start in starts], "y": [up(value) for value in sides[side]]}
        plot += geom_line(aes("x", "y"), data=data, color=COLORS[color], size=1.0)
        plot += geom_point(aes("x", "y"), data=data, color=COLORS[color], size=3)
        tooltips += [
            f"{name}, {start:.3g} s: {amount('latency', ms)}" for start, ms in zip(starts, sides[side], strict=True)
        ]
    plot += across.scale(scale_x_continuous, width // 90) + up.scale(scale_y_continuous, 5)
    plot += labs(x="seconds from the first request", y="p99 in ms") + page_theme()
    return render(plot, width, HEIGHT, key, "99th percentile of latency by time", "; ".join(tooltips), tooltips)
