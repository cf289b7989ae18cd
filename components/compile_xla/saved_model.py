"""Write a frozen model so that XLA compiles it: a function for each signature, or single ops with a mark.

A marked function must be compiled as one program, or the call fails. TensorFlow's pass ``MarkForCompilation`` groups
marked ops when the model runs, and runs the others as before.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tfopt.components.compile_xla.sequence_buckets import padded
from tfopt.graph.frozen_model import Frozen, Signature
from tfopt.saved_models import saved_model
from tfopt.saved_models.marked_functions import COMPILED
from tfopt.saved_models.signature_functions import write_functions
from tfopt.saved_models.unsupported_ops import reason_unsupported

MAY_COMPILE = "_XlaCompile"  # attribute of a node


def write_clustered(frozen: Frozen, folder: Path) -> int:
    """Write a SavedModel with its lookup tables and assets, and return the number of ops that may be compiled."""
    marked = [
        node for node in frozen.graph.node if node.op not in ("Const", "Placeholder") and not reason_unsupported(node)
    ]
    for node in marked:
        node.attr[MAY_COMPILE].b = True
    saved_model.write(frozen, folder)
    return len(marked)


def write_compiled(
    frozen: Frozen, folder: Path, sizes: list[int], buckets: Mapping[str, list[int]] = MappingProxyType({})
) -> list[str]:
    """Write a SavedModel, and return the keys of the added signatures, one of each fixed batch size of ``sizes``.

    ``buckets`` are the lengths to which sequences are padded, by signature.
    """

    def pad(key: str, signature: Signature, serve: Any) -> Any:
        return padded(serve, signature, buckets[key]) if buckets.get(key) else serve

    return write_functions(frozen, folder, COMPILED, {"jit_compile": True}, sizes, pad)
