"""Choose the task, and whether the output is logits, from the first batch, and check the later batches against it."""

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.evaluate.metrics.task_metrics import Scoring, looks_like_logits
from tfopt.components.evaluate.parameters import Settings
from tfopt.data.batches import is_one_hot
from tfopt.errors import ComponentError
from tfopt.metric_table import BINARY, CLASSIFICATION, MULTI_LABEL, OTHER, REGRESSION

log = logging.getLogger(__name__)

PROBABILITIES, LOGITS = "probabilities", "logits"
ROUNDING = 1e-3  # a probability outside of 0 to 1 by less is a rounding error

Array = NDArray[Any]
Choice = tuple[str, str]  # what was chosen, and why


def choose_scoring(settings: Settings, predictions: Array, labels: Array) -> Scoring:
    """Return the metrics for the baseline's predictions ``[records, width]`` on the first batch, and log the choices.

    Raises:
        ComponentError: If the output or the label does not fit the task.
    """
    task, why = _choose_task(settings, predictions.shape[1], labels)
    one_hot = task == CLASSIFICATION and labels.shape[1] > 1
    _check_fit(settings, task, predictions.shape[1], labels)
    has_classes = task not in (REGRESSION, OTHER)
    kind, why_kind = _choose_output_kind(settings, predictions, task)
    if settings.threshold != Settings.threshold and task not in (BINARY, MULTI_LABEL):
        expected = f"task={BINARY} or task={MULTI_LABEL}: other tasks have no threshold"
        raise ComponentError(f"threshold={settings.threshold:g} for task={task}", expected, "leave threshold out")
    log.info("task %s: %s", task, why)
    if has_classes:
        log.info("output of %s: %s", kind, why_kind)
    if task in (BINARY, MULTI_LABEL):
        log.info("a label is predicted above a probability of %g: threshold=%g", settings.threshold, settings.threshold)
    is_logits = has_classes and kind == LOGITS
    return Scoring(task, is_logits, predictions.shape[1], settings.top_k, settings.threshold, one_hot)


def _choose_task(settings: Settings, width: int, labels: Array) -> Choice:
    if settings.task != "auto":
        return settings.task, f"task={settings.task}"
    task, why = _derive_task(width, labels)
    if settings.metrics and not _fits(settings, task, width, labels.shape[1]):
        return OTHER, f"only metrics={','.join(settings.metrics)}, as no task fits the output"
    return task, f"{why}; task=NAME sets another"


def _derive_task(width: int, labels: Array) -> Choice:
    size, kind = labels.shape[1], labels.dtype.kind
    first = f"in the first {len(labels)} records"
    if kind == "O":
        return OTHER, "the label is text"
    if width == size > 1 and is_one_hot(labels).all():
        return CLASSIFICATION, f"the label is one-hot {first}, one value for each of {width} outputs"
    are_bits = bool(np.isin(labels, (0, 1)).all())
    if size > 1 and kind != "f" and width == size and are_bits:
        return MULTI_LABEL, f"the label has {size} integers 0 and 1 {first}, one for each output"
    if kind == "f" or size > 1:
        return REGRESSION, f"the label has {size} {'float' if kind == 'f' else 'integer'} values"
    if width > 1:
        return CLASSIFICATION, f"the label is one integer, and the output has {width} values"
    if are_bits:
        return BINARY, f"the label is 0 or 1 {first}, and the output is one value"
    return REGRESSION, f"the label is not only 0 and 1 {first}, and the output is one value"


def _fits(settings: Settings, task: str, width: int, size: int) -> bool:
    fits = {CLASSIFICATION: width > 1 and size in (1, width), BINARY: width == 1, OTHER: bool(settings.metrics)}
    return fits.get(task, width == size)


def _check_fit(settings: Settings, task: str, width: int, labels: Array) -> None:
    size = labels.shape[1]
    if _fits(settings, task, width, size):
        return
    expected = {
        CLASSIFICATION: "2 or more" if size == 1 else f"{size} (as the one-hot label)",
        BINARY: "1",
        OTHER: "any, with metrics=module:FUNCTION,",
    }
    other = f", such as task={REGRESSION}" if task == CLASSIFICATION and size > 1 else ""
    raise ComponentError(
        f"output of {width} values a record, label {settings.label!r} of {size}",
        f"{expected.get(task, f'{size} (as the label)')} for task={task}",
        f"pass the task that fits the model{other}, output=NAME to evaluate another output, or metrics=module:FUNCTION",
    )


def _choose_output_kind(settings: Settings, predictions: Array, task: str) -> Choice:
    if settings.output_kind != "auto":
        return settings.output_kind, f"output_kind={settings.output_kind}"
    if looks_like_logits(predictions, task):
        outside = bool(((predictions < 0) | (predictions > 1)).any())
        reason = "some are outside of 0 to 1" if outside else "their sums are not 1"
        return LOGITS, f"{reason} in the first {len(predictions)} records; output_kind={PROBABILITIES} changes it"
    reason = f"all are from 0 to 1 in the first {len(predictions)} records"
    return PROBABILITIES, f"{reason}; output_kind={LOGITS} changes it"


def check_labels(scoring: Scoring, label: str, labels: Array) -> None:
    """Raise ComponentError unless every label fits the task: a class, a one-hot row, or 0 and 1 for several labels."""
    if scoring.one_hot:
        wrong = ~is_one_hot(labels)
        if wrong.any():
            row = labels[wrong][0]
            raise ComponentError(
                f"label {label!r} is not one-hot in {int(wrong.sum())} of {len(labels)} records: "
                f"{int(np.equal(row, 1).sum())} of {len(row)} values are 1, {int(np.equal(row, 0).sum())} are 0",
                "exactly one 1 in every record, the others 0, for task=classification",
                f"pass task={MULTI_LABEL} if a record has several labels, or task={REGRESSION} if it has none",
            )
        return
    if scoring.task == MULTI_LABEL and not np.isin(labels, (0, 1)).all():
        received = f"label {label!r} has the value {labels[~np.isin(labels, (0, 1))][0]:g}"
        expected = f"0 or 1 for each output, for task={MULTI_LABEL}"
        raise ComponentError(received, expected, "store 1 for each label that a record has, or pass task=regression")
    if not (classes := scoring.class_count):
        return
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        received = f"label {label!r} has the value {int(wrong[0])}"
        expected = f"a class from 0 to {classes - 1}, as the output has {scoring.width} values"
        raise ComponentError(received, expected, "number the classes from 0, or pass task=regression if it is no class")


def check_probabilities(scoring: Scoring, settings: Settings, predictions: Array) -> None:
    """Raise ComponentError if the baseline's outputs are no probabilities, which those of the first batch were."""
    if scoring.is_logits or not scoring.has_classes:
        return
    outside = (predictions < -ROUNDING) | (predictions > 1 + ROUNDING)
    if outside.any():
        raise ComponentError(
            f"output of the baseline: {predictions[outside][0]:g} in {int(outside.any(1).sum())} records",
            f"probabilities from 0 to 1, as in the first records (output_kind={settings.output_kind})",
            f"pass output_kind={LOGITS} if the model ends without a softmax or sigmoid",
        )
