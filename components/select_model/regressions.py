"""Compare the metrics of this run with recent blessed runs, as data and as rows of the report."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import lets_plot as lp

from tfopt import formatting
from tfopt.charts.figure import COLORS, draw_safely, page_theme, render
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import NOT_COMPARED, ModelMeasurements
from tfopt.model_store.run_history import MIN_RUNS, PARENT, WINNER, RunHistory
from tfopt.reports.decision_report import EarlierRun, HistoryComparison, Role, Trend

TITLES: dict[Role, str] = {WINNER: "selected model", PARENT: "baseline"}
WIDTH, HEIGHT = 360, 72  # of a sparkline, which the page shows at half: lets-plot draws no panel below 50 pixels
BARE = dict.fromkeys(("axis", "axis_title", "axis_text", "panel_grid_major"), lp.element_blank()) | {"plot_margin": 0}


def compare_with_history(
    history: RunHistory, winner: ModelMeasurements, baseline: ModelMeasurements, watched: Sequence[Goal]
) -> HistoryComparison:
    """Compare the selected model with earlier ones, and the baseline with earlier ones, in the metric of each goal."""
    roles: list[tuple[Role, ModelMeasurements]] = [(WINNER, winner), (PARENT, baseline)]
    trends = [_trend(history, role, model, goal) for goal in watched for role, model in roles]
    regressions = [f"the {TITLES[trend.who]} {trend.name} {trend.regression}" for trend in trends if trend.regression]
    return HistoryComparison(
        runs=[EarlierRun(run.time, run.version, run.winner.name, run.parent.name) for run in history.runs],
        fewest=MIN_RUNS,
        trends=trends,
        regressions=regressions,
    )


def _trend(history: RunHistory, role: Role, model: ModelMeasurements, goal: Goal) -> Trend:
    if goal.kind == "max_regression":
        goal = replace(goal, reference=history.reference(role, goal.metric))
    estimate, is_disturbed = model.estimate(goal.metric), bool(model.disturbance(goal.metric))
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
        regression=goal.failure(model, proven=True, examples=0) if estimate and not is_disturbed else None,
        disturbed=is_disturbed,
    )


def trend_rows(history: HistoryComparison) -> list[dict[str, str | None]]:
    """Return a row of the report for each trend, with its sparkline."""
    return [
        {
            "title": f"{formatting.title(trend.metric)} of the {TITLES[trend.who]}",
            "chart": draw_safely("a chart of earlier runs", partial(draw_sparkline, trend, f"trend-{number}-trend")),
            "median": formatting.amount(trend.metric, trend.median),
            "value": formatting.amount(trend.metric, trend.value),
            "regression": trend.regression,
            "verdict": trend.regression or _verdict(trend, history.fewest),
        }
        for number, trend in enumerate(history.trends)
    ]


def draw_sparkline(trend: Trend, key: str) -> str:
    """Draw the values in the order of the runs, with a line at their median; incomparable values leave a gap."""
    values = [*trend.earlier, trend.value]
    title = f"{formatting.title(trend.metric)} of the {TITLES[trend.who]} over {len(values)} runs"
    description = ", ".join(formatting.amount(trend.metric, value) for value in values)
    present = [(number, value) for number, value in enumerate(values) if value is not None]
    is_now = [number == len(trend.earlier) for number, _ in present]
    now = COLORS["bad" if trend.regression else "accent"]
    points = {
        "run": [float(number) for number, _ in present],
        "value": [value for _, value in present],
        "size": [7.0 if last else 3.5 for last in is_now],
        "color": [now if last else COLORS["baseline"] for last in is_now],
        "fill": [COLORS["card"] if last else COLORS["baseline"] for last in is_now],
    }
    plot = lp.ggplot(points, lp.aes("run", "value")) + page_theme(**BARE)
    if trend.median is not None:
        plot += lp.geom_hline(yintercept=trend.median, color=COLORS["soft"], linetype="dashed", size=0.9)
    if len(present) > 1:
        plot += lp.geom_line(color=COLORS["baseline"], size=1.3)
    plot += lp.geom_point(lp.aes(size="size", color="color", fill="fill"), shape=21, stroke=2.2)
    plot += lp.scale_identity(["size", "color", "fill"])
    plot += lp.scale_x_continuous(limits=[0, max(1, len(values) - 1)], expand=[0.06, 0], breaks=[])
    plot += lp.scale_y_continuous(expand=[0.2, 0])
    tooltips = [formatting.amount(trend.metric, value) for _, value in present]
    return render(plot, WIDTH, HEIGHT, key, title, description, tooltips)


def _verdict(trend: Trend, fewest: int) -> str:
    if trend.disturbed:
        return NOT_COMPARED
    compared = sum(value is not None for value in trend.earlier)
    return "no regression" if compared >= fewest else f"only {compared} runs to compare with"
