"""From the splits of the examples to what ``fit`` reads: checked against the model and its losses first."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import Columns, SparseSpec, check_features, first_record, stored_features
from tfopt.keras_models import io as keras_models
from tfopt.training.data_check import survey
from tfopt.training.dataset import Source
from tfopt.training.input_kinds import as_declared
from tfopt.training.targets import Target, arrange_like_outputs, targets

__all__ = ["first_record", "read_sources"]

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
        columns = check_features(stored_features(shards), specs, f"{shards[0]}")
        if counts is None:
            found = survey(split, shards, _surveyed(specs, columns), label)
            for target in learnt:
                target.check(split, label, found)
        count = found.count if counts is None else counts[split]
        sources[split] = Source(shards, count, columns, inputs, transform)
    return sources


def _surveyed(specs: Mapping[str, TensorSpec], columns: Mapping[str, TensorSpec]) -> Columns:
    """What is looked at: of a sparse feature the values that are there, and not the thousands that are not."""
    parts = [spec for spec in columns.values() if isinstance(spec, SparseSpec)]
    whole = {name: spec for name, spec in specs.items() if not isinstance(columns[name], SparseSpec)}
    return {**whole, **{spec.values: TensorSpec(spec.dtype, (None, None)) for spec in parts}}


def _transform(model: Any, preprocessing: Any, learnt: list[Target], label: str) -> Transform:
    def transform(inputs: dict[str, Any], stored: dict[str, Any]) -> tuple[Any, Any]:
        import tensorflow as tf

        if preprocessing is not None:
            apart = as_declared(preprocessing, inputs)
            inputs = preprocessing(keras_models.arrange(preprocessing, apart), training=False)
        arranged = keras_models.arrange(model, as_declared(model, inputs))
        labels = [tf.reshape(stored[label], [-1, *target.shape]) for target in learnt]
        return tuple(arranged) if isinstance(arranged, list) else arranged, arrange_like_outputs(model, labels)

    return transform
