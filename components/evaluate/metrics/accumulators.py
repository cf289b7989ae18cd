"""Mergeable sums over records, independent of the order in which parts of the data are merged.

Every float is rounded to a multiple of a power of two, its grain, before it is added. float64 adds such values exactly,
so that the total does not depend on the order, and so not on the Beam runner. The grain is 2^-28 of the baseline's mean
on the first batch.
"""

import copy
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfopt.components.evaluate.metrics.task_metrics import ACTUAL, HIT, PREDICTED
from tfopt.components.evaluate.metrics.tfma_metrics import Partition
from tfopt.data.record_hashes import Hashes, RecordHashes

BINS, SLICE_BINS = 512, 128  # of the AUC's histograms; there is one for each replicate, and a slice has fewer records

Slice = tuple[str, Any]  # feature and value
Part = tuple[str, int, int]  # file, number of the part, number of parts
Position = tuple[str, int]  # a file's name, and the index of one of its batches
Array = NDArray[Any]


@dataclass
class Histogram:
    """Numbers of records in cells, counted and resampled."""

    counts: Array  # number of records, [models, …]
    resampled: Array  # weighted number of records, [models, …, replicates]

    @classmethod
    def empty(cls, shape: tuple[int, ...], replicates: int) -> Self:
        """Return a histogram without records; the first axis of the shape is the models."""
        return cls(np.zeros(shape, np.int64), np.zeros((*shape, replicates), np.int32))

    def add(self, model: int, weights: Array, cells: Array) -> None:
        """Add records of a model by the cell of each."""
        order = np.argsort(cells, kind="stable")
        used, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
        self.counts[model].reshape(-1)[used] += counts
        sums = np.add.reduceat(weights[order], starts, axis=0).astype(np.int32)
        self.resampled[model].reshape(-1, weights.shape[1])[used] += sums

    def add_members(self, models: int | slice, kinds: list[int], weights: Array, members: Array) -> None:
        """Add records to classes by their memberships, ``[records, kinds, classes]``."""
        # Of 16 bits: weights are below 190, batches have 256 records at most; narrow integers are added fastest.
        counted = members.astype(np.uint16)
        self.counts[models, kinds] += counted.sum(0, np.int64)
        self.resampled[models, kinds] += np.einsum("nkc,nr->kcr", counted, weights)

    def merge(self, other: "Histogram") -> None:
        """Add the counts of other records."""
        self.counts += other.counts
        self.resampled += other.resampled

    def values_of(self, model: int) -> tuple[Array, Array]:
        """Return the counts of a model, and those of each replicate with the replicates as first axis."""
        return self.counts[model], np.moveaxis(self.resampled[model], -1, 0)


