"""Values and bootstrap replicates of all metrics of a model, from the sums over records."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.evaluate.metrics.accumulators import Slice, Sums, Totals
from tfopt.components.evaluate.metrics.bootstrap import UNIT, unseen_record_weights
from tfopt.components.evaluate.metrics.task_metrics import ACTUAL, HIT, PREDICTED, auc, average_precision, class_metrics
from tfopt.components.evaluate.metrics.tfma_metrics import HIGHER
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.errors import ComponentError
from tfopt.measurement import confidence_bounds
from tfopt.measurement.metric_names import user_metric
from tfopt.metric_table import HIGHER_IS_BETTER

Array = NDArray[Any]


@dataclass(frozen=True)
class ShareCounts:
    """The records that a share and its difference to the baseline's are computed from."""

    hits: int  # records that the model has right
    records: int  # all records
    rising: int  # records that the model has right and the baseline wrong
    falling: int  # records that the baseline has right and the model wrong


@dataclass(frozen=True)
class Sampled:
    """A metric with its bootstrap replicates.

    The replicates contain an unseen record (`tfopt.measurement.confidence_bounds`). If several kinds of record may be
    the worst, there are replicates for each of them.
    """

    value: float  # the value over the records
    low: Array  # replicates with an unseen record that lowers the metric, [kinds of record, replicates]
    high: Array  # replicates with an unseen record that raises it
    higher_is_better: bool  # True if a higher value is better
    resolution: float | None = None  # largest error of the value, if it is computed from a histogram
    share: ShareCounts | None = None  # the counts of a share, whose intervals need no replicates
    no_bound: str | None = None  # why the intervals are no bounds; None if they are

    def interval(self, error: float) -> tuple[float, float] | None:
        """Return the interval of the metric."""
        if self.share:
            return confidence_bounds.share_interval(self.share.hits, self.share.records, error)
        return confidence_bounds.replicate_interval(self.low, self.high, error)

    def difference_interval(self, baseline: "Sampled", error: float) -> tuple[float, float] | None:
        """Return the interval of the difference to the baseline's metric over the same records."""
        if counts := self.share:
            return confidence_bounds.share_difference_interval(counts.rising, counts.falling, counts.records, error)
        return self.gap_interval(baseline, error)

    def gap_interval(self, baseline: "Sampled", error: float) -> tuple[float, float] | None:
        """Return the interval of the difference to any model's metric over the same records, from replicates."""
        return confidence_bounds.replicate_interval(self.low - baseline.high, self.high - baseline.low, error)

    def unseen_move(self, baseline: "Sampled") -> float:
        """Return how far the unseen record moves the difference to the baseline's metric.

        Replicates of both ends have the same weights, so half of their distance is free of the sample's noise.
        """
        if self.share:
            return 1 / (self.share.records + 1)
        low, high = _finite_means(self.low - baseline.high), _finite_means(self.high - baseline.low)
        return (max(high) - min(low)) / 2 if low and high else 0.0


def _finite_means(replicates: Array) -> list[float]:
    """Return the mean over the finite replicates of each kind of record that has some."""
    return [float(row[np.isfinite(row)].mean()) for row in replicates if np.isfinite(row).any()]


def compute_metrics(plan: Plan, totals: Totals, model: int) -> dict[Slice | None, dict[str, Sampled]]:
    """Compute the metrics of a model over all records (key None) and over each slice; undefined ones are left out.

    Raises:
        ComponentError: If a metric of the user raises, or is NaN over all records.
    """
    metrics = {key: metrics_of_records(plan, sums, model) for key, sums in totals.sums.items()}
    unseen = unseen_record_weights(plan.settings.seed, plan.settings.replicates)
    own = _tfma_metrics(plan, totals, model, unseen)
    metrics[None] = _without_bound_of_few(own, totals.sums[None].records) | metrics[None]
    first = {}  # the user's metrics, in their order
    for text in plan.settings.metrics:
        name = user_metric(text)
        if name in metrics[None]:
            first[name] = metrics[None][name]
        elif model < len(plan.models):
            fix = f"check the labels, for which {name} may not be defined, and what {name}.finish returns"
            raise ComponentError(f"metric {text}: NaN over {totals.sums[None].records} records", "a finite number", fix)
    metrics[None] = first | metrics[None]
    return metrics


def metrics_of_records(plan: Plan, sums: Sums, model: int) -> dict[str, Sampled]:
    """Return the metrics over one set of records, the user's first, without those that are not defined there."""
    unseen = unseen_record_weights(plan.settings.seed, plan.settings.replicates)
    metrics = _user_metrics(plan, sums, model, unseen) | _means(plan, sums, model, unseen)
    if sums.ranks:
        counts, resampled = sums.ranks.values_of(model)
        if counts.any(1).all():  # the curves need both classes
            rarer = int(counts.sum(1).argmin())  # a record of that class moves the area under the ROC curve more
            last = counts.shape[1] - 1
            for name, area, label in (("auc", auc, rarer), ("pr_auc", average_precision, 0)):
                value, resolution = area(counts)
                ranks = (0, last) if label else (last, 0)  # of an unseen record that is ranked worst, and best
                unseen_counts = (_with_counts(resampled, unseen, [(label, rank)]) for rank in ranks)
                low, high = (area(histogram)[0][None] for histogram in unseen_counts)
                metrics[name] = Sampled(float(value), low, high, True, float(resolution))
    if sums.classes:
        counts, resampled = sums.classes.values_of(model)
        ends = [[class_metrics(kind) for kind in kinds] for kinds in _count_extremes(counts, resampled, unseen)]
        for name, value in class_metrics(counts).items():
            low, high = (np.stack([metrics[name] for metrics in kinds]) for kinds in ends)
            metrics[name] = Sampled(float(value), low, high, True)
    defined = {name: metric for name, metric in metrics.items() if np.isfinite(metric.value)}
    return _without_bound_of_few(defined, sums.records)


