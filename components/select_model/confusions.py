"""Which classes are taken for which: of each model a matrix while it can be read, and the commonest mistakes."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfopt.measurement.model_measurements import ModelMeasurements

MOST_COLUMNS = 20
MOST_MISTAKES = 10


def confusion_tables(
    models: Sequence[ModelMeasurements], evaluation: Mapping[str, Any], chosen: str
) -> list[dict[str, Any]]:
    """A table for each model that has counts, with the chosen one unfolded."""
    classes = evaluation.get("classes") or []
    return [
        {
            "name": model.name,
            "open": model.name == chosen,
            "classes": classes if len(classes) <= MOST_COLUMNS else [],
            "rows": [_row(name, number, row) for number, (name, row) in enumerate(zip(classes, counts, strict=True))]
            if len(classes) <= MOST_COLUMNS
            else [],
            "mistakes": _mistakes(classes, counts),
        }
        for model in models
        if (counts := model.quality.get("confusion"))
    ]


def _row(name: str, number: int, counts: Sequence[int]) -> dict[str, Any]:
    """One true class; how deep a cell is coloured goes by its share of the row."""
    total = sum(counts) or 1
    return {
        "name": name,
        "cells": [
            {"count": count, "right": place == number, "share": round(count / total, 3)}
            for place, count in enumerate(counts)
        ],
    }


def _mistakes(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> list[str]:
    found = [
        (count, true, taken)
        for true, row in zip(classes, counts, strict=True)
        for taken, count in zip(classes, row, strict=True)
        if count and true != taken
    ]
    most = sorted(found, key=lambda one: -one[0])[:MOST_MISTAKES]
    return [f"{count:,} times {true} was taken for {taken}" for count, true, taken in most]
