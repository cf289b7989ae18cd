"""A Keras model as the list of its calls, the same for Keras 3 and Keras 2, and a model made anew from such a list.

Both Keras versions record every call of a layer on symbolic tensors, and keep the record in private names only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfopt.keras_models import io as keras_models

Layer = Any  # a keras or tf_keras layer (or an operation of keras.ops); the two have no common base
LIBRARIES = ("keras.", "tf_keras.")


@dataclass(frozen=True)
class Call:
    """A layer called once.

    Attributes:
        layer: What was called: a layer, a model, or an operation.
        args: Positional arguments, symbolic tensors among them.
        kwargs: Named arguments, likewise.
        inputs: The symbolic tensors among the arguments.
        outputs: The symbolic tensors it returned, flattened.
    """

    layer: Layer
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: list[Any]
    outputs: list[Any]

    @property
    def training(self) -> bool:
        """Whether the call itself asks for training mode."""
        given = self.kwargs.get("training", self.args[1] if len(self.args) > 1 else None)
        return given is not None and given is not False


def is_graph(layer: Layer) -> bool:
    """Whether it is a built Sequential or Functional model that does what its graph says, with no `call` of its own."""
    method = getattr(type(layer), "call", None)
    plain = getattr(method, "__module__", "").startswith(LIBRARIES) and _owner(layer) in ("Functional", "Sequential")
    return plain and bool(getattr(_network(layer), "_nodes_by_depth", None))


def calls(model: Layer) -> Iterator[Call]:
    """Yield the calls a graph model is made of, each after those it depends on."""
    import tensorflow as tf

    levels = _network(model)._nodes_by_depth
    for depth in sorted(levels, reverse=True):
        for node in levels[depth]:
            if node.is_input or depth < 0:  # below zero Keras 2 keeps what only losses and metrics need
                continue
            if keras_models.is_keras_2(model):
                inputs, outputs = list(node.keras_inputs), tf.nest.flatten(node.outputs)
                yield Call(node.layer, tuple(node.call_args), dict(node.call_kwargs), inputs, outputs)
            else:
                given = node.arguments
                yield Call(node.operation, tuple(given.args), dict(given.kwargs), given.keras_tensors, node.outputs)


def rebuild(model: Layer, substitute: Callable[[Layer], Layer | None], inputs: Sequence[Any] = ()) -> Layer:
    """Return a model like this one with other layers in place of some.

    Layers that stay are the same objects, weights, tables and all; so are the inputs, unless others are given.

    Args:
        model: A graph model.
        substitute: Gives the layer to call in place of one, which may be that one; None hands its input on. A layer of
            another kind is called on the first argument alone, which is a list where inputs are joined.
        inputs: In place of the model's own, in their order.
    """
    library = keras_models.library(model)
    inputs = inputs or model.inputs
    if isinstance(model, library.Sequential):
        kept = [new for layer in model.layers if (new := substitute(layer)) is not None]
        return library.Sequential([inputs[0], *kept], name=model.name)
    tree = _tree(model)
    made = dict(zip(map(id, model.inputs), inputs, strict=True))

    def given(leaf: Any) -> Any:
        return made.get(id(leaf), leaf)

    for call in calls(model):
        layer = substitute(call.layer)
        if layer is None:
            results = made[id(call.inputs[0])]
        elif is_graph(layer) or isinstance(layer, type(call.layer)):
            args, kwargs = tree.map_structure(given, (call.args, call.kwargs))
            results = layer(*args, **kwargs)
        else:
            results = layer(tree.map_structure(given, call.args[0]) if call.args else made[id(call.inputs[0])])
        made |= zip(map(id, call.outputs), tree.flatten(results), strict=True)
    return library.Model(
        tree.map_structure(given, model.input), tree.map_structure(given, model.output), name=model.name
    )


def _network(model: Layer) -> Any:
    return getattr(model, "_functional", None) or model  # where a Keras 3 Sequential keeps its graph


def _owner(model: Layer) -> str:
    return str(type(model).call.__qualname__).split(".")[0]


def _tree(model: Layer) -> Any:
    if keras_models.is_keras_2(model):
        import tensorflow as tf

        return tf.nest
    return keras_models.library(model).tree
