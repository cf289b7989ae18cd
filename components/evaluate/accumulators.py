"""Sums that merge: what each part of the data adds, in whatever order the parts come.

Every float is rounded to a power-of-two grain before it is added, so that float64 adds it exactly and the total does
not depend on the order, that is, on the runner. The grain is 2^-28 of the baseline's mean on the first batch.
"""

import copy
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

BINS, SLICE_BINS = 512, 128  # of the AUC's histograms; each is kept for every replicate, and a slice has fewer records

Slice = tuple[str, Any]  # feature and value
Array = NDArray[Any]


@dataclass
class Sums:
    """The sums over one set of records: all of them, or a slice.

    Attributes:
        records: How many.
        weight: Sum of the bootstrap weights, ``[replicates]``.
        total: Sum of each metric, ``[models, metrics]``.
        resampled: The same with weights, ``[models, metrics, replicates]``.
        histogram: Records by class and rank, ``[models, 2, bins]``; None where there is no AUC.
        resampled_histogram: The same with weights, ``[models, 2, bins, replicates]``.
    """

    records: int
    weight: Array
    total: Array
    resampled: Array
    histogram: Array | None = None
    resampled_histogram: Array | None = None

    @classmethod
    def empty(cls, models: int, metrics: int, replicates: int, bins: int) -> Self:
        """Nothing yet; ``bins`` is 0 where there is no AUC."""
        return cls(
            0,
            np.zeros(replicates),
            np.zeros((models, metrics)),
            np.zeros((models, metrics, replicates)),
            np.zeros((models, 2, bins), np.int64) if bins else None,
            np.zeros((models, 2, bins, replicates), np.int32) if bins else None,
        )

    def add(self, weights: Array, values: Array, grain: Array) -> None:
        """Add records: weights ``[records, replicates]``, values ``[records, models, metrics]``."""
        count, models, metrics = values.shape
        # Not the @ operator: for a matrix this thin, BLAS's threads cost a busy machine more than they bring.
        resampled = np.einsum("nr,nv->vr", weights, values.reshape(count, -1).astype(np.float32))
        self.records += count
        self.weight += weights.sum(0)
        self.total += rounded(values.sum(0), grain)
        self.resampled += rounded(resampled.reshape(models, metrics, -1), grain[:, None])

    def add_ranks(self, model: int, weights: Array, labels: Array, bins: Array) -> None:
        """Add records to a model's histograms: their class and their bin."""
        if self.histogram is None or self.resampled_histogram is None:
            return
        cells = labels * self.histogram.shape[2] + bins
        order = np.argsort(cells, kind="stable")
        found, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
        self.histogram[model].reshape(-1)[found] += counts
        sums = np.add.reduceat(weights[order], starts, axis=0).astype(np.int32)
        self.resampled_histogram[model].reshape(-1, weights.shape[1])[found] += sums

    def merge(self, other: "Sums") -> None:
        """Take over the sums of other records."""
        self.records += other.records
        self.weight += other.weight
        self.total += other.total
        self.resampled += other.resampled
        if self.histogram is not None and other.histogram is not None:
            self.histogram += other.histogram
            self.resampled_histogram += other.resampled_histogram  # type: ignore[operator]


@dataclass
class Differences:
    """How far each model's outputs are from the baseline's, ``[models]`` each."""

    largest: Array
    total: Array
    numbers: Array
    agreeing: Array
    records: Array

    @classmethod
    def empty(cls, models: int) -> Self:
        """Nothing compared yet."""
        return cls(*(np.zeros(models) for _ in range(5)))

    def add(self, model: int, parent: Array, child: Array, same_class: Array | None, grain: float) -> None:
        """Compare the answers to one batch."""
        error = np.abs(parent.astype(np.float64) - child)
        self.largest[model] = max(self.largest[model], float(error.max(initial=0.0)))
        self.total[model] += rounded(error.sum(), grain)
        self.numbers[model] += error.size
        self.agreeing[model] += 0 if same_class is None else int(same_class.sum())
        self.records[model] += len(error)

    def merge(self, other: "Differences") -> None:
        """Take over the comparison of other records."""
        np.maximum(self.largest, other.largest, out=self.largest)
        for name in ("total", "numbers", "agreeing", "records"):
            getattr(self, name).__iadd__(getattr(other, name))


@dataclass
class Totals:
    """Everything one part of the data, or all of it, adds up to.

    Attributes:
        read: Records met in the files.
        skipped: Records that could not be used, by reason.
        answered: Records each model gave an answer for.
        broken: How many of those answers hold a NaN or an infinity.
        failures: Why a model stopped, with the place where: the first place counts.
        met: What identifies the records that a model was calibrated on and should be judged on.
        refusal: The three parts of the error that ends the step, with the place.
        sums: Over all records (the key None) and over each slice.
        confusion: Records by true and predicted class, ``[models, classes, classes]``; None where nothing was counted.
        differences: Of the outputs.
        began: When the first worker had its models loaded, in seconds since 1970.
        ended: When the last worker was done.
    """

    answered: Array
    broken: Array
    differences: Differences
    read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    failures: dict[int, tuple[tuple[str, int], str]] = field(default_factory=dict)
    met: dict[int, set[str]] = field(default_factory=dict)
    refusal: tuple[tuple[str, int], tuple[str, str, str]] | None = None
    sums: dict[Slice | None, Sums] = field(default_factory=dict)
    confusion: Array | None = None
    began: float = math.inf
    ended: float = 0.0

    @classmethod
    def empty(cls, models: int) -> Self:
        """Nothing yet."""
        return cls(np.zeros(models, np.int64), np.zeros(models, np.int64), Differences.empty(models))

    def add_confusion(self, model: int, found: Array) -> None:
        """Add the counts of a model's answers to one batch, ``[classes, classes]``."""
        if self.confusion is None:
            self.confusion = np.zeros((len(self.answered), *found.shape), np.int64)
        self.confusion[model] += found

    def merge(self, other: "Totals") -> None:
        """Take over what another part found."""
        self.began, self.ended = min(self.began, other.began), max(self.ended, other.ended)
        self.read += other.read
        self.skipped += other.skipped
        self.answered += other.answered
        self.broken += other.broken
        self.differences.merge(other.differences)
        if other.confusion is not None:
            self.confusion = other.confusion + (0 if self.confusion is None else self.confusion)
        for model, failure in other.failures.items():
            self.failures[model] = min(failure, self.failures.get(model, failure))
        self.meet(other.met)
        self.refusal = min((found for found in (self.refusal, other.refusal) if found), default=None)
        for key, sums in other.sums.items():
            if key in self.sums:
                self.sums[key].merge(sums)
            else:
                self.sums[key] = copy.deepcopy(sums)  # a runner may use what it passed again

    def meet(self, found: Mapping[int, set[str]]) -> None:
        """Note records that models were calibrated on."""
        for model, records in found.items():
            self.met[model] = self.met.get(model, set()) | records


def rounded(value: Any, grain: Any) -> Any:
    """Round to a multiple of the grain, a power of two."""
    return np.rint(value / grain) * grain


def grain_of(mean: Any) -> Any:
    """The grain for sums of values around this mean."""
    size = np.where(np.asarray(mean) > 0, mean, 1.0)
    return np.exp2(np.floor(np.log2(size)) - 28)
