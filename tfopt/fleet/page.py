"""HTML page of a fleet: what needs attention, every destination with its trends, versions, and upgrades that pay."""

from collections.abc import Sequence
from pathlib import Path

from tfopt import formatting
from tfopt.charts.page_templates import report_template
from tfopt.fleet.destination_state import DestinationState, MetricHistory, count_versions
from tfopt.fleet.fleet_report import FleetReport

WIDTH, HEIGHT = 120, 28  # of a sparkline, in pixels


def render_page(report: FleetReport) -> str:
    """Return the page."""
    versions = count_versions(report.destinations)
    return report_template(
        Path(__file__).parent,
        points=sparkline_points,
        metric=_describe_metric,
        title=formatting.title,
        ratio=formatting.ratio,
        order=order,
    ).render(
        report=report,
        width=WIDTH,
        height=HEIGHT,
        versions={name: counts for name, counts in versions.items() if name == "tfopt" or len(counts) > 1},
        saved=sum((state.cost.saved_per_month or 0.0) for state in report.destinations if state.cost),
        has_cost=any(state.cost for state in report.destinations),
    )


def sparkline_points(values: Sequence[float | None]) -> list[str]:
    """Return the points of the lines of a sparkline, as SVG has them; missing values interrupt the line.

    >>> sparkline_points([1.0, 3.0, None, 2.0])
    ['2,26 41,2', '118,14']
    """
    present = [value for value in values if value is not None]
    low, span = min(present, default=0.0), (max(present, default=0.0) - min(present, default=0.0)) or 1.0
    step = (WIDTH - 4) / max(1, len(values) - 1)
    lines: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{2 + number * step:.0f},{HEIGHT - 2 - (HEIGHT - 4) * (value - low) / span:.0f}")
    return [" ".join(line) for line in lines if line]


def _describe_metric(metric: MetricHistory) -> str:
    """Return the newest value with its unit, and the median of the earlier ones if there are enough."""
    value = formatting.amount(metric.metric, metric.values[-1])
    median = f", median {formatting.amount(metric.metric, metric.median)}" if metric.median is not None else ""
    return f"{value}{median}"


def order(states: Sequence[DestinationState]) -> list[DestinationState]:
    """Return the destinations that need attention first, those with most problems before the others."""
    return sorted(states, key=lambda state: (-len(state.problems), state.name))
