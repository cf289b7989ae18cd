"""List the layer calls of a Keras 2 or Keras 3 model, and rebuild the model with other layers.

Both Keras versions record every call of a layer on symbolic tensors, but only in private attributes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfopt.keras_models.io import is_keras_2, library

Layer = Any  # a keras or tf_keras layer (or an operation of keras.ops); the two have no common base
LIBRARIES = ("keras.", "tf_keras.")


@dataclass(frozen=True)
class Call:
    """One call of a layer."""

    layer: Layer  # the layer, model or operation that was called
    args: tuple[Any, ...]  # positional arguments; some are symbolic tensors
    kwargs: dict[str, object]  # keyword arguments; some are symbolic tensors
    inputs: list[Any]  # the symbolic tensors among the arguments
    outputs: list[Any]  # the returned symbolic tensors, flattened

    @property
    def training(self) -> bool:
        """Return True if the call passes ``training=True``."""
        argument = self.kwargs.get("training", self.args[1] if len(self.args) > 1 else None)
        return argument is not None and argument is not False


def is_graph(layer: Layer) -> bool:
    """Return True for a built Sequential or Functional model without a ``call`` method of its own."""
    method = getattr(type(layer), "call", None)
    if method is None or not method.__module__.startswith(LIBRARIES):
        return False
    owner = method.__qualname__.partition(".")[0]
    return owner in ("Functional", "Sequential") and bool(getattr(_network(layer), "_nodes_by_depth", None))


def calls(model: Layer) -> Iterator[Call]:
    """Yield the calls of a graph model in topological order."""
    levels = _network(model)._nodes_by_depth
    for depth in sorted(levels, reverse=True):
        for node in levels[depth]:
            if node.is_input or depth < 0:  # Keras 2 stores calls that only losses and metrics need below 0
                continue
            if is_keras_2(model):
                inputs, outputs = list(node.keras_inputs), tf.nest.flatten(node.outputs)
                yield Call(node.layer, tuple(node.call_args), dict(node.call_kwargs), inputs, outputs)
            else:
                arguments = node.arguments
                kwargs = dict(arguments.kwargs)
                yield Call(node.operation, tuple(arguments.args), kwargs, arguments.keras_tensors, node.outputs)


def rebuild(model: Layer, substitute: Callable[[Layer], Layer | None], inputs: Sequence[Any] = ()) -> Layer:
    """Return a model with the same graph in which some layers are replaced.

    Layers that are not replaced are the same objects, with their weights and tables. So are the inputs, unless
    ``inputs`` replace them, in the same order. ``substitute`` returns the layer to call instead of a layer (possibly
    the same one), or None to pass its input through. A layer of another class is called on the first argument only,
    which is a list if inputs are merged.
    """
    keras = library(model)
    inputs = inputs or model.inputs
    if isinstance(model, keras.Sequential):
        remaining = [new for layer in model.layers if (new := substitute(layer)) is not None]
        return keras.Sequential([inputs[0], *remaining], name=model.name)
    tree = tf.nest if is_keras_2(model) else keras.tree
    new_tensors = dict(zip(map(id, model.inputs), inputs, strict=True))

    def replacement(leaf: Any) -> Any:
        return new_tensors.get(id(leaf), leaf)

    for call in calls(model):
        layer = substitute(call.layer)
        if layer is None:
            results = new_tensors[id(call.inputs[0])]
        elif is_graph(layer) or isinstance(layer, type(call.layer)):
            args, kwargs = tree.map_structure(replacement, (call.args, call.kwargs))
            results = layer(*args, **kwargs)
        else:
            first = tree.map_structure(replacement, call.args[0]) if call.args else new_tensors[id(call.inputs[0])]
            results = layer(first)
        new_tensors |= zip(map(id, call.outputs), tree.flatten(results), strict=True)
    new_inputs, new_outputs = tree.map_structure(replacement, (model.input, model.output))
    return keras.Model(new_inputs, new_outputs, name=model.name)


def _network(model: Layer) -> Any:
    return getattr(model, "_functional", None) or model  # where a Keras 3 Sequential keeps its graph
