"""Write the HTML report of a decision, one file with styles and charts inside."""

import re
from collections.abc import Sequence
from pathlib import Path

from tfopt import formatting
from tfopt.artifacts import Benchmark, Decision, Evaluation, Model
from tfopt.charts.bubble_chart import best_by_speed
from tfopt.charts.figure import WIDTHS, draw_safely
from tfopt.charts.page_templates import report_template
from tfopt.components.select_model import charts, provenance
from tfopt.components.select_model.regressions import trend_rows
from tfopt.components.select_model.tables import confusion_tables, main_row, parity_rows, slice_table
from tfopt.measurement.evidence import describe_evaluation
from tfopt.measurement.goals import QUALITY, read_goals
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports, main_metric
from tfopt.reports.decision_report import DecisionReport
from tfopt.value_types import JsonObject


def write_report(decision: Decision, models: Sequence[Model], evaluation: Evaluation, benchmark: Benchmark) -> None:
    """Write ``report.html`` next to ``decision.json``; the lineage of the models is that of their model cards."""
    report, quality, speed = decision.load(), evaluation.load(), benchmark.load()
    measured = join_reports([(row.name, row.digest, row.format) for row in report.models], quality, speed)
    metric = main_metric(quality)
    page = report_template(Path(__file__).parent, set=typeset).render(
        decision=report,
        metric=formatting.title(metric),
        scale=formatting.scale(metric, formatting.shorten(quality.label or "", 20)),
        rows=[main_row(row, model, metric) for row, model in zip(report.models, measured, strict=True)],
        constant_value=report.constant and formatting.amount(metric, report.constant.value),
        charts=_draw_charts(report, measured, metric, benchmark.path / "samples.parquet"),
        trends=trend_rows(report.history),
        slices=slice_table(measured, metric),
        parity=parity_rows(measured),
        confusions=confusion_tables(measured, quality.classes, report.selected),
        lineage=[provenance.lineage(model, row) for model, row in zip(models, report.models, strict=True)],
        graphs=[provenance.graph_viewers(model, row) for model, row in zip(models, report.models, strict=True)],
        evaluation=quality,
        visible_loss=describe_evaluation(quality),
        benchmark=speed,
        load=speed.load,
        environment=provenance.flatten(speed.environment),
        commands=provenance.commands(models, report, quality, speed),
    )
    (decision.path / Decision.page).write_text(page, encoding="utf-8")


def typeset(text: str) -> str:
    r"""Replace ASCII signs by typographic ones.

    >>> typeset("3.10x as fast, -0.20 points") == "3.10\N{MULTIPLICATION SIGN} as fast, \N{MINUS SIGN}0.20 points"
    True
    """
    return re.sub(r"(?<=\d)x(?!\w)", "\N{MULTIPLICATION SIGN}", re.sub(r"(?<![^\s(])-(?=\d)", "\N{MINUS SIGN}", text))


def _draw_charts(
    report: DecisionReport, measured: Sequence[ModelMeasurements], metric: str, samples: Path
) -> JsonObject:
    needed = {metric, "latency", "latency_p90", "latency_p99", "size"}
    complete = [model for model in measured if not model.error and needed <= model.metrics.keys()]
    front = {row.name for row in report.models if row.pareto}
    data = charts.ChartData(complete, metric, front, report.selected, _limits(report, measured[0], metric))
    choice = draw_safely("the chart of all models", lambda: charts.draw_choice(data))
    return {
        "choice": choice,
        "joined": "<svg" in choice and len(best_by_speed(charts.choice_chart(data))) > 1,
        "unnamed": [width for width in WIDTHS if "<svg" in choice and _count_names(choice, width) < len(complete)],
        "latency": draw_safely("the chart of latency", lambda: charts.draw_latencies(data, samples)),
        "goal_lines": [f"{goal} ({formatting.amount(metric, value)})" for goal, value in data.limits.items()],
        "with_samples": samples.is_file(),
        "throughput": draw_safely("the chart of throughput", lambda: charts.draw_throughputs(data)),
        "most": charts.MOST_ROWS,
        "fewer": len(data.rows) < len(complete),
    }


def _count_names(pictures: str, width: str) -> int:
    """Return the number of labels in the picture of a width."""
    return pictures.partition(f'bubbles {width}"')[2].partition("</svg>")[0].count('class="name"')


def _limits(report: DecisionReport, baseline: ModelMeasurements, metric: str) -> dict[str, float]:
    """Return the values of the main metric that goals require, by the goal."""
    limits = {}
    for goal in read_goals(report.goals):
        if goal.metric not in (metric, QUALITY) or goal.kind == "max_regression":  # compares with earlier runs
            continue
        value = baseline.value(metric)
        sign = 1 if baseline.higher_is_better(metric) else -1
        limits[goal.text] = goal.number if goal.kind == "threshold" else value + sign * goal.needed_gain(value)
    return limits
