"""Prepare a training in this process: build the user's compiled model, and check its examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt import keras_models
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_batches
from tfopt.data.feature_schema import SparseSpec, check_features, match_features, required_features, stored_features
from tfopt.errors import ComponentError
from tfopt.training.compute.precision import set_jit_compile
from tfopt.training.datasets.dataset import Source
from tfopt.training.datasets.input_kinds import convert_inputs
from tfopt.training.datasets.targets import SplitSummary, Target, arrange_like_outputs, check_label, label_targets
from tfopt.training.determinism import set_seeds
from tfopt.training.model_assembly import Assembly, assemble
from tfopt.training.user_module import UserModule
from tfopt.value_types import Tensors

MODEL_SETTINGS = ("label", "seed", "precision", "jit_compile")  # those of a component that `prepare_training` takes


@dataclass(frozen=True)
class TrainingSetup:
    """The model and the files of a training."""

    files: Mapping[str, list[Path]]  # the TFRecord files of each split
    stored: Mapping[str, TensorSpec]  # every feature as it is stored
    label: str
    parts: Assembly  # the model and its preprocessing

    def read_sources(self, counts: Mapping[str, int] | None = None) -> dict[str, Source]:
        """Return the source of each split; its records are checked unless ``counts`` has their number from before.

        Raises:
            ComponentError: If a record is damaged or not finite, or the labels do not fit a loss.
        """
        label, stored = self.label, self.stored
        targets = label_targets(self.parts.model, label, stored[label])
        inputs = match_features(self.parts.inputs, stored, label)
        specs = {**required_features(inputs), label: stored[label]}
        transform = _transform(self.parts, targets, label)
        sources = {}
        for split, shards in self.files.items():
            columns = check_features(stored_features(shards), specs, f"{shards[0]}")
            if counts is None:
                summary = _check_split(split, shards, _checked_columns(specs, columns), label)
                for target in targets:
                    target.check(split, label, summary)
            count = summary.count if counts is None else counts[split]
            sources[split] = Source(shards, count, columns, inputs, transform)
        return sources


def find_files(
    examples: Examples, splits: Sequence[str], label: str
) -> tuple[dict[str, list[Path]], dict[str, TensorSpec]]:
    """Return the TFRecord files of each split, and every stored feature, of examples that have this label.

    Raises:
        ComponentError: If a split is missing, or there is no label that can be trained on.
    """
    files = {split: examples.split(split) for split in splits}
    stored = stored_features(files[splits[0]])
    check_label(label, stored, str(examples.path))
    return files, stored


def prepare_training(
    user: UserModule,
    examples: Examples,
    *,
    label: str,
    seed: int,
    precision: str,
    jit_compile: str,
    splits: Sequence[str] = ("train",),
) -> TrainingSetup:
    """Build the user's model with initial weights that the seed determines; no records are read but the first.

    Raises:
        ComponentError: If the module raises, or its model and the features do not fit.
    """
    files, stored = find_files(examples, splits, label)
    set_seeds(seed)
    parts = assemble(user, stored, examples, label, precision)
    keras_models.check_input_names(parts.saved, parts.inputs)  # before hours of training, not when the model is saved
    set_jit_compile(parts.model, jit_compile)
    return TrainingSetup(files, stored, label, parts)


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
            received = f"split {split!r}: feature {name!r} is NaN or infinite in {records} of {count} records"
            fix = "fill in or leave out such records when preparing the examples"
            raise ComponentError(received, "finite values", fix)
    return SplitSummary(count, lowest, highest)


def _checked_columns(specs: Mapping[str, TensorSpec], columns: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Return the columns to check: of a sparse feature only the stored values."""
    sparse = [spec for spec in columns.values() if isinstance(spec, SparseSpec)]
    others = {name: spec for name, spec in specs.items() if not isinstance(columns[name], SparseSpec)}
    return {**others, **{spec.values: TensorSpec(spec.dtype, (None, None)) for spec in sparse}}


def _transform(parts: Assembly, targets: list[Target], label: str) -> Callable[[Tensors, Tensors], tuple[Any, Any]]:
    model, preprocessing = parts.model, parts.preprocessing

    def transform(inputs: Tensors, stored: Tensors) -> tuple[Any, Any]:
        if preprocessing is not None:
            converted = convert_inputs(preprocessing, inputs)
            inputs = preprocessing(keras_models.pack_inputs(preprocessing, converted), training=False)
        arranged = keras_models.pack_inputs(model, convert_inputs(model, inputs))
        labels = [tf.reshape(stored[label], [-1, *target.shape]) for target in targets]
        return tuple(arranged) if isinstance(arranged, list) else arranged, arrange_like_outputs(model, labels)

    return transform
