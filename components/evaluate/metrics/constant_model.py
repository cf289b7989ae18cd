"""The constant model: the output that is best if it is the same for every record, which each model has to beat."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import formatting
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.examples import records
from tfopt.components.evaluate.metrics.task_metrics import Scoring, logit
from tfopt.components.evaluate.parameters import Settings
from tfopt.metric_table import MULTI_LABEL, OTHER, REGRESSION
from tfopt.storage.remote_files import local_copy

MOST_LABELS = 20_000  # that the constant output is computed from
SMOOTHING = 0.5  # added to the count of each class, so that no class has the probability 0 (Jeffreys)

Array = NDArray[Any]


def constant_output(
    files: list[str], settings: Settings, features: Mapping[str, TensorSpec], scoring: Scoring, batch_size: int
) -> NDArray[np.float64] | None:
    """Return the constant output ``[width]``: the shares of the classes, or the median of each label of a regression.

    The most frequent class is also the one with the largest output. None for the task ``other``, and if no record has a
    label that the models can predict.
    """
    if scoring.task == OTHER:
        return None
    labels = _read_labels(files, settings, features, batch_size)
    if not len(labels):
        return None
    if scoring.task == REGRESSION:
        return np.asarray(np.median(labels.astype(np.float64), 0))
    if scoring.task == MULTI_LABEL:
        share = (labels.sum(0) + SMOOTHING) / (len(labels) + 2 * SMOOTHING)
        return logit(share) if scoring.is_logits else np.asarray(share)
    labels = scoring.targets(labels)
    valid = labels[(labels >= 0) & (labels < scoring.class_count)].astype(np.int64)
    counts = np.bincount(valid, minlength=scoring.class_count) + SMOOTHING
    shares = counts / counts.sum()
    if scoring.task == "binary":
        return logit(shares[1:]) if scoring.is_logits else np.asarray(shares[1:])
    return np.asarray(np.log(shares) if scoring.is_logits else shares)


def describe_constant(scoring: Scoring, output: Array, classes: list[str]) -> str:
    """Return the name of the constant model in tables.

    >>> describe_constant(Scoring("classification", False, 2, 5), np.array([0.4, 0.6]), ["no", "yes"])
    'always class yes'
    """
    if scoring.task in (REGRESSION, MULTI_LABEL):
        if len(output) > 1:
            return "the medians of the labels" if scoring.task == REGRESSION else "each label's more frequent value"
        return f"always {formatting.amount('label', float(output[0]))}, the median of the labels"
    number = int(scoring.classes(output[None])[0])
    return f"always class {classes[number] if number < len(classes) else number}"


def _read_labels(files: list[str], settings: Settings, features: Mapping[str, TensorSpec], batch_size: int) -> Array:
    """Return labels of the first records of each file, ``[records, labels]``."""
    decoder = records.Decoder(features, settings.label, (), {})
    batches = -(-MOST_LABELS // (len(files) * batch_size))
    parts = [
        decoder.decode(batch)[1][settings.label]
        for file in files
        for _, batch in itertools.islice(records.read_part(local_copy(file), 0, 1, batch_size), batches)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, 1))
