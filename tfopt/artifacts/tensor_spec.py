"""Dtype and shape of model inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class TensorSpec:
    """Dtype and shape of one input or output."""

    dtype: str  # a numpy dtype name (``float32``, ``int64``, …) or ``string``
    shape: tuple[int | None, ...]  # sizes; None if unknown or dynamic; the first is the batch size
    ranked: bool = True  # False if the rank is unknown, as in some old SavedModels
    # words that a model looks up, from which random text for an input of strings is drawn
    vocabulary: tuple[bytes, ...] = field(default=(), compare=False, repr=False)
    # name of the feature that feeds an input; None if it is the input's own name
    feature: str | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Format as ``float32[?,28,28,1]``."""
        if not self.ranked:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{','.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True)
class ParsedFeature(TensorSpec):
    """A feature that a model parses from serialized tf.Example records (``ParseExampleV2``)."""

    kind: Literal["dense", "sparse", "ragged"] = "dense"  # result of the parsing: a dense, sparse or ragged tensor
    # the values of a dense feature that a record lacks; None if each record must have it
    default: Any = field(default=None, compare=False)

    def parser(self) -> Any:
        """Return the feature for ``tf.io.parse_example``."""
        import tensorflow as tf

        dtype = tf.as_dtype(self.dtype)
        if self.kind == "sparse":
            return tf.io.VarLenFeature(dtype)
        if self.kind == "ragged":
            return tf.io.RaggedFeature(dtype)
        if None in self.shape[1:]:
            return tf.io.FixedLenSequenceFeature(self.shape[2:], dtype, allow_missing=True)
        return tf.io.FixedLenFeature(self.shape[1:], dtype, self.default)


@dataclass(frozen=True)
class RecordSpec(TensorSpec):
    """An input of serialized tf.Example records, as the signatures of TFX trainers have it."""

    # the features that the model parses from a record, by name
    features: Mapping[str, ParsedFeature] = field(default_factory=dict, compare=False)


def dtype_name(array: Any) -> str:
    """Return the dtype of an array as TensorFlow names it; quantized ones are records of one field in numpy."""
    if array.dtype.kind in "OSU":
        return "string"
    return str(array.dtype.names[0] if array.dtype.names else array.dtype.name)


def plain_integers(array: Any) -> Any:
    """Return an array of a quantized dtype as integers, and any other as it is."""
    return array[array.dtype.names[0]] if array.dtype.names else array


def record_input(specs: Mapping[str, TensorSpec]) -> tuple[str, RecordSpec] | None:
    """Return name and spec of the input of serialized records if it is the only input; else None."""
    if len(specs) != 1:
        return None
    [(name, spec)] = specs.items()
    return (name, spec) if isinstance(spec, RecordSpec) else None


def fixed_batch(specs: Mapping[str, TensorSpec]) -> int | None:
    """Return the batch size that a signature fixes; None if it is dynamic, or if first sizes differ."""
    sizes = {spec.shape[0] for spec in specs.values() if spec.shape and spec.shape[0]}
    return sizes.pop() if len(sizes) == 1 else None


def batched_tensors(specs: Mapping[str, TensorSpec]) -> list[str]:
    """Return the names of the tensors with a batch dimension; others are scalars or have a first size of their own."""
    fixed = fixed_batch(specs)
    return [name for name, spec in specs.items() if spec.shape and spec.shape[0] in (None, fixed)]


def same_shape(one: TensorSpec, other: TensorSpec) -> bool:
    """Test whether two shapes are the same but for the batch size; an unknown rank or size equals every other."""
    if not (one.ranked and other.ranked):
        return True
    sizes = one.shape[1:], other.shape[1:]
    return len(sizes[0]) == len(sizes[1]) and all(a == b or None in (a, b) for a, b in zip(*sizes, strict=True))


def are_compatible(one: TensorSpec, other: TensorSpec) -> bool:
    """Return True if dtypes and sizes are the same, or a shape or size is unknown on one side."""
    if one.dtype != other.dtype:
        return False
    if not one.ranked or not other.ranked:
        return True
    return len(one.shape) == len(other.shape) and all(
        None in pair or pair[0] == pair[1] for pair in zip(one.shape, other.shape, strict=True)
    )


def describe_specs(specs: Mapping[str, TensorSpec]) -> str:
    """Return names, dtypes and shapes in one line."""
    return ", ".join(f"{name}: {spec}" for name, spec in specs.items())
