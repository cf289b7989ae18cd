"""Fake quantization in NumPy: weights and activations rounded to the values of a precision, stored as float32."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfopt.graph.matching.linear_ops import PLAIN, TRANSPOSED, output_axes
from tfopt.graph.mutable_graph import Node

Array = NDArray[Any]

FLOATS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LEVELS = {"int4": 7, "int8": 127}  # on either side of zero
# The precisions that searches need most, and the others.
WEIGHTS = (("int4", "int8"), ("float16", "bfloat16"))
INPUTS = (("int8", "dynamic"), ("int16",))


def round_weights(node: Node, kernel: Array, precision: str) -> Array | None:
    """Return a kernel in a precision, integers with a scale for each output channel; None if it is out of range."""
    if precision in FLOATS:
        with np.errstate(over="ignore"):
            rounded = kernel.astype(FLOATS[precision]).astype(np.float32)
        return rounded if np.isfinite(rounded).all() else None
    channels = output_axes(node) if node.op in (*PLAIN, *TRANSPOSED) else (0,) if "Gather" in node.op else (-1,)
    preserved = {axis % kernel.ndim for axis in channels}
    others = tuple(axis for axis in range(kernel.ndim) if axis not in preserved)
    scale = np.abs(kernel).max(axis=others, keepdims=True) / LEVELS[precision]
    scale = np.where(scale > 0, scale, 1)
    return np.asarray(np.rint(kernel / scale) * scale, np.float32)


def round_inputs(batches: Sequence[Array], precision: str) -> list[Array]:
    """Return an activation in integers with one symmetric (int16) or asymmetric scale, or one for each record."""
    if precision == "int16":
        scale = max(float(np.abs(batch).max(initial=0)) for batch in batches) / 32767 or 1.0
        return [np.asarray(np.rint(batch / scale) * scale, np.float32) for batch in batches]
    low = min(0.0, min(float(batch.min(initial=0)) for batch in batches))
    high = max(0.0, max(float(batch.max(initial=0)) for batch in batches))
    return [_round_range(batch, low, high, by_record=precision == "dynamic") for batch in batches]


def _round_range(batch: Array, low: Any, high: Any, *, by_record: bool) -> Array:
    if by_record and batch.ndim > 1:
        axes = tuple(range(1, batch.ndim))
        low = np.minimum(batch.min(axis=axes, keepdims=True, initial=0), 0)
        high = np.maximum(batch.max(axis=axes, keepdims=True, initial=0), 0)
    scale = np.where(high > low, (high - low) / 255, 1)
    zero = np.rint(low / scale)
    return np.asarray(np.clip(np.rint(batch / scale), zero, zero + 255) * scale, np.float32)