@dataclass
class Sums:
    """The sums over one set of records: all records, or a slice."""

    records: int
    weight: Array  # sum of the bootstrap weights, [replicates]
    total: Array  # sum of each column of values, [models, columns]
    rising: Array  # sum of what each value exceeds the baseline's by, [models, columns]
    falling: Array  # sum of what the baseline's exceeds each value by, [models, columns]
    least: Array  # smallest value of each column, [models, columns]
    most: Array  # largest value of each column, [models, columns]
    resampled: Array  # weighted sum of each column, [models, columns, replicates]
    ranks: Histogram | None = None  # records by class and rank, [models, 2, bins]; None without AUC
    # Hits, predictions and labels of each class, [models, 3, classes]; None without F1
    classes: Histogram | None = None

    @classmethod
    def empty(cls, models: int, columns: int, replicates: int, bins: int = 0, classes: int = 0) -> Self:
        """Return sums over no records; ``bins`` is 0 without AUC, ``classes`` is 0 without precision and recall."""
        total, rising, falling = np.zeros((3, models, columns))
        return cls(
            0,
            np.zeros(replicates),
            total,
            rising,
            falling,
            np.full((models, columns), np.inf),
            np.full((models, columns), -np.inf),
            np.zeros((models, columns, replicates)),
            Histogram.empty((models, 2, bins), replicates) if bins else None,
            Histogram.empty((models, 3, classes), replicates) if classes else None,
        )

    def add(self, weights: Array, values: Array, grain: Array) -> None:
        """Add records: weights ``[records, replicates]``, values ``[records, models, columns]``."""
        count, models, columns = values.shape
        # Not the @ operator: for such a thin matrix, BLAS threads slow a busy machine down more than they gain.
        resampled = np.einsum("nr,nv->vr", weights.astype(np.float32), values.reshape(count, -1).astype(np.float32))
        self.records += count
        self.weight += weights.sum(0)
        self.total += round_to_grain(values.sum(0), grain)
        differences = values - values[:, :1]
        self.rising += round_to_grain(np.maximum(differences, 0).sum(0), grain)
        self.falling += round_to_grain(np.maximum(-differences, 0).sum(0), grain)
        np.minimum(self.least, values.min(0, initial=np.inf), out=self.least)
        np.maximum(self.most, values.max(0, initial=-np.inf), out=self.most)
        self.resampled += round_to_grain(resampled.reshape(models, columns, -1), grain[:, None])

    def add_ranks(self, model: int, weights: Array, labels: Array, bins: Array) -> None:
        """Add records to the ranks of a model: their class and their bin."""
        if self.ranks:
            self.ranks.add(model, weights, labels * self.ranks.counts.shape[2] + bins)

    def add_actual(self, weights: Array, actual: Array) -> None:
        """Add records to the counts of labels, which all models share: membership, ``[records, classes]``."""
        if self.classes:
            self.classes.add_members(slice(None), [ACTUAL], weights, actual[:, None])

    def add_predicted(self, model: int, weights: Array, predicted: Array, actual: Array) -> None:
        """Add records to a model's counts of classes: predicted and true membership, ``[records, classes]``."""
        if self.classes:
            self.classes.add_members(model, [HIT, PREDICTED], weights, np.stack([predicted & actual, predicted], 1))

    def set_constant(self, model: int, predicted: Array) -> None:
        """Set the counts of a model that predicts the same for all records: membership in each class, ``[classes]``."""
        if self.classes:
            counts, resampled = self.classes.counts[model], self.classes.resampled[model]
            counts[HIT], resampled[HIT] = counts[ACTUAL] * predicted, resampled[ACTUAL] * predicted[:, None]
            counts[PREDICTED] = self.records * predicted
            resampled[PREDICTED] = self.weight * predicted[:, None]

    def merge(self, other: "Sums") -> None:
        """Add the sums over other records."""
        self.records += other.records
        self.weight += other.weight
        self.total += other.total
        self.rising += other.rising
        self.falling += other.falling
        np.minimum(self.least, other.least, out=self.least)
        np.maximum(self.most, other.most, out=self.most)
        self.resampled += other.resampled
        for own, histogram in ((self.ranks, other.ranks), (self.classes, other.classes)):
            if own and histogram:
                own.merge(histogram)


@dataclass
class RecordFacts:
    """Facts about the records, mergeable in any order."""

    evaluated: RecordHashes = field(default_factory=RecordHashes)  # hashes of the evaluated records
    training: RecordHashes = field(default_factory=RecordHashes)  # hashes of the records that models are trained on
    is_whole: bool = True  # False if the training split has more records than are compared
    labels: set[float] = field(default_factory=set)  # the smallest and the largest label

    def add(self, hashes: Hashes, labels: NDArray[Any]) -> None:
        """Add evaluated records."""
        self.evaluated.add(hashes)
        if labels.size and labels.dtype.kind in "iuf":
            self._add_labels({labels.min().item(), labels.max().item()})

    def merge(self, other: "RecordFacts") -> None:
        """Add other records."""
        self.evaluated.merge(other.evaluated)
        self.training.merge(other.training)
        self.is_whole &= other.is_whole
        self._add_labels(other.labels)

    def _add_labels(self, labels: set[float]) -> None:
        every = self.labels | labels
        self.labels = {min(every), max(every)} if every else every


