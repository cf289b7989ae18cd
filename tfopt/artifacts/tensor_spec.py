"""Dtype and shape of model inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """Dtype and shape of one input or output.

    Attributes:
        dtype: A numpy dtype name (``float32``, ``int64``, …) or ``string``.
        shape: Sizes; None if unknown or dynamic. The first is the batch size.
        ranked: False if the rank is unknown, as in some old SavedModels.
    """

    dtype: str
    shape: tuple[int | None, ...]
    ranked: bool = True

    def __str__(self) -> str:
        """Format as ``float32[?,28,28,1]``."""
        if not self.ranked:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{','.join('?' if size is None else str(size) for size in self.shape)}]"


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


def describe_specs(specs: Mapping[str, TensorSpec]) -> str:
    """Return names, dtypes and shapes in one line."""
    return ", ".join(f"{name}: {spec}" for name, spec in specs.items())
