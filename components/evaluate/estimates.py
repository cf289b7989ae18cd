"""Values and bootstrap replicates of all metrics of a model, from the sums over records."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.evaluate.accumulators import Slice, Sums, Totals
from tfopt.components.evaluate.curves import auc, average_precision
from tfopt.components.evaluate.metrics import HIGHER_IS_BETTER, class_metrics
from tfopt.components.evaluate.plan import Plan
from tfopt.components.evaluate.tfma_metrics import HIGHER
from tfopt.errors import ComponentError

Array = NDArray[Any]


@dataclass(frozen=True)
class Sampled:
    """A metric with its bootstrap replicates.

    Attributes:
        value: The value over the records.
        replicates: The values over the resampled records, ``[replicates]``.
        higher_is_better: True if a higher value is better.
        resolution: Largest error of the value, if it is computed from a histogram.
    """

    value: float
    replicates: Array
    higher_is_better: bool
    resolution: float | None = None


def compute_metrics(plan: Plan, totals: Totals, model: int) -> dict[Slice | None, dict[str, Sampled]]:
    """Compute the metrics of a model over all records (key None) and over each slice; undefined ones are left out.

    Raises:
        ComponentError: If a metric of the user raises, or is NaN over all records.
    """
    metrics = {key: _defined(plan, sums, model) for key, sums in totals.sums.items()}
    metrics[None] = _tfma_metrics(plan, totals, model) | metrics[None]
    named = [(text, text.rpartition(":")[2]) for text in plan.settings.metrics]
    for text, name in named:
        if name not in metrics[None]:
            raise ComponentError(
                f"metric {text}: NaN over {totals.sums[None].records} records",
                "a finite number",
                f"check the labels, for which {name} may not be defined, and what {name}.finish returns",
            )
    metrics[None] = {name: metrics[None][name] for _, name in named} | metrics[None]
    return metrics


def _defined(plan: Plan, sums: Sums, model: int) -> dict[str, Sampled]:
    """Return the metrics over one set of records, the user's first, without those that are not defined there."""
    metrics = _user_metrics(plan, sums, model) | _means(plan, sums, model)
    if sums.ranks:
        counts, resampled = sums.ranks.values_of(model)
        for name, area in (("auc", auc), ("pr_auc", average_precision)):
            value, resolution = area(counts)
            metrics[name] = Sampled(float(value), area(resampled)[0], True, float(resolution))
        if not counts.any(1).all():  # the curves need both classes
            del metrics["auc"], metrics["pr_auc"]
    if sums.classes:
        counts, resampled = sums.classes.values_of(model)
        replicates = class_metrics(resampled)
        metrics |= {
            name: Sampled(float(value), replicates[name], True) for name, value in class_metrics(counts).items()
        }
    return {name: metric for name, metric in metrics.items() if np.isfinite(metric.value)}


def _means(plan: Plan, sums: Sums, model: int) -> dict[str, Sampled]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            name: Sampled(
                float(sums.total[model, column] / sums.records),
                sums.resampled[model, column] / sums.weight,
                name.endswith(HIGHER_IS_BETTER),
            )
            for column, name in enumerate(plan.scoring.metrics)
        }


def _user_metrics(plan: Plan, sums: Sums, model: int) -> dict[str, Sampled]:
    metrics, start = {}, len(plan.scoring.metrics)
    for metric in plan.metrics:
        columns = slice(start, start + metric.terms)
        start += metric.terms
        resampled = zip(sums.resampled[model, columns].T, sums.weight, strict=True)
        metrics[metric.name] = Sampled(
            metric.value(sums.total[model, columns], sums.records),
            np.array([metric.value(terms, weight) for terms, weight in resampled]),
            metric.higher_is_better,
        )
    return metrics


def _tfma_metrics(plan: Plan, totals: Totals, model: int) -> dict[str, Sampled]:
    metrics = {}
    for name in plan.tfma:
        partition = totals.tfma[model, name]
        if np.isfinite(value := partition.value()):
            replicates = partition.replicates(value, plan.settings.replicates, plan.settings.seed)
            metrics[name] = Sampled(value, replicates, name in HIGHER)
    return metrics
