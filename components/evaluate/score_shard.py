"""Runs all models on one part of the data and adds up their metrics."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.storage import local_copy
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.accumulators import BINS, SLICE_BINS, Position, Slice, Sums, Totals
from tfopt.components.evaluate.bootstrap import bootstrap_weights
from tfopt.components.evaluate.calibration_overlap import find_overlap
from tfopt.components.evaluate.loaded_models import MODEL_POOL, LoadedModel, describe_error, predict
from tfopt.components.evaluate.metrics import confusion
from tfopt.components.evaluate.plan import Plan, check_labels
from tfopt.components.evaluate.prefetch import prefetch
from tfopt.components.evaluate.records import Decoder, read_part
from tfopt.components.evaluate.tfma_metrics import Partition
from tfopt.data.feature_schema import required_features
from tfopt.errors import ComponentError
from tfopt.processes import heap

MOST_SLICES = 200  # values of one slice feature
PREFETCHED = 4  # batches

Columns = dict[str, NDArray[Any]]


def score_part(plan: Plan, file: str, part: int, of: int) -> Totals:
    """Evaluate every model on every ``of``-th batch of a file."""
    totals = Totals.empty(len(plan.models))
    position = (PurePath(file).name, 0)
    with MODEL_POOL.borrow(plan) as models:
        totals.began = time.time()
        try:
            inputs: dict[str, TensorSpec] = {}
            for model in models:
                inputs |= required_features(model.runtime.inputs) if model.runtime else {}
            totals.failures = {n: (position, model.failure) for n, model in enumerate(models) if model.failure}
            decoder = Decoder(plan.features, plan.settings.label, plan.settings.slices, inputs)
            for number, batch in enumerate(prefetch(_batches(plan, decoder, file, part, of), PREFETCHED)):
                position = batch.position
                _score_batch(plan, models, batch, totals)
                if not number:
                    heap.trim()  # what the first calls of all models left
        except ComponentError as error:  # passed as data, because Beam would wrap it in a message of its own
            totals.refusal = (position, (error.received, error.expected, error.fix))
        totals.ended = time.time()
    return totals


@dataclass(frozen=True)
class Batch:
    """A decoded batch.

    Attributes:
        position: The file's name, and the index of the batch in it.
        read: Number of records, including skipped ones.
        skipped: Records that cannot be used, by reason.
        columns: Label, slices and inputs of the usable records.
        weights: Bootstrap weights of the usable records, ``[records, replicates]``.
        overlap: Records that each model was calibrated on.
    """

    position: Position
    read: int
    skipped: Counter[str]
    columns: Columns
    weights: NDArray[np.float32]
    overlap: dict[int, set[str]]


def _batches(plan: Plan, decoder: Decoder, file: str, part: int, of: int) -> Iterator[Batch]:
    settings, name = plan.settings, PurePath(file).name
    for index, records in read_part(local_copy(file), part, of, plan.batch_size):
        usable, columns, skipped = decoder.decode(records)
        weights = bootstrap_weights(settings.seed, name, index, len(records), settings.replicates)
        overlap = find_overlap(records.numpy(), plan.calibrated) if any(plan.calibrated) else {}
        yield Batch((name, index), len(records), skipped, columns, weights[usable] if skipped else weights, overlap)


def _score_batch(plan: Plan, models: list[LoadedModel], batch: Batch, totals: Totals) -> None:
    settings, scoring, columns = plan.settings, plan.scoring, batch.columns
    totals.read += batch.read
    totals.skipped += batch.skipped
    totals.add_overlap(batch.overlap)
    labels = columns[settings.label]
    if not len(labels):
        return
    check_labels(scoring, settings.label, labels)
    predictions = {
        number: rows
        for number, model in enumerate(models)
        if (rows := _predictions(plan, number, model, batch, totals)) is not None
    }
    values = np.zeros((len(labels), len(models), plan.columns))
    for number, rows in list(predictions.items()):
        try:
            values[:, number] = 0 if totals.broken[number] else plan.values(rows, labels)
            for name in () if totals.broken[number] else plan.tfma:
                partition = totals.tfma.setdefault((number, name), Partition(name))
                partition.add(labels, scoring.probabilities(rows), batch.position[1])
        except ComponentError as error:
            if not number:
                raise
            totals.failures[number] = (batch.position, describe_error(error))
            del predictions[number]
            continue
        if scoring.class_count and (classes := scoring.classes(rows)) is not None:
            totals.add_confusion(number, confusion(labels[:, 0], classes, scoring.class_count))
    actual = scoring.members(labels) if scoring.counted_classes else None
    for key, selected in _slices(settings.slices, columns, len(labels)):
        bins = (BINS if key is None else SLICE_BINS) if scoring.has_auc else 0
        if key not in totals.sums:
            counted = scoring.counted_classes
            totals.sums[key] = Sums.empty(len(models), plan.columns, settings.replicates, bins, counted)
        sums, weights = totals.sums[key], batch.weights[selected]
        sums.add(weights, values[selected], plan.metric_grain)
        for number, rows in predictions.items():
            if scoring.has_auc:
                sums.add_ranks(number, weights, labels[selected, 0], scoring.bins(rows[selected], bins))
            if actual is not None:
                predicted = scoring.members(scoring.classes(rows[selected]))
                sums.add_classes(number, weights, predicted, actual[selected])
    _check_slices(totals)
    _compare_outputs(plan, predictions, totals)


def _predictions(plan: Plan, number: int, model: LoadedModel, batch: Batch, totals: Totals) -> NDArray[Any] | None:
    """Return a model's predictions on a batch; None if it has failed in this part."""
    if number in totals.failures or model.runtime is None:
        return None
    try:
        predictions = model.known.pop(batch.position, None)
        if predictions is None:
            predictions = predict(model.runtime, batch.columns, model.output)
        if predictions.shape[1] != plan.scoring.width:
            raise ComponentError(
                f"output {model.output!r} has {predictions.shape[1]} values a record",
                f"{plan.scoring.width}, as the baseline's",
                "export it with the baseline's outputs",
            )
    except Exception as error:
        totals.failures[number] = (batch.position, describe_error(error))
        return None
    totals.answered[number] += len(predictions)
    finite = np.isfinite(predictions).all(1)
    if not finite.all():  # the model is reported as an error, so its sums no longer matter
        totals.broken[number] += int((~finite).sum())
        predictions = np.where(finite[:, None], predictions, 0)
    return predictions


