"""Compare the metrics of this run with those of recent blessed runs, as data and as rows of the report."""

from collections.abc import Sequence
from dataclasses import replace

from tfopt import formatting
from tfopt.artifacts.decision_report import EarlierRun, HistoryComparison, Role, Trend
from tfopt.charts.axes import add_element, create_svg, to_text
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.model_store.run_history import MIN_RUNS, PARENT, WINNER, RunHistory

TITLES: dict[Role, str] = {WINNER: "selected model", PARENT: "baseline"}
WIDTH, HEIGHT, MARGIN = 180, 36, 6  # of a sparkline, in pixels
NOT_MEASURED = "\N{EN DASH}"


def compare_with_history(
    history: RunHistory, winner: ModelMeasurements, parent: ModelMeasurements, watched: Sequence[Goal]
) -> HistoryComparison:
    """Compare the selected model with earlier ones, and the baseline with earlier ones, in the metric of each goal."""
    roles: list[tuple[Role, ModelMeasurements]] = [(WINNER, winner), (PARENT, parent)]
    trends = [_trend(history, role, model, goal) for goal in watched for role, model in roles]
    return HistoryComparison(
        runs=[EarlierRun(run.time, run.version, run.winner.name, run.parent.name) for run in history.runs],
        fewest=MIN_RUNS,
        trends=trends,
        regressions=[
            f"the {TITLES[trend.who]} {trend.name} {trend.regression}" for trend in trends if trend.regression
        ],
    )


def _trend(history: RunHistory, role: Role, model: ModelMeasurements, goal: Goal) -> Trend:
    if goal.kind == "max_regression":
        goal = replace(goal, reference=history.reference(role, goal.metric))
    estimate = model.metrics.get(goal.metric)
    return Trend(
        goal=goal.text,
        metric=goal.metric,
        who=role,
        name=model.name,
        earlier=history.values(role, goal.metric),
        value=estimate.value if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        median=goal.reference.value if goal.reference else None,
        regression=goal.failure(model, proven=True, examples=0) if estimate else None,
    )


def trend_rows(history: HistoryComparison) -> list[dict[str, str | None]]:
    """Return a row of the report for each trend, with its sparkline."""
    return [
        {
            "title": f"{formatting.title(trend.metric)} of the {TITLES[trend.who]}",
            "chart": draw_sparkline(trend, f"trend-{number}-trend"),
            "median": _amount(trend.metric, trend.median),
            "value": _amount(trend.metric, trend.value),
            "regression": trend.regression,
            "verdict": trend.regression or _verdict(trend, history.fewest),
        }
        for number, trend in enumerate(history.trends)
    ]


def draw_sparkline(trend: Trend, key: str) -> str:
    """Draw the values in the order of the runs, with a line at their median; incomparable values leave a gap."""
    values = [*trend.earlier, trend.value]
    present = [value for value in values if value is not None]
    title = f"{formatting.title(trend.metric)} of the {TITLES[trend.who]} over {len(values)} runs"
    svg = create_svg(WIDTH, HEIGHT, key, title, ", ".join(_amount(trend.metric, value) for value in values))
    low, high = min(present, default=0.0), max(present, default=0.0)
    if low == high:  # a constant value is drawn at half the height
        low, high = low - 1, high + 1
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (value - low) / (high - low) * (HEIGHT - 2 * MARGIN)

    points = [None if value is None else (MARGIN + number * step, y(value)) for number, value in enumerate(values)]
    if trend.median is not None:
        add_element(svg, "line", class_="usual", x1=0, y1=y(trend.median), x2=WIDTH, y2=y(trend.median))
    course = " ".join(f"{point[0]:.1f},{point[1]:.1f}" for point in points if point)
    add_element(svg, "polyline", class_="course", points=course)
    *earlier, current = points
    for point in earlier:
        if point:
            add_element(svg, "circle", class_="run", cx=point[0], cy=point[1], r=2)
    if current:
        kind = "now worse" if trend.regression else "now"
        add_element(svg, "circle", class_=kind, cx=current[0], cy=current[1], r=4)
    return to_text(svg)


def _verdict(trend: Trend, fewest: int) -> str:
    compared = sum(value is not None for value in trend.earlier)
    return "no regression" if compared >= fewest else f"only {compared} runs to compare with"


def _amount(metric: str, value: float | None) -> str:
    return NOT_MEASURED if value is None else formatting.amount(metric, value)
