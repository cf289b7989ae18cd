"""Write the HTML report of a decision, one file with styles and charts inside."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt import formatting
from tfopt.artifacts import Benchmark, Decision, Evaluation, Model
from tfopt.charts.bubble_chart import MOST_NAMED
from tfopt.charts.page_templates import report_template
from tfopt.components.select_model import charts, provenance
from tfopt.components.select_model.regressions import trend_rows
from tfopt.components.select_model.tables import confusion_tables, main_row, parity_rows, slice_table
from tfopt.measurement.evidence import describe_evaluation
from tfopt.measurement.goals import QUALITY, read_goals
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports, main_metric
from tfopt.reports.decision_report import DecisionReport
from tfopt.value_types import JsonObject

WIDE, NARROW = 760, 356  # widths of the charts in pixels, for a monitor and for a phone


def write_report(decision: Decision, models: Sequence[Model], evaluation: Evaluation, benchmark: Benchmark) -> None:
    """Write ``report.html`` next to ``decision.json``.

    Args:
        decision: The artifact with ``decision.json``.
        models: The baseline, then the candidates; their model cards contain the lineage.
        evaluation: The quality of the models.
        benchmark: The speed and size of the models, with the recorded samples.
    """
    report, quality, speed = decision.load(), evaluation.load(), benchmark.load()
    measured = join_reports([(row.name, row.digest, row.format) for row in report.models], quality, speed)
    metric = main_metric(quality)
    facts = {
        "decision": report,
        "metric": formatting.title(metric),
        "rows": [main_row(row, model, metric) for row, model in zip(report.models, measured, strict=True)],
        "constant": _constant(report),
        "goals": report.goals,
        "charts": _draw_charts(report, measured, metric, benchmark.path / "samples.parquet"),
        "trends": trend_rows(report.history),
        "slices": slice_table(measured, metric),
        "parity": parity_rows(measured),
        "confusions": confusion_tables(measured, quality.classes, report.selected),
        "lineage": [provenance.lineage(model, row) for model, row in zip(models, report.models, strict=True)],
        "graphs": [provenance.graph_viewers(model, row) for model, row in zip(models, report.models, strict=True)],
        "evaluation": quality,
        "visible_loss": describe_evaluation(quality),
        "benchmark": speed,
        "environment": provenance.flatten(speed.environment),
        "commands": provenance.commands(models, report, quality, speed),
    }
    (decision.path / Decision.page).write_text(render(facts), encoding="utf-8")


def _constant(report: DecisionReport) -> dict[str, str] | None:
    """Return the cells of the constant model's row."""
    row = report.constant
    return {"name": row.name, "value": formatting.amount(row.metric, row.value)} if row else None


def render(facts: Mapping[str, Any]) -> str:
    """Fill the template."""
    return report_template(Path(__file__).parent, set=typeset).render(**facts)


def typeset(text: str) -> str:
    r"""Replace ASCII signs by typographic ones.

    >>> typeset("3.10x as fast, -0.20 points") == "3.10\N{MULTIPLICATION SIGN} as fast, \N{MINUS SIGN}0.20 points"
    True
    """
    return re.sub(r"(?<=\d)x(?!\w)", "\N{MULTIPLICATION SIGN}", re.sub(r"(?<![^\s(])-(?=\d)", "\N{MINUS SIGN}", text))


def _draw_charts(
    report: DecisionReport, measured: Sequence[ModelMeasurements], metric: str, samples: Path
) -> JsonObject:
    """Draw each chart in two widths: text in a scaled chart would become too small on a phone."""
    needed = {metric, "latency", "latency_p90", "latency_p99", "size"}
    complete = [model for model in measured if not model.error and needed <= model.metrics.keys()]
    front = {row.name for row in report.models if row.pareto}
    data = charts.ChartData(complete, metric, front, report.selected, _limits(report, measured[0], metric))
    calls, curves = charts.read_samples(samples, measured[0].small_batch), data.curves()
    widths, named = {"wide": WIDE, "narrow": NARROW}, min(len(complete), MOST_NAMED)
    return {
        "choice": [
            charts.draw_choice(data, WIDE, 360 + 14 * named, "bubbles-wide"),
            charts.draw_choice(data, NARROW, 300 + 24 * named, "bubbles-narrow"),
        ],
        "latency": [charts.draw_latency(data, calls, width, f"spread-{name}") for name, width in widths.items()],
        "goal_lines": [f"{goal} ({formatting.amount(metric, value)})" for goal, value in data.limits.items()],
        "with_samples": bool(calls),
        "throughput": [charts.draw_throughput(data, width, f"sweep-{name}") for name, width in widths.items()]
        if curves
        else [],
        "fewer": len(curves) < len(complete),
    }


def _limits(report: DecisionReport, baseline: ModelMeasurements, metric: str) -> dict[str, float]:
    """Return the values of the main metric that goals require, by the goal."""
    limits = {}
    for goal in read_goals(report.goals):
        if goal.metric not in (metric, QUALITY) or goal.kind == "max_regression":  # compares with earlier runs
            continue
        value = baseline.value(metric)
        sign = 1 if baseline.higher_is_better(metric) else -1
        required = goal.number if goal.kind == "threshold" else value + sign * goal.needed_gain(value)
        limits[goal.text] = required
    return limits
