"""Rows of the tables in the report: models, parity, slices and confusion matrices, as formatted text."""

from collections.abc import Sequence
from operator import itemgetter

from tfopt import formatting
from tfopt.measurement.model_measurements import ModelMeasurements, slice_metric
from tfopt.metric_table import LOADS
from tfopt.reports.decision_report import ModelDecision
from tfopt.reports.evaluation_report import SliceMetrics
from tfopt.value_types import JsonObject

MOST_SLICES = 60
MOST_CLASSES = 20  # columns of a confusion matrix
MOST_CONFUSIONS = 10


def main_row(decided: ModelDecision, model: ModelMeasurements, metric: str) -> JsonObject:
    """Return one model's row of the main table; a dash stands for a missing measurement."""

    def cell(name: str) -> str:
        return formatting.amount(name, decided.metrics.get(name))

    ratio = model.speedup(model.small_batch) if not model.error else None
    latency = model.benchmark.latency.get(model.small_batch) if model.benchmark else None
    quality = model.estimate(metric)
    change = model.change(metric) if model.baseline and metric in model.metrics else None
    return {
        **vars(decided),
        "status": "chosen" if decided.chosen else "passed" if decided.passed else "rejected",
        "format": decided.format.replace("_", " "),
        "quality": formatting.amount(metric, quality.value, quality.low, quality.high) if quality else formatting.DASH,
        "change": formatting.change(metric, change.value, change.low, change.high) if change else "",
        "change_between": formatting.change_interval(metric, change.low, change.high) if change else "",
        "latency": cell("latency"),
        "p99": cell("latency_p99"),
        "unstable": _instability(model) if latency is not None and not latency.stable else "",
        "notes": model.benchmark.notes if model.benchmark else [],
        "speedup": formatting.ratio(ratio.value, ratio.low, ratio.high) if ratio and not ratio.is_unstable else "",
        "speedup_between": f"{formatting.ratio(ratio.low)} to {formatting.ratio(ratio.high)}" if ratio else "",
        "verdict": ratio.verdict if ratio else "",
        "not_compared": model.disturbance("latency") or "",
        "size": cell("size"),
        "gzipped": cell("size_gzipped"),
        "smaller": formatting.relative_size(model.value("size"), model.baseline.value("size"))
        if model.baseline and "size" in model.metrics
        else "",
        "load": _load(model),
        "more": [
            (
                formatting.title(name),
                formatting.amount(name, estimate.value, estimate.low, estimate.high),
                _interval(model, name),
            )
            for name, estimate in model.metrics.items()
            if name not in (metric, "latency", "latency_p99", "size", "size_gzipped", "error", *LOADS)
        ],
    }


def _load(model: ModelMeasurements) -> JsonObject | None:
    """Return the cells on a node under load; None if it was not measured."""
    if not (load := model.load):
        return None

    def cell(name: str) -> str:
        estimate = model.metrics.get(name)
        return formatting.amount(name, estimate.value) if estimate else ""

    return {
        "capacity": cell("capacity"),
        "between": _interval(model, "capacity"),
        "setup": [
            f"{load.instances} x {load.threads} thread{'s' if load.threads > 1 else ''}",
            f"batch {load.batch_size}",
        ],
        "cost": cell("cost"),
        "nodes": cell("nodes"),
        "p99": cell("p99_at_rate"),
        "not_compared": model.disturbance("capacity") or "",
    }


def _instability(model: ModelMeasurements) -> str:
    """Return why the latency is not stable, without the batch size, and without what the next cell says."""
    prefix = f"batch size {model.small_batch}: "
    notes = model.benchmark.notes if model.benchmark else []
    reasons = [note.removeprefix(prefix) for note in notes if note.startswith(prefix)]
    if model.disturbance("latency"):
        reasons = [reason for reason in reasons if not reason.startswith("other processes used the machine in")]
    return "; ".join(reasons)


def parity_rows(models: Sequence[ModelMeasurements]) -> list[dict[str, str]]:
    """Return the differences of each candidate's outputs from the baseline's."""
    return [
        {
            "name": model.name,
            "largest": formatting.amount("error", model.evaluation.parity["max_abs_error"]),
            "mean": formatting.amount("error", model.evaluation.parity["mean_abs_error"]),
            "agreement": formatting.amount("agreement", model.evaluation.parity.get("agreement")),
        }
        for model in models
        if model.evaluation and model.evaluation.parity
    ]


def slice_table(models: Sequence[ModelMeasurements], metric: str) -> JsonObject | None:
    """Return the main metric by slice: the baseline's value and each candidate's difference; None without slices.

    Of more than `MOST_SLICES` slices those with the largest losses are returned.
    """
    measured = [model for model in models if not model.error]
    parts = measured[0].evaluation.slices if measured[0].evaluation else []
    if not parts:
        return None
    sign = 1 if measured[0].higher_is_better(metric) else -1
    rows: list[tuple[float, JsonObject]] = []  # with the smallest gain of a model
    for part in parts:
        name = slice_metric(metric, part.feature, part.value)
        entries = [model.slices.get(name) for model in measured]
        gains = [sign * entry.delta[metric].value for entry in entries if entry and metric in entry.delta]
        cells = [_cell(entry, metric) for entry in entries]
        title, count = f"{part.feature} = {part.value}", f"{part.count:,}"
        rows.append((min([0.0, *gains]), {"name": title, "count": count, "cells": cells}))
    hidden = max(0, len(rows) - MOST_SLICES)
    if hidden:
        rows = sorted(rows, key=itemgetter(0))[:MOST_SLICES]
    return {"models": [model.name for model in measured], "rows": [row for _, row in rows], "hidden": hidden}


def _cell(entry: SliceMetrics | None, metric: str) -> JsonObject:
    measured = entry.metrics.get(metric) if entry else None
    change = entry.delta.get(metric) if entry else None
    if change and measured:
        interval = formatting.change_interval(metric, change.low, change.high)
        lost = change.high < 0 if measured.higher_is_better else change.low > 0
        return {
            "value": formatting.change(metric, change.value, change.low, change.high),
            "between": interval,
            "lost": lost,
        }
    ends = (measured.value, measured.low, measured.high) if measured else (None,)
    return {"value": formatting.amount(metric, *ends), "between": "", "lost": False}


def confusion_tables(models: Sequence[ModelMeasurements], classes: Sequence[str], chosen: str) -> list[JsonObject]:
    """Return the confusion matrix and the most frequent errors of each model; that of the selected model is open.

    With more than `MOST_CLASSES` classes the matrix is left out.
    """
    shown = classes if len(classes) <= MOST_CLASSES else []
    return [
        {
            "name": model.name,
            "open": model.name == chosen,
            "classes": shown,
            "rows": list(zip(shown, counts, strict=False)),
            "mistakes": _frequent_confusions(classes, counts),
        }
        for model in models
        if model.evaluation and (counts := model.evaluation.confusion)
    ]


def _frequent_confusions(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> list[str]:
    confusions = [
        (count, label, predicted)
        for label, row in zip(classes, counts, strict=True)
        for predicted, count in zip(classes, row, strict=True)
        if count and label != predicted
    ]
    most = sorted(confusions, key=lambda confusion: -confusion[0])[:MOST_CONFUSIONS]
    return [f"{count:,} times {label} was classified as {predicted}" for count, label, predicted in most]


def _interval(model: ModelMeasurements, metric: str) -> str:
    estimate = model.metrics[metric]
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{formatting.amount(metric, estimate.low)} to {formatting.amount(metric, estimate.high)}"
