"""The page that shows a decision: one HTML file with everything in it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt import formatting as wording
from tfopt.artifacts import Benchmark, Decision, Evaluation, Model
from tfopt.charts.axes import CHART_CSS
from tfopt.components.select_model import provenance as history
from tfopt.components.select_model.charts import View, scatter
from tfopt.components.select_model.confusions import confusion_tables
from tfopt.components.select_model.spread import read_samples, spread
from tfopt.components.select_model.sweep import sweep, swept
from tfopt.components.select_model.tables import main_row, parity_rows, slice_table
from tfopt.components.select_model.trend import trend_rows
from tfopt.measurement.goals import QUALITY, read_goals
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports, main_metric

WIDE, NARROW = 760, 356


def write_report(decision: Decision, models: Sequence[Model], evaluation: Evaluation, benchmark: Benchmark) -> None:
    """Write ``report.html`` beside ``decision.json``.

    Args:
        decision: Written already, but for the page.
        models: The parent, then the candidates: their cards tell where they come from.
        evaluation: How well they predict.
        benchmark: How fast and large they are, with the raw samples.
    """
    content, quality, speed = decision.read(), evaluation.read(), benchmark.read()
    listed = content["models"]
    measured = join_reports([(row["name"], row["digest"], row["format"]) for row in listed], quality, speed)
    metric = main_metric(quality)
    facts = {
        "decision": content,
        "metric": wording.title(metric),
        "rows": [main_row(row, model, metric) for row, model in zip(listed, measured, strict=True)],
        "goals": content["goals"],
        "pictures": _pictures(content, measured, metric, benchmark.path / "samples.parquet"),
        "trends": trend_rows(content["history"]),
        "slices": slice_table(measured, metric),
        "parity": parity_rows(measured),
        "confusions": confusion_tables(measured, quality, content["selected"]),
        "lineage": [history.lineage(model, row) for model, row in zip(models, listed, strict=True)],
        "evaluation": quality,
        "benchmark": speed,
        "environment": history.flattened(speed.get("environment") or {}),
        "commands": history.commands(models, listed, content, quality, speed),
        "version": tfopt.__version__,
    }
    (decision.path / Decision.page).write_text(render(facts), encoding="utf-8")


def render(facts: Mapping[str, Any]) -> str:
    """Fill the template; styles go inline, so that the page is one file."""
    here = Path(__file__).parent
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    pages.filters["set"] = typeset
    return pages.get_template("report.html.j2").render(
        **facts, css=CHART_CSS.read_text() + (here / "report.css").read_text()
    )


def typeset(text: str) -> str:
    r"""Put the signs of print in place of ASCII's.

    >>> typeset("3.10x as fast, -0.20 points") == "3.10\N{MULTIPLICATION SIGN} as fast, \N{MINUS SIGN}0.20 points"
    True
    """
    return re.sub(r"(?<=\d)x(?!\w)", "\N{MULTIPLICATION SIGN}", re.sub(r"(?<![^\s(])-(?=\d)", "\N{MINUS SIGN}", text))


def _pictures(
    content: Mapping[str, Any], measured: Sequence[ModelMeasurements], metric: str, samples: Path
) -> dict[str, Any]:
    """Each picture twice: for a desk and for a phone, since text in a scaled picture scales along."""
    needed = {metric, "latency", "latency_p90", "latency_p99", "size"}
    whole = [model for model in measured if not model.error and needed <= model.metrics.keys()]
    front = {row["name"] for row in content["models"] if row["pareto"]}
    view = View(whole, metric, front, content["selected"], _limits(content, measured[0], metric))
    calls, curves = read_samples(samples, measured[0].small_batch), swept(whole, {*front, content["selected"]})
    return {
        "choice": [
            scatter(view, WIDE, 360 + 14 * len(whole), "choice-wide"),
            scatter(view, NARROW, 300 + 24 * len(whole), "choice-narrow"),
        ],
        "spread": [
            spread(whole, calls, content["selected"], width, f"spread-{name}")
            for width, name in ((WIDE, "wide"), (NARROW, "narrow"))
        ],
        "with_samples": bool(calls),
        "sweep": [
            sweep(curves, content["selected"], width, f"sweep-{name}")
            for width, name in ((WIDE, "wide"), (NARROW, "narrow"))
            if curves
        ],
        "fewer": len(curves) < len(whole),
    }


def _limits(content: Mapping[str, Any], parent: ModelMeasurements, metric: str) -> dict[str, float]:
    """Where the goals on the main metric lie."""
    found = {}
    for goal in read_goals(content["goals"]):
        if goal.metric not in (metric, QUALITY) or goal.kind == "max_regression":  # that is about earlier runs
            continue
        value = parent.value(metric)
        sign = 1 if parent.higher_is_better(metric) else -1
        size = goal.number * abs(value) if goal.relative else goal.number
        moved = sign * (size if goal.kind == "min_improvement" else -size)
        found[f"goal: {goal.text}"] = goal.number if goal.kind == "threshold" else value + moved
    return found
