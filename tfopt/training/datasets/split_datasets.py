"""Check each split against the model and its losses, and return the sources that `fit` reads."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt import keras_models
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_batches
from tfopt.data.feature_schema import (
    Columns,
    SparseSpec,
    check_features,
    match_features,
    required_features,
    stored_features,
)
from tfopt.errors import ComponentError
from tfopt.training.datasets.dataset import Source
from tfopt.training.datasets.input_kinds import convert_inputs
from tfopt.training.datasets.targets import SplitSummary, Target, arrange_like_outputs, label_targets
from tfopt.value_types import Tensors

Transform = Callable[[Tensors, Tensors], tuple[Any, Any]]


def read_sources(
    files: Mapping[str, list[Path]],
    model: Any,
    preprocessing: Any,
    inputs: Mapping[str, TensorSpec],
    stored: Mapping[str, TensorSpec],
    label: str,
    counts: Mapping[str, int] | None = None,
) -> dict[str, Source]:
    """Return the source of each split of the TFRecord files, for a compiled model.

    The inputs are raw features, from which the preprocessing, if there is one, makes those of the model. If ``counts``
    has the number of records of each split, the records have been checked before, and are not read.

    Raises:
        ComponentError: If a record is damaged or not finite, or the labels do not fit a loss.
    """
    targets = label_targets(model, label, stored[label])
    inputs = match_features(inputs, stored, label)
    specs = {**required_features(inputs), label: stored[label]}
    transform = _transform(model, preprocessing, targets, label)
    sources = {}
    for split, shards in files.items():
        columns = check_features(stored_features(shards), specs, f"{shards[0]}")
        if counts is None:
            summary = _check_split(split, shards, _checked_columns(specs, columns), label)
            for target in targets:
                target.check(split, label, summary)
        count = summary.count if counts is None else counts[split]
        sources[split] = Source(shards, count, columns, inputs, transform)
    return sources


def _check_split(split: str, files: Sequence[Path], specs: Mapping[str, TensorSpec], label: str) -> SplitSummary:
    """Read all records of a split once, and raise ComponentError if one is damaged or not finite."""
    count, lowest, highest = 0, math.inf, -math.inf
    not_finite = dict.fromkeys(specs, 0)
    for batch in read_batches(files, specs, batch_size=1024):
        count += len(batch[label])
        lowest, highest = min(lowest, float(batch[label].min())), max(highest, float(batch[label].max()))
        for name, array in batch.items():
            if array.dtype.kind == "f":
                not_finite[name] += int((~np.isfinite(array)).reshape(len(array), -1).any(1).sum())
    for name, records in not_finite.items():
        if records:
            raise ComponentError(
                f"split {split!r}: feature {name!r} is NaN or infinite in {records} of {count} records",
                "finite values",
                "fill in or leave out such records when preparing the examples",
            )
    return SplitSummary(count, lowest, highest)


def _checked_columns(specs: Mapping[str, TensorSpec], columns: Mapping[str, TensorSpec]) -> Columns:
    """Return the columns to check: of a sparse feature only the stored values."""
    sparse = [spec for spec in columns.values() if isinstance(spec, SparseSpec)]
    others = {name: spec for name, spec in specs.items() if not isinstance(columns[name], SparseSpec)}
    return {**others, **{spec.values: TensorSpec(spec.dtype, (None, None)) for spec in sparse}}


def _transform(model: Any, preprocessing: Any, targets: list[Target], label: str) -> Transform:
    def transform(inputs: Tensors, stored: Tensors) -> tuple[Any, Any]:
        if preprocessing is not None:
            converted = convert_inputs(preprocessing, inputs)
            inputs = preprocessing(keras_models.pack_inputs(preprocessing, converted), training=False)
        arranged = keras_models.pack_inputs(model, convert_inputs(model, inputs))
        labels = [tf.reshape(stored[label], [-1, *target.shape]) for target in targets]
        return tuple(arranged) if isinstance(arranged, list) else arranged, arrange_like_outputs(model, labels)

    return transform
