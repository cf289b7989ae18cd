"""Conditions of the folding in `algebra`; each function returns the reason for a refusal, or None."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.components.fold_batch_norm.algebra import CHANNEL_AXES, Weights
from tfopt.keras_models.layer_graph import LIBRARIES, Layer

BATCH_NORMS = ("BatchNormalization", "BatchNormalizationBase")


def is_batch_norm(layer: Layer) -> bool:
    """Return True for a batch norm of Keras 2 or 3, or a class derived from one."""
    return any(base.__name__ in BATCH_NORMS and _is_library(base) for base in type(layer).__mro__)


def describe(layer: Layer) -> str:
    """Return the name and class of a layer."""
    return f"{layer.name!r} ({type(layer).__name__})"


def check_batch_norm(norm: Layer, times: int) -> str | None:
    """Check the batch norm, which is called ``times`` times."""
    if not _is_library(type(norm)):
        return f"{type(norm).__name__} is derived from BatchNormalization and may compute something else"
    if times > 1:
        return f"it is shared: called {times} times"
    if getattr(norm, "virtual_batch_size", None) is not None:
        return f"virtual_batch_size={norm.virtual_batch_size} lets it take only some batch sizes"
    if len(_axes(norm)) > 1:
        return f"it normalizes axes {_axes(norm)} together, not one axis of channels"
    broken = int(np.sum(norm.moving_variance.numpy().astype(np.float64) + norm.epsilon <= 0))
    return f"its variance plus epsilon is not above zero in {broken} channels" if broken else None


def check_layer(layer: Layer, times: int) -> str | None:
    """Check the layer before it, which is called ``times`` times."""
    if is_batch_norm(layer):
        return f"it follows {layer.name!r}, which could not be folded itself"
    if type(layer).__name__ not in CHANNEL_AXES or not _is_library(type(layer)):
        return f"it follows {describe(layer)}, which is no convolution or dense layer"
    activation = getattr(layer.activation, "__name__", str(layer.activation))
    if layer.activation is not None and activation != "linear":
        return f"{layer.name!r} applies its activation {activation} first"
    if times > 1:
        return f"{layer.name!r} is shared: called {times} times"
    if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
        return f"{layer.name!r} is quantized or has LoRA weights"
    return None


def check_tensor(layer: Layer, others: Sequence[str], *, is_output: bool) -> str | None:
    """Check that only the batch norm reads the tensor between the two."""
    if is_output:
        return f"the output of {layer.name!r} is also an output of the model"
    return f"the output of {layer.name!r} also goes to {', '.join(map(repr, others))}" if others else None


def check_pair(norm: Layer, layer: Layer, rank: int) -> str | None:
    """Check that both have the same channel axis and compute dtype."""
    axis, channels = _axes(norm)[0] % rank, 1 if getattr(layer, "data_format", None) == "channels_first" else rank - 1
    if axis != channels:
        return f"it normalizes axis {axis}, but the channels of {layer.name!r} are axis {channels}"
    if norm.compute_dtype != layer.compute_dtype:
        return f"it computes in {norm.compute_dtype}, but {layer.name!r} in {layer.compute_dtype}"
    return None


def check_weights(layer: Layer, folded: Weights) -> str | None:
    """Check that the new weights are in the range of the layer's dtypes."""
    import tensorflow as tf

    limit = min(float(tf.as_dtype(dtype).max) for dtype in (layer.compute_dtype, layer.variable_dtype))
    fits = all(bool((np.abs(array.astype(np.float64)) <= limit).all()) for array in folded)
    return None if fits else f"the weights of {layer.name!r} would leave the range of {layer.compute_dtype}"


def _is_library(kind: type) -> bool:
    return kind.__module__.startswith(LIBRARIES)


def _axes(norm: Layer) -> list[int]:
    axis: Any = norm.axis
    return [int(axis)] if isinstance(axis, int) else [int(number) for number in axis]
