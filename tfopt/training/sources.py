"""From the splits of the examples to what ``fit`` reads: checked against the model and its losses first."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfopt import keras_models
from tfopt.errors import ComponentError
from tfopt.examples import check_features, feature_specs, read_records
from tfopt.runtimes import TensorSpec
from tfopt.training.dataset import Source
from tfopt.training.survey import survey
from tfopt.training.targets import Target, arrange_like_outputs, targets

Transform = Callable[[dict[str, Any], dict[str, Any]], tuple[Any, Any]]


def read_sources(
    files: Mapping[str, list[Path]],
    model: Any,
    preprocessing: Any,
    inputs: Mapping[str, TensorSpec],
    stored: Mapping[str, TensorSpec],
    label: str,
    counts: Mapping[str, int] | None = None,
) -> dict[str, Source]:
    """Return how each split is read.

    Args:
        files: TFRecord files by split.
        model: The compiled model that learns.
        preprocessing: From raw features to its inputs; None where it takes the raw features.
        inputs: The raw features it takes.
        stored: How every feature is stored.
        label: The feature to learn.
        counts: The records of each split, where all of them were looked at before.

    Raises:
        ComponentError: When a record is damaged or not finite, or the labels do not fit a loss.
    """
    learnt = targets(model, label, stored[label])
    specs = {**inputs, label: stored[label]}
    transform = _transform(model, preprocessing, learnt, label)
    sources = {}
    for split, shards in files.items():
        columns = check_features(feature_specs(first_record(shards)), specs, f"{shards[0]}")
        if counts is None:
            found = survey(split, shards, specs, label)
            for target in learnt:
                target.check(split, label, found)
        count = found.count if counts is None else counts[split]
        sources[split] = Source(shards, count, columns, inputs, transform)
    return sources


def first_record(files: list[Path]) -> bytes:
    """Return the first record of a split.

    Raises:
        ComponentError: When there is none.
    """
    first = next(read_records(files), None)
    if first is None:
        raise ComponentError(f"{files[0]}: no records", "at least one tf.Example", "prepare the examples again")
    return first


def _transform(model: Any, preprocessing: Any, learnt: list[Target], label: str) -> Transform:
    def transform(inputs: dict[str, Any], stored: dict[str, Any]) -> tuple[Any, Any]:
        import tensorflow as tf

        if preprocessing is not None:
            inputs = preprocessing(keras_models.arrange(preprocessing, inputs), training=False)
        arranged = keras_models.arrange(model, inputs)
        labels = [tf.reshape(stored[label], [-1, *target.shape]) for target in learnt]
        return tuple(arranged) if isinstance(arranged, list) else arranged, arrange_like_outputs(model, labels)

    return transform
