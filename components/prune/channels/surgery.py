"""Build the smaller model: layers with fewer channels, created from their configurations, with the remaining weights.

Layers retain their names, and the model its inputs and outputs. Layers through which channels are not followed do not
change in size; they are the same objects in both models, as in `tfopt.keras_models.layer_graph.rebuild`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt import keras_models
from tfopt.components.prune.channels.labels import ChannelGraph, Channels, Remaining
from tfopt.keras_models.layer_graph import LIBRARIES, Layer, is_graph, rebuild
from tfopt.value_types import JsonObject

OBJECTS = ("activation", "_initializer", "_regularizer", "_constraint")


def build_smaller_model(model: Layer, graph: ChannelGraph, remaining: Remaining) -> Layer:
    """Return the model with the remaining channels only; the original model does not change."""
    return _changed_copy(model, graph, remaining, lambda array, axis, mask: np.compress(mask, array, axis), remaining)


def zero_channels(model: Layer, graph: ChannelGraph, remaining: Remaining, roles: tuple[str, ...] = ()) -> Layer:
    """Return a copy of the model with zeros for the weights of the other channels, of these roles; all when empty."""

    def zero(array: Any, axis: int, mask: Remaining) -> Any:
        shape = [-1 if index == axis else 1 for index in range(array.ndim)]
        return array * mask.reshape(shape).astype(array.dtype)

    return _changed_copy(model, graph, np.ones_like(remaining), zero, remaining, roles)


def _changed_copy(
    model: Layer,
    graph: ChannelGraph,
    sizes: Remaining,
    change: Callable[[Any, int, Remaining], Any],
    remaining: Remaining,
    roles: tuple[str, ...] = (),
) -> Layer:
    """Copy a model to layers of these sizes, and change the weights of the original layers along each cut axis."""
    copies: dict[int, Layer] = {}

    def substitute(layer: Layer) -> Layer:
        if id(layer) not in copies:
            copies[id(layer)] = copy(layer)
        return copies[id(layer)]

    def copy(layer: Layer) -> Layer:
        if is_graph(layer) and id(layer) in graph.entries:
            return rebuild(layer, substitute, _new_inputs(layer, graph.entries[id(layer)], sizes))
        if id(layer) in graph.followed and isinstance(layer, keras_models.library(model).layers.Layer):
            return type(layer).from_config(_config(layer, graph, sizes))
        return layer

    result = rebuild(model, substitute)
    for key, layer in graph.followed.items():
        if not getattr(layer, "weights", None) or copies[key] is layer:
            continue
        arrays = layer.get_weights()
        for cut in (cut for (owner, _, _), cut in graph.cuts.items() if owner == key):
            if not roles or cut.role in roles:
                arrays[cut.weight] = change(arrays[cut.weight], cut.axis, remaining[cut.labels])
        copies[key].set_weights(arrays)
    return result


def _new_inputs(model: Layer, entries: list[Channels], remaining: Remaining) -> list[Any]:
    """Return new inputs of a nested model, with the number of channels that remain."""
    inputs = []
    for name, tensor, channels in zip(keras_models.input_names(model), model.inputs, entries, strict=True):
        shape = list(tensor.shape)
        if channels.axis and shape[channels.axis] is not None:
            shape[channels.axis] = int(np.count_nonzero(remaining[channels.labels]))
        inputs.append(keras_models.library(model).Input(shape[1:], batch_size=shape[0], dtype=tensor.dtype, name=name))
    return inputs


def _config(layer: Layer, graph: ChannelGraph, remaining: Remaining) -> JsonObject:
    config = dict(layer.get_config())
    for key in config:  # functions and objects of the user need not be registered with Keras
        value = getattr(layer, key, None) if key.endswith(OBJECTS) else None
        if callable(value) and not str(getattr(value, "__module__", "")).startswith(LIBRARIES):
            config[key] = value
    parts = _copy_directions(config) if type(layer).__name__ == "Bidirectional" else [config]
    for (key, index), labels in graph.widths.get(id(layer), {}).items():
        width = int(np.count_nonzero(remaining[labels]))
        for part in parts:
            if index is None:
                part[key] = width
            else:
                sizes = list(part[key])
                part[key] = [width if at == index and size != -1 else size for at, size in enumerate(sizes)]
    return config


def _copy_directions(config: Any) -> list[Any]:
    """Replace the configurations of both directions by copies without the shapes of their inputs, and return those.

    Keras 2 has none of the backward layer if that is a copy of the forward layer.
    """
    names = [name for name in ("layer", "backward_layer") if config.get(name)]
    for name in names:
        entries = {key: value for key, value in config[name].items() if key != "build_config"}
        config[name] = entries | {"config": dict(entries["config"])}
    return [config[name]["config"] for name in names]
