"""The tables of the page, as rows of text."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfopt import formatting as wording
from tfopt.measurement.model_measurements import ModelMeasurements

MOST_SLICES = 60
NOT_MEASURED = "\N{EN DASH}"


def main_row(listed: Mapping[str, Any], model: ModelMeasurements, metric: str) -> dict[str, Any]:
    """One model's row of the main table; a dash where nothing was measured."""
    ratio = model.speedup(model.small_batch) if not model.error else None
    latency = (model.speed.get("latency") or {}).get(model.small_batch) or {}
    moved = model.change(metric) if model.parent and metric in model.metrics else None
    return {
        **listed,
        "status": "chosen" if listed["chosen"] else "passed" if listed["passed"] else "rejected",
        "format": listed["format"].replace("_", " "),
        "quality": _said(model, metric),
        "change": wording.change(metric, moved.value) if moved else "",
        "change_between": wording.change_interval(metric, moved.low, moved.high) if moved else "",
        "latency": _said(model, "latency"),
        "p99": _said(model, "latency_p99"),
        "unstable": bool(latency) and not latency.get("stable", True),
        "notes": model.speed.get("notes") or [],
        "speedup": wording.ratio(ratio["value"]) if ratio else "",
        "speedup_between": f"{wording.ratio(ratio['low'])} to {wording.ratio(ratio['high'])}" if ratio else "",
        "verdict": ratio["verdict"] if ratio else "",
        "size": _said(model, "size"),
        "gzipped": _said(model, "size_gzipped"),
        "smaller": wording.relative_size(model.value("size"), model.parent.value("size"))
        if model.parent and "size" in model.metrics
        else "",
        "more": [
            (wording.title(name), wording.amount(name, estimate.value), _between(model, name))
            for name, estimate in model.metrics.items()
            if name not in (metric, "latency", "latency_p99", "size", "size_gzipped", "error")
        ],
    }


def parity_rows(models: Sequence[ModelMeasurements]) -> list[dict[str, str]]:
    """How each candidate's output differs from the parent's."""
    return [
        {
            "name": model.name,
            "largest": wording.amount("error", parity["max_abs_error"]),
            "mean": wording.amount("error", parity["mean_abs_error"]),
            "agreement": "" if parity.get("agreement") is None else wording.amount("agreement", parity["agreement"]),
        }
        for model in models
        if (parity := model.quality.get("parity"))
    ]


def slice_table(models: Sequence[ModelMeasurements], metric: str) -> dict[str, Any] | None:
    """The main metric in each slice: a row a slice, a column a model, the parent's value and then differences."""
    sound = [model for model in models if not model.error]
    slices = sound[0].quality.get("slices") or []
    if not slices:
        return None
    rows: list[dict[str, Any]] = []
    for own in slices:
        key = (own["feature"], own["value"])
        same = [_slice(model, key) for model in sound]
        worst = min((_gain(model, found, metric) for model, found in zip(sound, same, strict=True)), default=0.0)
        cells = [_cell(found, metric, number) for number, found in enumerate(same)]
        rows.append({"name": f"{key[0]} = {key[1]}", "count": f"{own['count']:,}", "cells": cells, "worst": worst})
    shown = sorted(rows, key=lambda row: row["worst"])[:MOST_SLICES] if len(rows) > MOST_SLICES else rows
    return {"models": [model.name for model in sound], "rows": shown, "hidden": len(rows) - len(shown)}


def _slice(model: ModelMeasurements, key: tuple[str, Any]) -> Mapping[str, Any]:
    found = (other for other in model.quality.get("slices") or [] if (other["feature"], other["value"]) == key)
    return next(found, {})


def _gain(model: ModelMeasurements, found: Mapping[str, Any], metric: str) -> float:
    """How much better than the parent a model is in a slice."""
    moved = float(found.get("delta", {}).get(metric, {}).get("value", 0.0))
    return moved if model.higher_is_better(metric) else -moved


def _cell(found: Mapping[str, Any], metric: str, number: int) -> dict[str, Any]:
    measured = found.get("metrics", {}).get(metric)
    moved = found.get("delta", {}).get(metric)
    if number and moved:
        ends = wording.change_interval(metric, moved.get("low"), moved.get("high"))
        sign = 1 if measured["higher_is_better"] else -1
        worst = moved.get("high" if sign > 0 else "low")
        lost = worst is not None and sign * worst < 0
        return {"value": wording.change(metric, moved["value"]), "between": ends, "lost": lost}
    return {
        "value": wording.amount(metric, measured["value"]) if measured else NOT_MEASURED,
        "between": "",
        "lost": False,
    }


def _said(model: ModelMeasurements, metric: str) -> str:
    return wording.amount(metric, model.value(metric)) if metric in model.metrics else NOT_MEASURED


def _between(model: ModelMeasurements, metric: str) -> str:
    found = model.metrics[metric]
    if found.low is None or found.high is None:
        return ""
    return f"{wording.amount(metric, found.low)} to {wording.amount(metric, found.high)}"