@dataclass
class Totals:
    """All sums over one part of the data, or over all data."""

    answered: Array  # records that each model returned an output for
    broken: Array  # number of these outputs with a NaN or an infinity
    agreeing: Array  # number of these outputs with the baseline's class
    total_error: Array  # sum of the absolute differences of each model's outputs to the baseline's
    max_error: Array  # the largest of these differences
    parts: Counter[Part] = field(default_factory=Counter)  # how often each part of a file was scored
    read: int = 0  # records in the files
    skipped: Counter[str] = field(default_factory=Counter)  # records that could not be used, by reason
    # The first failure of each failed model: position and reason
    failures: dict[int, tuple[Position, str]] = field(default_factory=dict)
    # Identifiers of the records that each model was calibrated on
    overlap: dict[int, set[str]] = field(default_factory=dict)
    # The three parts of the error that ends the step, with its position
    refusal: tuple[Position, tuple[str, str, str]] | None = None
    sums: dict[Slice | None, Sums] = field(default_factory=dict)  # sums over all records (key None) and over each slice
    # Accumulators of TFMA's metrics, by model and metric
    tfma: dict[tuple[int, str], Partition] = field(default_factory=dict)
    # Records by true and predicted class, [models, classes, classes]; None if there are no counts
    confusion: Array | None = None
    # Smallest and largest value of each output of each model
    ranges: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    checks: RecordFacts = field(default_factory=RecordFacts)  # hashes and labels of the records
    began: float = math.inf  # time when the first worker had loaded its models, in seconds since 1970
    ended: float = 0.0  # time when the last worker had finished

    @classmethod
    def empty(cls, models: int) -> Self:
        """Return the totals of no data."""
        return cls(*np.zeros((3, models), np.int64), *np.zeros((2, models)))

    def add_confusion(self, model: int, counts: Array) -> None:
        """Add a model's confusion matrix of one batch, ``[classes, classes]``."""
        if self.confusion is None:
            self.confusion = np.zeros((len(self.answered), *counts.shape), np.int64)
        self.confusion[model] += counts

    def add_range(self, model: int, least: Array, most: Array) -> None:
        """Add the smallest and largest values of a model's outputs of some records, ``[width]``."""
        own = self.ranges.get(model)
        self.ranges[model] = (np.minimum(own[0], least), np.maximum(own[1], most)) if own else (least, most)

    def add_errors(self, model: int, baseline: Array, outputs: Array, grain: float) -> None:
        """Add the differences of a model's outputs of one batch to the baseline's."""
        error = np.abs(baseline.astype(np.float64) - outputs)
        self.max_error[model] = max(self.max_error[model], error.max(initial=0.0))
        self.total_error[model] += round_to_grain(error.sum(), grain)

    def add_overlap(self, overlap: Mapping[int, set[str]]) -> None:
        """Add records that models were calibrated on."""
        for model, records in overlap.items():
            self.overlap[model] = self.overlap.get(model, set()) | records

    def merge(self, other: "Totals") -> None:
        """Add the totals of another part."""
        self.began, self.ended = min(self.began, other.began), max(self.ended, other.ended)
        self.parts += other.parts
        self.read += other.read
        self.skipped += other.skipped
        self.answered += other.answered
        self.broken += other.broken
        self.agreeing += other.agreeing
        self.total_error += other.total_error
        np.maximum(self.max_error, other.max_error, out=self.max_error)
        if other.confusion is not None:
            self.confusion = other.confusion + (0 if self.confusion is None else self.confusion)
        for model, (least, most) in other.ranges.items():
            self.add_range(model, least, most)
        for model, failure in other.failures.items():
            self.failures[model] = min(failure, self.failures.get(model, failure))
        self.add_overlap(other.overlap)
        self.checks.merge(other.checks)
        for own, partition in other.tfma.items():
            self.tfma.setdefault(own, Partition(partition.name)).merge(partition)
        self.refusal = min((refusal for refusal in (self.refusal, other.refusal) if refusal), default=None)
        for key, sums in other.sums.items():
            if key in self.sums:
                self.sums[key].merge(sums)
            else:
                self.sums[key] = copy.deepcopy(sums)  # a runner may use its arguments again


def round_to_grain(value: Any, grain: Any) -> Any:
    """Round to a multiple of the grain, a power of two."""
    return np.rint(value / grain) * grain


def grain_of(mean: Any) -> Any:
    """Return the grain for sums of values around this mean."""
    size = np.where(np.asarray(mean) > 0, mean, 1.0)
    return np.exp2(np.floor(np.log2(size)) - 28)
