"""The smaller model: layers made anew from their configurations with fewer channels, and what is left of their weights.

Layers keep their names, and the model its inputs and outputs. Layers that are not followed are the same objects in both
models (their sizes do not change), as in `tfopt.keras_models.layer_graph.rebuild`.
"""

from typing import Any

import numpy as np

from tfopt import keras_models
from tfopt.components.prune.channels.labels import Book, Channels, Kept
from tfopt.keras_models.layer_graph import LIBRARIES, Layer, is_graph, rebuild

OBJECTS = ("activation", "_initializer", "_regularizer", "_constraint")


def without(model: Layer, book: Book, kept: Kept) -> Layer:
    """Return the model without the channels whose labels are not kept; the model given stays as it is."""
    made: dict[int, Layer] = {}
    result = _made(model, book, kept, made)
    _fill(book, made, lambda array, axis, stays: np.compress(stays, array, axis), kept)
    return result


def silenced(model: Layer, book: Book, kept: Kept, roles: tuple[str, ...] = ()) -> Layer:
    """Return the model as large as it was, with zeros for the weights of channels that are not kept.

    Args:
        model: The model that was followed.
        book: What is known of its channels.
        kept: The labels that stay.
        roles: Of which cuts; all when empty.
    """
    made: dict[int, Layer] = {}
    result = _made(model, book, np.ones_like(kept), made)

    def silence(array: Any, axis: int, stays: Kept) -> Any:
        return array * stays.reshape([-1 if place == axis else 1 for place in range(array.ndim)]).astype(array.dtype)

    _fill(book, made, silence, kept, roles)
    return result


def _made(model: Layer, book: Book, kept: Kept, made: dict[int, Layer]) -> Layer:
    def substitute(layer: Layer) -> Layer:
        if id(layer) not in made:
            made[id(layer)] = new(layer)
        return made[id(layer)]

    def new(layer: Layer) -> Layer:
        if is_graph(layer) and id(layer) in book.entries:
            return rebuild(layer, substitute, _inputs(layer, book.entries[id(layer)], kept))
        if id(layer) in book.followed and isinstance(layer, keras_models.library(model).layers.Layer):
            return type(layer).from_config(_config(layer, book, kept))
        return layer

    return rebuild(model, substitute)


def _inputs(model: Layer, entries: list[Channels], kept: Kept) -> list[Any]:
    """New inputs of a model in the model, as wide as what it is given now."""
    made = []
    for name, tensor, channels in zip(keras_models.input_names(model), model.inputs, entries, strict=True):
        shape = list(tensor.shape)
        if channels.axis and shape[channels.axis] is not None:
            shape[channels.axis] = int(np.count_nonzero(kept[channels.labels]))
        made.append(keras_models.library(model).Input(shape[1:], batch_size=shape[0], dtype=tensor.dtype, name=name))
    return made


def _config(layer: Layer, book: Book, kept: Kept) -> dict[str, Any]:
    config = dict(layer.get_config())
    for key in config:  # functions and objects of the user's own need not be registered anywhere
        given = getattr(layer, key, None) if key.endswith(OBJECTS) else None
        if callable(given) and not str(getattr(given, "__module__", "")).startswith(LIBRARIES):
            config[key] = given
    for (key, place), labels in book.widths.get(id(layer), {}).items():
        width = int(np.count_nonzero(kept[labels]))
        if place is None:
            config[key] = width
        else:
            sizes = list(config[key])
            config[key] = [width if at == place and size != -1 else size for at, size in enumerate(sizes)]
    return config


def _fill(book: Book, made: dict[int, Layer], change: Any, kept: Kept, roles: tuple[str, ...] = ()) -> None:
    for key, layer in book.followed.items():
        if not getattr(layer, "weights", None) or made[key] is layer:
            continue
        arrays = layer.get_weights()
        for cut in (cut for (owner, _, _), cut in book.cuts.items() if owner == key):
            if not roles or cut.role in roles:
                arrays[cut.weight] = change(arrays[cut.weight], cut.axis, kept[cut.labels])
        made[key].set_weights(arrays)