def _without_bound_of_few(metrics: dict[str, Sampled], records: int) -> dict[str, Sampled]:
    """Return the metrics; a bootstrap of few records is no bound."""
    if records >= confidence_bounds.SMALLEST_SAMPLE:
        return metrics
    reason = f"{records} records, and a bootstrap is used from {confidence_bounds.SMALLEST_SAMPLE} on"
    return {name: metric if metric.share else replace(metric, no_bound=reason) for name, metric in metrics.items()}


def _count_extremes(counts: Array, resampled: Array, unseen: Array) -> tuple[list[Array], list[Array]]:
    """Return class counts ``[replicates, 3, classes]`` with an unseen record of the rarest class, wrong and right.

    A record of the rarest class moves the metrics most. With one counted class, the record may also be a negative one.
    """
    occurring = np.where(counts[ACTUAL] > 0, counts[ACTUAL], np.iinfo(np.int64).max)
    rarest = int(occurring.argmin())
    others = np.where(np.arange(len(occurring)) == rarest, np.iinfo(np.int64).max, counts[PREDICTED])
    confused = int(others.argmin())  # the class that the record is confused for
    wrong = [(ACTUAL, rarest), *([(PREDICTED, confused)] if confused != rarest else [])]
    right = [(HIT, rarest), (PREDICTED, rarest), (ACTUAL, rarest)]
    low, high = [_with_counts(resampled, unseen, wrong)], [_with_counts(resampled, unseen, right)]
    if len(occurring) == 1:
        low.append(_with_counts(resampled, unseen, [(PREDICTED, 0)]))
        high.append(resampled)
    return low, high


def _with_counts(resampled: Array, unseen: Array, cells: list[tuple[int, int]]) -> Array:
    """Return the counts of each replicate with the unseen record in some cells."""
    counts = resampled.astype(np.float64)
    for first, second in cells:
        counts[:, first, second] += unseen
    return counts


def _means(plan: Plan, sums: Sums, model: int, unseen: Array) -> dict[str, Sampled]:
    """Return the means over records; the unseen record has the best value, and the worst that a record had."""
    metrics = {}
    for column, name in enumerate(plan.scoring.metrics):
        higher = name.endswith(HIGHER_IS_BETTER)
        worst = 1.0 if higher else max(0.0, sums.most[[0, model], column].max())
        low, high = (
            ((sums.resampled[model, column] + unseen * value) / (sums.weight + unseen))[None] for value in (0.0, worst)
        )
        share = None
        if name in plan.scoring.shares:
            hits, rising, falling = (round(float(s[model, column])) for s in (sums.total, sums.rising, sums.falling))
            share = ShareCounts(hits, sums.records, rising, falling)
        metrics[name] = Sampled(float(sums.total[model, column] / sums.records), low, high, higher, share=share)
    return metrics


def _user_metrics(plan: Plan, sums: Sums, model: int, unseen: Array) -> dict[str, Sampled]:
    metrics, start = {}, len(plan.scoring.metrics)
    for metric in plan.metrics:
        columns = slice(start, start + metric.terms)
        start += metric.terms
        total = sums.total[model, columns]
        value = metric.value(total, sums.records)
        records = _extreme_records(sums, model, columns)
        values = np.array([metric.value(total + record, sums.records + 1) for record in records])
        if not np.isfinite(value) or not np.isfinite(values).any():
            continue
        ends = []
        for record in (records[int(np.nanargmin(values))], records[int(np.nanargmax(values))]):
            resampled = (sums.resampled[model, columns] + np.outer(record, unseen)).T / UNIT
            weights = (sums.weight + unseen) / UNIT
            ends.append(np.array([[metric.value(*pair) for pair in zip(resampled, weights, strict=True)]]))
        metrics[metric.name] = Sampled(value, ends[0], ends[1], metric.higher_is_better)
    return metrics


def _extreme_records(sums: Sums, model: int, columns: slice) -> Array:
    """Return terms of records that the unseen record may have, ``[records, terms]``.

    All terms but one are means over the records, that one is the smallest or largest that a record had.
    """
    mean = sums.total[model, columns] / sums.records
    terms = np.arange(len(mean))
    records = np.tile(mean, (1 + 2 * len(terms), 1))
    records[1 + 2 * terms, terms] = sums.least[[0, model], columns].min(0)
    records[2 + 2 * terms, terms] = sums.most[[0, model], columns].max(0)
    return records


def _tfma_metrics(plan: Plan, totals: Totals, model: int, unseen: Array) -> dict[str, Sampled]:
    """Return TFMA's metrics; the unseen record moves a replicate by its weight times the effect of one more record."""
    metrics = {}
    for name in plan.tfma:
        partition = totals.tfma.get((model, name))  # the constant model has none
        if partition and np.isfinite(value := partition.value()):
            replicates = partition.replicates(value, plan.settings.replicates, plan.settings.seed)
            moves = partition.unseen_moves(value, totals.tfma[0, name])
            low, high = ((replicates + move * unseen / UNIT)[None] for move in moves or (0.0, 0.0))
            no_bound = None if moves else f"TFMA's {name} has no known worst value of an unseen record"
            metrics[name] = Sampled(value, low, high, name in HIGHER, no_bound=no_bound)
    return metrics
