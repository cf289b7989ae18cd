"""Runs all models on parts of the data and adds up their metrics."""

import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.examples.record_checks import find_overlap
from tfopt.components.evaluate.examples.records import PREFETCHED, Decoder, prefetch, read_parts
from tfopt.components.evaluate.loaded_models import MODEL_POOL, LoadedModel, describe_error, required_inputs
from tfopt.components.evaluate.metrics.accumulators import BINS, SLICE_BINS, Part, Position, Slice, Sums, Totals
from tfopt.components.evaluate.metrics.bootstrap import bootstrap_weights
from tfopt.components.evaluate.metrics.task_metrics import confusion
from tfopt.components.evaluate.metrics.tfma_metrics import Partition
from tfopt.components.evaluate.task_choice import check_labels, check_probabilities
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.data.record_hashes import Hashes, hash_records
from tfopt.errors import ComponentError
from tfopt.processes.memory import trim_heap

MOST_SLICES = 200  # values of one slice feature

Columns = dict[str, NDArray[Any]]
Outputs = dict[int, NDArray[Any] | str]  # predictions of each model, or why it failed


def score_parts(plan: Plan, parts: Sequence[Part]) -> Totals:
    """Evaluate every model on parts of files; large models run in groups, with stored predictions for some batches."""
    totals = Totals.empty(len(plan.models))
    totals.parts.update(parts)
    if len(plan.groups) == 1:
        with MODEL_POOL.borrow(plan) as models:
            totals.began = time.time()
            _score(plan, models, read_parts(parts, plan.batch_size), totals)
    else:
        totals.began = time.time()
        for start in itertools.count(step=plan.stored_batches):
            read = functools.partial(read_parts, parts, plan.batch_size, start, start + plan.stored_batches)
            scored = _score(plan, _predict_in_groups(plan, read), read(), totals)
            if scored < plan.stored_batches:
                break
    totals.ended = time.time()
    return totals


def _predict_in_groups(plan: Plan, read: Callable[[], Iterable[tuple[Position, Any]]]) -> list[LoadedModel]:
    """Load one group of models after the other, run it on all batches, and release it.

    A record is usable if it has the inputs of all models. If a later group has further inputs, all groups run again.
    The released models, which are returned, have stored their predictions.
    """
    inputs: dict[str, TensorSpec] = {}
    while True:
        models: list[LoadedModel] = []
        has_all_inputs = True
        for group in plan.groups:
            with MODEL_POOL.borrow_group(plan, group) as loaded:
                required = required_inputs(loaded)
                has_all_inputs &= not models or required.keys() <= inputs.keys()
                inputs |= required
                decoder = Decoder(plan.features, plan.settings.label, plan.settings.slices, inputs)
                batches = ((position, *decoder.decode(records)) for position, records in read())
                for position, usable, columns, _ in prefetch(batches, PREFETCHED):
                    for model in loaded if len(usable) else ():
                        model.store(position, columns)
            models += loaded
        if has_all_inputs:
            return models


def _score(plan: Plan, models: Sequence[LoadedModel], batches: Iterable[tuple[Position, Any]], totals: Totals) -> int:
    """Add up the metrics of all models on the batches; return how many batches there were, or 0 after a refusal."""
    position: Position = ("", 0)
    decoder = Decoder(plan.features, plan.settings.label, plan.settings.slices, required_inputs(models))
    count = 0
    try:
        decoded = prefetch(_decode(plan, decoder, batches), PREFETCHED)
        # The models run in a thread of their own while the metrics of the batch before are computed.
        for batch, outputs in prefetch(_predict(models, decoded), 1):
            position = batch.position
            _score_batch(plan, models, batch, outputs, totals)
            count += 1
            if count == 1:
                trim_heap()  # what the first calls of all models left
    except ComponentError as error:  # passed as data, because Beam would wrap it in a message of its own
        totals.refusal = (position, (error.received, error.expected, error.fix))
        return 0
    return count


@dataclass(frozen=True)
class _Batch:
    position: Position
    read: int  # number of records, including skipped ones
    skipped: Counter[str]  # by reason
    columns: Columns  # label, slices and inputs of the usable records
    weights: NDArray[np.uint16]  # of the usable records in the bootstrap, [records, replicates]
    hashes: Hashes  # of the usable records
    overlap: dict[int, set[str]]  # records that each model was calibrated on


def _decode(plan: Plan, decoder: Decoder, batches: Iterable[tuple[Position, Any]]) -> Iterator[_Batch]:
    settings = plan.settings
    for (file, index), records in batches:
        usable, columns, skipped = decoder.decode(records)
        weights = bootstrap_weights(settings.seed, file, index, len(records), settings.replicates)
        overlap = find_overlap(records.numpy(), plan.calibrated) if any(plan.calibrated) else {}
        usable_records, weights = (records.numpy()[usable], weights[usable]) if skipped else (records, weights)
        hashes = hash_records(usable_records, settings.label)  # here, since metrics take longer than decoding
        yield _Batch((file, index), len(records), skipped, columns, weights, hashes, overlap)


def _predict(models: Sequence[LoadedModel], batches: Iterable[_Batch]) -> Iterator[tuple[_Batch, Outputs]]:
    """Yield each batch with the predictions of the models that have not failed before."""
    running = set(range(len(models)))
    for batch in batches:
        count = len(batch.weights)
        numbers = sorted(running) if count else []
        outputs = {number: models[number].predict(batch.position, batch.columns, count) for number in numbers}
        running -= {number for number, output in outputs.items() if isinstance(output, str)}
        yield batch, outputs


