"""Running all models on one part of the data, and adding up what their answers are worth."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.storage import fetched
from tfopt.components.evaluate import calibration_overlap as overlap
from tfopt.components.evaluate.accumulators import BINS, SLICE_BINS, Slice, Sums, Totals
from tfopt.components.evaluate.bootstrap import weights
from tfopt.components.evaluate.confusion import confusion
from tfopt.components.evaluate.loaded_models import POOL, Contestant, answer, reason
from tfopt.components.evaluate.plan import Plan, check_labels
from tfopt.components.evaluate.prefetch import ahead
from tfopt.components.evaluate.records import Decoder, read_part
from tfopt.errors import ComponentError

LARGEST_SLICES = 200  # values of one slice feature

Columns = dict[str, NDArray[Any]]
Place = tuple[str, int]


def judge_part(plan: Plan, file: str, part: int, of: int) -> Totals:
    """Evaluate every model on every ``of``-th batch of a file."""
    totals = Totals.empty(len(plan.models))
    name = PurePath(file).name
    place = (name, 0)
    with POOL.borrow(plan) as models:
        totals.began = time.time()
        try:
            inputs = {name for model in models if model.runtime for name in model.runtime.inputs}
            totals.failures = {n: (place, model.failure) for n, model in enumerate(models) if model.failure}
            decoder = Decoder(plan.stored, plan.question.label, plan.question.slices, inputs)
            for batch in ahead(_batches(plan, decoder, file, part, of), 4):
                place = batch.place
                _judge_batch(plan, models, batch, totals)
        except ComponentError as error:  # Beam would bury it in its own message
            totals.refusal = (place, (error.received, error.expected, error.fix))
        totals.ended = time.time()
    return totals


@dataclass(frozen=True)
class Batch:
    """A batch that is ready for the models.

    Attributes:
        place: The file's name, and which of its batches this is.
        read: Records in it.
        skipped: How many cannot be used, by reason.
        columns: The label, slices and inputs of those that can.
        weights: Their bootstrap weights, ``[records, replicates]``.
        met: Which of them each model was calibrated on.
    """

    place: Place
    read: int
    skipped: Counter[str]
    columns: Columns
    weights: NDArray[np.float32]
    met: dict[int, set[str]]


def _batches(plan: Plan, decoder: Decoder, file: str, part: int, of: int) -> Iterator[Batch]:
    question, name = plan.question, PurePath(file).name
    for number, records in read_part(fetched(file), part, of, plan.batch_size):
        kept, columns, skipped = decoder.decode(records)
        drawn = weights(question.seed, name, number, len(records), question.replicates)
        met = overlap.met(records.numpy(), plan.calibrated) if any(plan.calibrated) else {}
        yield Batch((name, number), len(records), skipped, columns, drawn if not skipped else drawn[kept], met)


def _judge_batch(plan: Plan, models: list[Contestant], batch: Batch, totals: Totals) -> None:
    question, scoring, columns = plan.question, plan.scoring, batch.columns
    totals.read += batch.read
    totals.skipped += batch.skipped
    totals.meet(batch.met)
    labels = columns[question.label]
    if not len(labels):
        return
    check_labels(scoring, question.label, labels)
    answers = [_answers(plan, number, model, batch, totals) for number, model in enumerate(models)]
    values = np.zeros((len(labels), len(models), len(scoring.metrics)))
    for number, found in enumerate(answers):
        if found is not None:
            values[:, number] = scoring.values(found, labels)
            if (classes := scoring.classes(found)) is not None:
                totals.add_confusion(number, confusion(labels[:, 0], classes, scoring.known_classes))
    for key, rows in _groups(question.slices, columns, len(labels)):
        bins = (BINS if key is None else SLICE_BINS) if scoring.ranks else 0
        if key not in totals.sums:
            totals.sums[key] = Sums.empty(len(models), len(scoring.metrics), question.replicates, bins)
        sums = totals.sums[key]
        sums.add(batch.weights[rows], values[rows], plan.metric_grain)
        for number, found in enumerate(answers):
            if found is not None and scoring.ranks:
                sums.add_ranks(number, batch.weights[rows], labels[rows, 0], scoring.bins(found[rows], bins))
    _check_slices(totals)
    _compare(plan, answers, totals)


def _answers(plan: Plan, number: int, model: Contestant, batch: Batch, totals: Totals) -> NDArray[Any] | None:
    """One model's answers to a batch; None when it has failed in this part."""
    if number in totals.failures or model.runtime is None:
        return None
    try:
        answers = answer(model.runtime, batch.columns, model.output)
        if answers.shape[1] != plan.scoring.width:
            raise ComponentError(
                f"output {model.output!r} has {answers.shape[1]} values a record",
                f"{plan.scoring.width}, as the baseline's",
                "export it with the baseline's outputs",
            )
    except Exception as error:
        totals.failures[number] = (batch.place, reason(error))
        return None
    totals.answered[number] += len(answers)
    finite = np.isfinite(answers).all(1)
    if not finite.all():  # counted, and the model becomes an error; its sums no longer matter
        totals.broken[number] += int((~finite).sum())
        answers = np.where(finite[:, None], answers, 0)
    return answers


def _groups(features: tuple[str, ...], columns: Columns, count: int) -> Iterator[tuple[Slice | None, Any]]:
    """Yield all the records under None, then the rows of each value of each slice feature."""
    yield None, slice(0, count)
    for feature in features:
        values = columns[feature][:, 0]
        for value in np.unique(values):
            plain = value.decode(errors="replace") if isinstance(value, bytes) else int(value)
            yield (feature, plain), np.flatnonzero(values == value)


def _check_slices(totals: Totals) -> None:
    found = [key[0] for key in totals.sums if key]
    for feature in set(found):
        if found.count(feature) > LARGEST_SLICES:
            raise ComponentError(
                f"slice feature {feature!r} has more than {LARGEST_SLICES} values",
                "a feature with few values",
                "store it in coarser steps",
            )


def _compare(plan: Plan, answers: list[NDArray[Any] | None], totals: Totals) -> None:
    parent = answers[0]
    if parent is None:
        return
    parent_class = plan.scoring.classes(parent)
    for number, child in enumerate(answers[1:], 1):
        if child is not None:
            child_class = plan.scoring.classes(child)
            same = None if parent_class is None else parent_class == child_class
            totals.differences.add(number, parent, child, same, plan.output_grain)
