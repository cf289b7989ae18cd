"""Prepare a training in this process: build the user's compiled model, and check its examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfopt import keras_models
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import stored_features
from tfopt.training.compute.precision import set_jit_compile
from tfopt.training.datasets.dataset import Source
from tfopt.training.datasets.split_datasets import read_sources
from tfopt.training.datasets.targets import check_label
from tfopt.training.determinism import set_seeds
from tfopt.training.model_assembly import Assembly, assemble
from tfopt.training.user_module import UserModule


@dataclass(frozen=True)
class TrainingSetup:
    """Everything that exists before the first training step.

    Attributes:
        parts: The model and its preprocessing.
        sources: The source of each split.
        stored: Every feature as it is stored.
    """

    parts: Assembly
    sources: Mapping[str, Source]
    stored: Mapping[str, TensorSpec]


def prepare_training(
    user: UserModule,
    examples: Examples,
    *,
    label: str,
    seed: int,
    precision: str,
    jit_compile: str,
    splits: Sequence[str] = ("train",),
    counts: Mapping[str, int] | None = None,
) -> TrainingSetup:
    """Build the user's model and check the examples.

    Args:
        user: The module.
        examples: The examples to train on.
        label: The label feature.
        seed: Determines the initial weights.
        precision: Mixed-precision policy of the layers.
        jit_compile: Mode of XLA compilation, see `set_jit_compile`.
        splits: The splits to read.
        counts: The number of records of each split, if they have been checked before.

    Raises:
        ComponentError: If the module raises, or its model and the examples do not fit.
    """
    files: dict[str, list[Path]] = {split: examples.split(split) for split in splits}
    stored = stored_features(files[splits[0]])
    check_label(label, stored, str(examples.path))
    set_seeds(seed)
    parts = assemble(user, stored, examples, label, precision)
    keras_models.check_input_names(parts.saved, parts.inputs)  # before hours of training, not when the model is saved
    set_jit_compile(parts.model, jit_compile)
    sources = read_sources(files, parts.model, parts.preprocessing, parts.inputs, stored, label, counts)
    return TrainingSetup(parts, sources, stored)
