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
        parts = self.parts
        return read_sources(self.files, parts.model, parts.preprocessing, parts.inputs, self.stored, self.label, counts)


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
    files = {split: examples.split(split) for split in splits}
    stored = stored_features(files[splits[0]])
    check_label(label, stored, str(examples.path))
    set_seeds(seed)
    parts = assemble(user, stored, examples, label, precision)
    keras_models.check_input_names(parts.saved, parts.inputs)  # before hours of training, not when the model is saved
    set_jit_compile(parts.model, jit_compile)
    return TrainingSetup(files, stored, label, parts)
