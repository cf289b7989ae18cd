"""The HTML report of a comparison: the selected backbone, the Pareto chart, a row for each backbone."""

from collections.abc import Sequence
from pathlib import Path

from tfopt import formatting
from tfopt.charts.bubble_chart import Bubble, BubbleChart, draw_both_widths
from tfopt.charts.figure import draw_safely
from tfopt.charts.page_templates import report_template
from tfopt.formatting import DASH
from tfopt.reports.benchmark_report import ModelBenchmark
from tfopt.reports.comparison_report import BackboneResult, ComparisonReport, FailedMeasurement
from tfopt.value_types import JsonObject


def render_html(report: ComparisonReport) -> str:
    """Return the report as a self-contained HTML document."""
    rows = sorted(report.backbones, key=lambda row: (not row.chosen, not row.passed, row.latency_ms))
    return report_template(Path(__file__).parent).render(
        **{**vars(report), "backbones": [_table_row(row, report) for row in rows]},
        metric_title=formatting.title(report.metric) if report.metric else None,
        charts=draw_safely("the chart of all backbones", lambda: _draw_charts(report)),
    )


def _table_row(row: BackboneResult, report: ComparisonReport) -> JsonObject:
    metric, benchmark = report.metric, row.benchmark
    value, delta = (columns.get(metric or "") for columns in (row.metrics, row.delta))
    difference = ""
    if metric and delta:
        interval = formatting.change_interval(metric, delta.low, delta.high)
        difference = f"{formatting.change(metric, delta.value)} ({interval})"
    return {
        **vars(row),
        "quality": formatting.amount(metric, value.value) if metric and value else DASH,
        "difference": difference,
        "latency": formatting.amount("latency", row.latency_ms) if benchmark else DASH,
        "size": formatting.data_size(benchmark.sizes["raw"]) if benchmark else DASH,
        "parameters": formatting.count(row.parameters) if row.parameters else DASH,
        "flops": formatting.count(row.flops) if row.flops else DASH,
        "training": f"{row.train_seconds:.0f} s" if row.train_seconds else DASH,
        "by_runtime": [_runtime_cell(row.runtimes.get(name), name == row.fastest) for name in report.formats],
    }


def _runtime_cell(row: ModelBenchmark | FailedMeasurement | None, is_fastest: bool) -> JsonObject:
    if not isinstance(row, ModelBenchmark) or not row.latency:
        return {"latency": DASH, "size": "", "error": row.error if row else "", "unstable": "", "fastest": False}
    latency = row.latency["1"]
    return {
        "latency": formatting.amount("latency", latency.p50),
        "size": formatting.data_size(row.sizes["raw"]),
        "error": "",
        "unstable": "" if latency.stable else "; ".join(row.notes),
        "fastest": is_fastest,
    }


def _draw_charts(report: ComparisonReport) -> Sequence[str]:
    metric = report.metric
    rows = [row for row in report.backbones if row.benchmark and (metric is None or metric in row.metrics)]
    bubbles = [_bubble(row, row.benchmark, metric) for row in rows if row.benchmark]
    subject = f"{formatting.title(metric)}, latency and size" if metric else "size and latency"
    chart = BubbleChart(
        bubbles=bubbles,
        title=f"{subject.capitalize()} of {len(rows)} backbones",
        description=f"{'; '.join(bubble.tooltip for bubble in bubbles)}. Selected: {report.chosen}.",
        across="latency in ms (p50, fastest runtime)",
        up=f"{formatting.title(metric)}, better upwards" if metric else "size in MB, smaller upwards",
        more_is_better=bool(metric) and rows[0].metrics[str(metric)].higher_is_better,
        share=bool(metric) and formatting.is_share(str(metric)),
        least=0.01 if metric and formatting.is_share(metric) else 0.5 * max(bubble.up for bubble in bubbles),
        spread=metric is None,
    )
    return draw_both_widths(chart, "bubbles")


def _bubble(row: BackboneResult, benchmark: ModelBenchmark, metric: str | None) -> Bubble:
    milliseconds, size = row.latency_ms, benchmark.sizes["raw"]
    flops = f"{formatting.count(row.flops or 0)}FLOP"
    value = row.metrics[metric] if metric else None
    quality = [formatting.amount(metric, value.value)] if metric and value else []
    facts = [row.name, *quality, formatting.amount("latency", milliseconds), formatting.data_size(size), flops]
    return Bubble(
        name=row.name,
        note=formatting.data_size(size) if value else flops,
        tooltip=", ".join(facts) + (", on the Pareto front" if row.pareto else ""),
        across=milliseconds,
        up=value.value if value else size / 1e6,
        area=size if value else row.flops or 0,
        kind="chosen" if row.chosen else "other",
        front=row.pareto,
        ranges=((milliseconds, milliseconds), (value.low, value.high)) if value else None,
    )
