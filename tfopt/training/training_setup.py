"""A training made ready in this process: the user's model, compiled as asked, and how its examples are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import stored_features
from tfopt.training.dataset import Source
from tfopt.training.determinism import set_seeds
from tfopt.training.model_assembly import Assembly, assemble
from tfopt.training.split_datasets import read_sources
from tfopt.training.targets import check_label
from tfopt.training.user_module import UserModule
from tfopt.training.xla import compile_steps


@dataclass(frozen=True)
class Prepared:
    """What there is before the first step.

    Attributes:
        parts: The model and its preprocessing.
        sources: How each split is read.
        stored: Every feature as it is stored.
    """

    parts: Assembly
    sources: Mapping[str, Source]
    stored: Mapping[str, TensorSpec]


def prepare(
    user: UserModule,
    examples: Examples,
    *,
    label: str,
    seed: int,
    precision: str,
    jit_compile: str,
    splits: Sequence[str] = ("train",),
    counts: Mapping[str, int] | None = None,
) -> Prepared:
    """Build the user's model and look at the data.

    Args:
        user: The module.
        examples: What is learnt from.
        label: The feature to learn.
        seed: Draws the first weights.
        precision: What the layers compute in.
        jit_compile: Whether XLA compiles the steps.
        splits: Which are read.
        counts: The records of each split, where they were counted and looked at before.

    Raises:
        ComponentError: When the module raises, or its model and the examples do not fit.
    """
    files: dict[str, list[Path]] = {split: examples.split(split) for split in splits}
    stored = stored_features(files[splits[0]])
    check_label(label, stored, str(examples.path))
    set_seeds(seed)
    parts = assemble(user, stored, examples, label, precision)
    compile_steps(parts.model, jit_compile)
    sources = read_sources(files, parts.model, parts.preprocessing, parts.inputs, stored, label, counts)
    return Prepared(parts, sources, stored)
