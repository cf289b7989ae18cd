"""Classify Keras 3 layers by their form in LiteRT's 8-bit arithmetic."""

from typing import Any

import keras
from keras import layers

Layer = Any  # a layer, or an operation of keras.ops

KERNEL = (layers.DepthwiseConv2D, layers.Conv2D, layers.Conv1D, layers.Dense)
CALCULATING = (
    *(layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum),
    *(layers.Concatenate, layers.GlobalAveragePooling2D, layers.GlobalAveragePooling1D, layers.Rescaling),
)
# The output lies within the range of the input, so it has the same scale. Some of these act only during training.
SAME_RANGE = (
    *(layers.Flatten, layers.Reshape, layers.Permute, layers.RepeatVector, layers.Identity),
    *(layers.MaxPooling1D, layers.MaxPooling2D, layers.AveragePooling2D, layers.GlobalMaxPooling2D),
    *(layers.ZeroPadding1D, layers.ZeroPadding2D, layers.Cropping1D, layers.Cropping2D, layers.UpSampling2D),
    *(layers.Dropout, layers.SpatialDropout1D, layers.SpatialDropout2D, layers.GaussianNoise, layers.GaussianDropout),
    *(layers.RandomFlip, layers.RandomTranslation, layers.RandomRotation, layers.RandomZoom, layers.RandomContrast),
)
OPERATIONS = ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Concatenate")  # of keras.ops
MOVING = ("ConvertToTensor", "Reshape", "ExpandDims", "Squeeze", "Transpose", "Copy")  # likewise; change the shape only
CLIPPING = ("relu", "relu6")  # LiteRT fuses these into the op before them
# Ranges whose scales LiteRT prescribes.
FIXED = {"softmax": (0.0, 255 / 256), "sigmoid": (0.0, 255 / 256), "tanh": (-1.0, 127 / 128)}
WITH_SCALE = ("leaky_relu", "silu")
ACTIVATIONS = ("linear", *CLIPPING, *FIXED, *WITH_SCALE)


def layer_kind(layer: Layer) -> str:
    """Return the kind of a layer.

    ``kernel``: multiplies by a kernel. ``norm``: batch norm. ``clip``: an activation that is fused into the op before
    it. ``fixed``: an op whose output scale LiteRT prescribes. ``calculate``: an op whose output needs its own scale.
    ``same``: an op whose output has the scale of its input. ``float``: any other; it stays in floats.
    """
    if type(layer) in KERNEL:
        return "kernel" if activation(layer) == "linear" and getattr(layer, "groups", 1) == 1 else "float"
    if type(layer) is layers.BatchNormalization:
        return "norm"
    if type(layer) is layers.Rescaling:
        scalars = all(isinstance(value, int | float) for value in (layer.scale, layer.offset))
        if not scalars or (layer.scale != 1 and layer.offset):  # more than one multiplication or one addition
            return "float"
    applied = _applied(layer)
    if applied in CLIPPING:
        return "clip"
    if applied in FIXED:
        return "fixed"
    operation = type(layer).__name__ if _is_operation(layer) else None
    if applied == "linear" or type(layer) in SAME_RANGE or operation in MOVING:
        return "same"
    calculates = applied in WITH_SCALE or type(layer) in CALCULATING or operation in OPERATIONS
    return "calculate" if calculates else "float"


def fixed_range(layer: Layer) -> tuple[float, float]:
    """Return the range that LiteRT prescribes for a layer of kind ``fixed``."""
    return FIXED[_applied(layer)]


def activation(layer: Layer) -> str:
    """Return the name of a layer's ``activation``."""
    function = layer.activation
    return "linear" if function is None else str(getattr(function, "__name__", type(function).__name__))


def is_custom(layer: Layer) -> bool:
    """Return True if the layer's class is defined neither in Keras nor in tfopt."""
    return not type(layer).__module__.startswith(("keras.", "tfopt.keras_models.fake_quantization"))


def _applied(layer: Layer) -> str:
    """Return the name of the function that a layer or operation without weights applies, or an empty string."""
    if type(layer) is layers.ReLU:
        plain = not layer.negative_slope and not layer.threshold
        return {None: "relu", 6: "relu6"}.get(layer.max_value, "") if plain else ""
    if type(layer) is layers.LeakyReLU:
        return "leaky_relu"
    if type(layer) is layers.Softmax:
        return "softmax" if layer.axis == -1 else ""
    if type(layer) is layers.Activation:
        return activation(layer)
    return type(layer).__name__.lower() if _is_operation(layer) else ""


def _is_operation(layer: Layer) -> bool:
    return type(layer).__module__.startswith("keras.src.ops.") and not isinstance(layer, keras.Layer)