def _slices(features: tuple[str, ...], columns: Columns, count: int) -> Iterator[tuple[Slice | None, Any]]:
    """Yield all records under the key None, then the rows of each value of each slice feature."""
    yield None, slice(0, count)
    for feature in features:
        values = columns[feature][:, 0]
        for value in np.unique(values):
            plain = value.decode(errors="replace") if isinstance(value, bytes) else int(value)
            yield (feature, plain), np.flatnonzero(values == value)


def _check_slices(totals: Totals) -> None:
    counts = Counter(key[0] for key in totals.sums if key)
    for feature, count in counts.items():
        if count > MOST_SLICES:
            raise ComponentError(
                f"slice feature {feature!r} has more than {MOST_SLICES} values",
                "a feature with few values",
                "store it in coarser steps",
            )


def _compare_outputs(plan: Plan, predictions: dict[int, NDArray[Any]], totals: Totals) -> None:
    baseline = predictions.get(0)
    if baseline is None:
        return
    baseline_classes = plan.scoring.classes(baseline)
    for number, rows in predictions.items():
        if number:
            classes = plan.scoring.classes(rows)
            same = None if baseline_classes is None else (baseline_classes == classes).reshape(len(rows), -1).all(1)
            totals.differences.add(number, baseline, rows, same, plan.output_grain)