def _score_batch(plan: Plan, models: Sequence[LoadedModel], batch: _Batch, outputs: Outputs, totals: Totals) -> None:
    settings, scoring, columns = plan.settings, plan.scoring, batch.columns
    totals.read += batch.read
    totals.skipped += batch.skipped
    totals.add_overlap(batch.overlap)
    stored = columns[settings.label]
    if not len(stored):
        return
    check_labels(scoring, settings.label, stored)
    totals.checks.add(batch.hashes, stored)
    labels = scoring.targets(stored)
    predictions = {
        number: rows
        for number, output in outputs.items()
        if (rows := _check_predictions(plan, number, models[number].output, output, batch.position, totals)) is not None
    }
    if 0 in predictions:
        check_probabilities(scoring, settings, predictions[0])
    values = _compute_metrics(plan, predictions, stored, batch.position, totals)
    _compare_outputs(plan, predictions, totals)
    if plan.constant is not None:
        predictions[len(models)] = np.broadcast_to(plan.constant, (len(labels), len(plan.constant)))
        values[:, -1] = plan.values(predictions[len(models)], stored)
    actual = scoring.members(labels) if scoring.counted_classes else None
    for key, selected in _slices(settings.slices, columns, len(labels)):
        bins = (BINS if key is None else SLICE_BINS) if scoring.has_auc else 0
        if key not in totals.sums:
            counted = scoring.counted_classes
            totals.sums[key] = Sums.empty(plan.rows, plan.columns, settings.replicates, bins, counted)
        sums, weights = totals.sums[key], batch.weights[selected]
        sums.add(weights, values[selected], plan.metric_grain)
        if actual is not None:
            sums.add_actual(weights, actual[selected])
        for number, rows in predictions.items():
            if scoring.has_auc:
                sums.add_ranks(number, weights, labels[selected, 0], scoring.bins(rows[selected], bins))
            if actual is None:
                continue
            if number == len(models):
                sums.set_constant(number, scoring.members(scoring.classes(rows[:1]))[0])
            else:
                predicted = scoring.members(scoring.classes(rows[selected]))
                sums.add_predicted(number, weights, predicted, actual[selected])
    _check_slices(totals)


def _compute_metrics(
    plan: Plan, predictions: dict[int, NDArray[Any]], stored: NDArray[Any], position: Position, totals: Totals
) -> NDArray[np.float64]:
    """Compute the metrics of each record, ``[records, models, columns]``; drop the predictions of models that fail."""
    scoring, labels = plan.scoring, plan.scoring.targets(stored)
    values = np.zeros((len(labels), plan.rows, plan.columns))
    for number, rows in list(predictions.items()):
        try:
            values[:, number] = 0 if totals.broken[number] else plan.values(rows, stored)
            for name in () if totals.broken[number] else plan.tfma:
                partition = totals.tfma.setdefault((number, name), Partition(name))
                partition.add(labels, scoring.probabilities(rows), position[1])
        except ComponentError as error:
            if not number:
                raise
            totals.failures[number] = (position, describe_error(error))
            del predictions[number]
            continue
        if scoring.class_count:
            totals.add_confusion(number, confusion(labels[:, 0], scoring.classes(rows), scoring.class_count))
    return values


def _check_predictions(
    plan: Plan, number: int, name: str, output: NDArray[Any] | str, position: Position, totals: Totals
) -> NDArray[Any] | None:
    """Return a model's predictions on a batch with 0 instead of NaN and infinities; None if it has failed."""
    if number in totals.failures:
        return None
    width = plan.scoring.width
    if not isinstance(output, str) and output.shape[1] != width:
        output = f"output {name!r} has {output.shape[1]} values a record (expected {width}, as the baseline's)"
    if isinstance(output, str):
        totals.failures[number] = (position, output)
        return None
    totals.answered[number] += len(output)
    finite = np.isfinite(output).all(1)
    if not finite.all():  # the model is reported as an error, so its sums no longer matter
        totals.broken[number] += int((~finite).sum())
        return np.where(finite[:, None], output, 0)
    return output


def _slices(features: tuple[str, ...], columns: Columns, count: int) -> Iterator[tuple[Slice | None, Any]]:
    """Yield all records under the key None, then the rows of each value of each slice feature."""
    yield None, slice(0, count)
    for feature in features:
        values = columns[feature][:, 0]
        for value in np.unique(values):
            plain = value.decode(errors="replace") if isinstance(value, bytes) else int(value)
            yield (feature, plain), np.flatnonzero(values == value)


def _check_slices(totals: Totals) -> None:
    for feature, count in Counter(key[0] for key in totals.sums if key).items():
        if count > MOST_SLICES:
            received = f"slice feature {feature!r} has more than {MOST_SLICES} values"
            raise ComponentError(received, "a feature with few values", "store it in coarser steps")


def _compare_outputs(plan: Plan, predictions: dict[int, NDArray[Any]], totals: Totals) -> None:
    for number, rows in predictions.items():
        totals.add_range(number, rows.min(0), rows.max(0))
        if number and 0 in predictions:
            totals.add_errors(number, predictions[0], rows, plan.output_grain)
            if plan.scoring.has_classes:
                same = np.equal(plan.scoring.classes(rows), plan.scoring.classes(predictions[0]))
                totals.agreeing[number] += same.reshape(len(rows), -1).all(1).sum()
