"""Name, dtype and shape of model inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """One named input or output.

    Attributes:
        dtype: A numpy dtype name (``float32``, ``int64``, …) or ``string``.
        shape: Sizes; None where unknown or dynamic. The first is the batch.
        ranked: False where not even the number of sizes is known, as in some old SavedModels.
    """

    dtype: str
    shape: tuple[int | None, ...]
    ranked: bool = True

    def __str__(self) -> str:
        """Print as ``float32[?,28,28,1]``."""
        if not self.ranked:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{','.join('?' if size is None else str(size) for size in self.shape)}]"


def fixed_batch(specs: Mapping[str, TensorSpec]) -> int | None:
    """The batch size that a signature fixes; None when it is free, or when first sizes differ and so are no batch."""
    sizes = {spec.shape[0] for spec in specs.values() if spec.shape and spec.shape[0]}
    return sizes.pop() if len(sizes) == 1 else None


def batched(specs: Mapping[str, TensorSpec]) -> list[str]:
    """The tensors of which each record has its own; the others are one scalar, or of a size of their own."""
    fixed = fixed_batch(specs)
    return [name for name, spec in specs.items() if spec.shape and spec.shape[0] in (None, fixed)]
