"""A Keras 3 model of simple layers only: each compound one becomes the layers that do its work one after the other."""

from typing import Any

from keras import Model, Sequential, layers

from tfopt.components.quantize.layer_kinds import ACTIVATIONS, CLIPPING, KERNEL, activation
from tfopt.keras_models.layer_graph import Layer, is_graph, rebuild


def take_apart(model: Layer, keep: list[str]) -> Layer:
    """Return the model with, say, a softmax Dense layer as a linear one and an Activation.

    Args:
        model: A graph model; a Sequential becomes Functional.
        keep: Names of layers that stay as they are.
    """

    def substitute(layer: Layer) -> Layer:
        if layer.name in keep:
            return layer
        if id(layer) not in made:
            found = [] if is_graph(layer) else _parts(layer)
            made[id(layer)] = take_apart(layer, keep) if is_graph(layer) else _Chain(found) if found else layer
        return made[id(layer)]

    made: dict[int, Layer] = {}
    flat = Model(model.inputs[0], model.outputs[0], name=model.name) if isinstance(model, Sequential) else model
    return rebuild(flat, substitute)


class _Chain:
    """Layers called one after the other, each with the weights it is to have once it is built."""

    def __init__(self, parts: list[tuple[Layer, list[Any]]]) -> None:
        self.parts = parts

    def __call__(self, tensor: Any) -> Any:
        for layer, weights in self.parts:
            tensor = layer(tensor)
            layer.set_weights(weights)
        return tensor


def _parts(layer: Layer) -> list[tuple[Layer, list[Any]]]:
    """The parts and their weights, the last named as the layer; none for a layer that is simple."""
    if type(layer) is layers.SeparableConv2D:
        return _halves(layer)
    if type(layer) is layers.Rescaling and layer.offset and layer.scale != 1:
        scale = layers.Rescaling(layer.scale, name=f"{layer.name}_scale", dtype=layer.dtype_policy)
        return [(scale, []), (layers.Rescaling(1.0, layer.offset, name=layer.name, dtype=layer.dtype_policy), [])]
    if type(layer) in KERNEL and activation(layer) != "linear" and activation(layer) in ACTIVATIONS:
        config = {**layer.get_config(), "activation": "linear", "name": f"{layer.name}_linear"}
        return [(type(layer).from_config(config), layer.get_weights()), (_activation(layer), [])]
    return []


def _halves(layer: Layer) -> list[tuple[Layer, list[Any]]]:
    """A separable convolution is a depthwise one and a pointwise one."""
    config = layer.get_config()
    shared = {key: config[key] for key in ("data_format", "dtype", "trainable")}
    of_depth = ("kernel_size", "strides", "padding", "dilation_rate", "depth_multiplier")
    depthwise = layers.DepthwiseConv2D(
        **shared, **{key: config[key] for key in of_depth}, use_bias=False, name=f"{layer.name}_depthwise"
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
