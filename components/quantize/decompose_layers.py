"""Replace each compound layer of a Keras 3 model by a chain of simple layers that computes the same."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from keras import Model, Sequential, layers

from tfopt.components.quantize.layer_kinds import ACTIVATIONS, CLIPPING, KERNEL, activation
from tfopt.keras_models.layer_graph import Layer, is_graph, rebuild

PART_SUFFIXES = ("_linear", "_depthwise")  # of the names of parts with a kernel


def whole_names(name: str) -> list[str]:
    """Return the names that a layer may have in the original model, before it was decomposed.

    >>> whole_names("digit_linear")
    ['digit_linear', 'digit']
    """
    return list(dict.fromkeys([name, *(name.removesuffix(suffix) for suffix in PART_SUFFIXES)]))


def decompose(model: Layer, keep: Sequence[str]) -> Layer:
    """Return the model with compound layers replaced: a softmax Dense becomes a linear Dense and an Activation.

    Layers whose names are in ``keep`` are not replaced. A Sequential model becomes a Functional one.
    """

    def substitute(layer: Layer) -> Layer:
        if layer.name in keep:
            return layer
        if id(layer) not in replacements:
            parts = [] if is_graph(layer) else _parts(layer)
            chain = partial(_call_parts, parts) if parts else layer
            replacements[id(layer)] = decompose(layer, keep) if is_graph(layer) else chain
        return replacements[id(layer)]

    replacements: dict[int, Layer] = {}
    flat = Model(model.inputs[0], model.outputs[0], name=model.name) if isinstance(model, Sequential) else model
    return rebuild(flat, substitute)


def _call_parts(parts: list[tuple[Layer, list[Any]]], tensor: Any) -> Any:
    """Call layers one after the other; each gets its weights after it is built."""
    for layer, weights in parts:
        tensor = layer(tensor)
        layer.set_weights(weights)
    return tensor


def _parts(layer: Layer) -> list[tuple[Layer, list[Any]]]:
    """Return the parts of a layer and their weights; the last part has the layer's name. Empty for a simple layer."""
    if type(layer) is layers.SeparableConv2D:
        return _separable_parts(layer)
    if type(layer) is layers.Rescaling and layer.offset and layer.scale != 1:
        scale = layers.Rescaling(layer.scale, name=f"{layer.name}_scale", dtype=layer.dtype_policy)
        return [(scale, []), (layers.Rescaling(1.0, layer.offset, name=layer.name, dtype=layer.dtype_policy), [])]
    if type(layer) in KERNEL and activation(layer) != "linear" and activation(layer) in ACTIVATIONS:
        config = {**layer.get_config(), "activation": "linear", "name": f"{layer.name}_linear"}
        return [(type(layer).from_config(config), layer.get_weights()), (_activation(layer), [])]
    return []


def _separable_parts(layer: Layer) -> list[tuple[Layer, list[Any]]]:
    config = layer.get_config()
    shared = {key: config[key] for key in ("data_format", "dtype", "trainable")}
    depthwise_keys = ("kernel_size", "strides", "padding", "dilation_rate", "depth_multiplier")
    depthwise = layers.DepthwiseConv2D(
        **shared, **{key: config[key] for key in depthwise_keys}, use_bias=False, name=f"{layer.name}_depthwise"
    )
    linear = activation(layer) == "linear"
    pointwise = layers.Conv2D(
        layer.filters, 1, **shared, use_bias=layer.use_bias, name=layer.name if linear else f"{layer.name}_linear"
    )
    first, *others = layer.get_weights()
    return [(depthwise, [first]), (pointwise, others), *([] if linear else [(_activation(layer), [])])]


def _activation(layer: Layer) -> Layer:
    if activation(layer) in CLIPPING:
        return layers.ReLU(6.0 if activation(layer) == "relu6" else None, name=layer.name, dtype=layer.dtype_policy)
    return layers.Activation(layer.activation, name=layer.name, dtype=layer.dtype_policy)
