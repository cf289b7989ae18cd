"""Activations computed again in the backward pass, in the place of being kept: less memory for more time.

The operations of a model are cut into about as many pieces as the root of their number. Forward, only what goes from
one piece to another is kept; backward, each piece is run again before its gradients. The last piece is needed at once,
so it is kept. Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016,
https://arxiv.org/abs/1604.06174.

Both runs of a piece are the same function (`tfopt.training.state_replay`). Why not Keras's RematScope:
docs/adr/0022-computed-twice.md.
"""

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.training.state_replay import draws_checked, state_as


@contextlib.contextmanager
def recomputed(model: Any, wanted: bool = True) -> Iterator[None]:
    """Let the training steps of a compiled model compute its activations again while the block runs.

    Args:
        model: Of Keras 3, functional or sequential.
        wanted: Whether it is asked for; nothing happens otherwise.

    Raises:
        ComponentError: When it is another kind of model, or a layer would be another function the second time.
    """
    if not wanted:
        yield
        return
    graphs, refused = _graphs(model), list[ComponentError]()
    for graph in graphs:
        graph.call = functools.partial(_call, graph, graph.call, _pieces(graph, last=graph is graphs[0]), refused)
    model.train_function = None
    try:
        yield
    except Exception as error:
        if refused:  # Keras made another exception of it
            raise refused[0] from error
        raise
    finally:
        for graph in graphs:
            del graph.call
        model.train_function = None


@dataclass(frozen=True)
class Piece:
    """Operations that follow each other.

    Attributes:
        nodes: Of the model's graph.
        needs: The symbolic tensors of others that they take.
        gives: Those of theirs that others take.
        others: Those of theirs that have no gradient: masks, say.
        again: Whether it is run again in the backward pass.
    """

    nodes: Sequence[Any]
    needs: Sequence[Any]
    gives: Sequence[Any]
    others: Sequence[Any]
    again: bool


def _graphs(model: Any) -> list[Any]:
    """The model and those inside it whose operations are known one by one, the outermost first."""
    graph = _graph(model)
    if keras_models.is_keras_2(model) or graph is None:
        raise ComponentError(
            f"rematerialize for {model.name}, a {type(model).__module__.split('.')[0]} {type(model).__name__}",
            "a functional or sequential model of Keras 3",
            "build it so, or leave rematerialize out and pass batch_size=0 or gradient_accumulation",
        )
    found = [graph]
    for each in found:
        inner = (_graph(operation) for operation in each.operations)
        found += [one for one in inner if one is not None and not any(one is known for known in found)]
    return found


def _graph(layer: Any) -> Any:
    """The functional model that a layer is, or is made of; None where it is neither."""
    if type(layer).__name__ == "Sequential":
        return getattr(layer, "_functional", None)
    kind: Any = next((kind for kind in type(layer).__mro__ if kind.__name__ == "Functional"), None)
    return layer if kind is not None and type(layer).call is kind.call else None


def _pieces(graph: Any, last: bool) -> list[Piece]:
    """Cut a model's operations in the order in which Keras runs them; models inside it are pieces of their own."""
    depths = sorted(graph._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in graph._nodes_by_depth[depth] if node.operation and not node.is_input]
    size = math.ceil(math.sqrt(len(nodes)))
    cut: list[list[Any]] = [[]]
    for node in nodes:
        alone = _graph(node.operation) is not None
        if cut[-1] and (alone or len(cut[-1]) == size or _graph(cut[-1][0].operation) is not None):
            cut.append([])
        cut[-1].append(node)
    return [_piece(graph, nodes, cut, last and nodes is cut[-1]) for nodes in cut]


def _piece(graph: Any, nodes: list[Any], cut: list[list[Any]], last: bool) -> Piece:
    import keras

    made = {id(tensor): tensor for node in nodes for tensor in node.outputs}
    taken = {id(tensor): tensor for node in nodes for tensor in node.input_tensors}
    others = [node for each in cut if each is not nodes for node in each]
    wanted = {id(tensor) for node in others for tensor in node.input_tensors} | {id(tensor) for tensor in graph.outputs}
    kept = [tensor for key, tensor in made.items() if key in wanted]
    gives = [tensor for tensor in kept if keras.backend.is_float_dtype(tensor.dtype)]
    return Piece(
        nodes,
        [tensor for key, tensor in taken.items() if key not in made],
        gives,
        [tensor for tensor in kept if not keras.backend.is_float_dtype(tensor.dtype)],
        again=not last and bool(gives) and _graph(nodes[0].operation) is None,
    )


def _call(
    graph: Any,
    plain: Any,
    pieces: Sequence[Piece],
    refused: list[ComponentError],
    inputs: Any,
    training: Any = None,
    mask: Any = None,
    **more: Any,
) -> Any:
    """What the model's own ``call`` does, piece by piece while it learns."""
    import keras

    if not training:
        return plain(inputs, training=training, mask=mask, **more)
    given = graph._standardize_inputs(inputs)
    for tensor, its in zip(given, keras.tree.flatten(mask), strict=False):
        _masked(tensor, its)
    known = {id(symbol): tensor for symbol, tensor in zip(graph.inputs, given, strict=True)}
    for piece in pieces:
        if piece.again:
            try:
                known |= _run_twice(graph, piece, known, training, refused)
            except ComponentError as refusal:
                refused.append(refusal)
                raise
        else:
            _run(piece, known, training)
    found = [known[id(symbol)] for symbol in graph.outputs]
    packed = keras.tree.pack_sequence_as(graph._outputs_struct, found)
    return packed[0] if isinstance(packed, list | tuple) and len(packed) == 1 else packed


def _run(piece: Piece, known: dict[int, Any], training: Any) -> None:
    """Run the operations, adding what they give to what is known."""
    import keras

    for node in piece.nodes:
        arguments, more = node.arguments.fill_in(known)
        if isinstance(node.operation, keras.Layer):  # the second time there is no model around it to say so
            more["training"] = training
        given = keras.tree.flatten(node.operation(*arguments, **more))
        known |= {id(symbol): tensor for symbol, tensor in zip(node.outputs, given, strict=True)}


def _run_twice(
    graph: Any, piece: Piece, known: Mapping[int, Any], training: Any, refused: list[ComponentError]
) -> dict[int, Any]:
    """Run the operations now and, for their gradients, again; return what they give."""
    import keras
    import tensorflow as tf

    taken = {id(symbol): known[id(symbol)] for symbol in piece.needs}
    learnt = {key: given for key, given in taken.items() if isinstance(given, tf.Tensor) and given.dtype.is_floating}
    before: dict[int, Any] = {}
    runs: list[tuple[Any, list[Any], dict[int, Any]]] = []

    @tf.recompute_grad  # type: ignore[untyped-decorator]
    def run(*given: Any) -> list[Any]:
        here = dict(taken)
        for key, tensor in zip(learnt, given, strict=False):
            here[key] = _masked(tensor, _mask(taken[key]))
        with draws_checked(), state_as(before, refused) as scope:
            _run(piece, here, training)
        outputs = [here[id(symbol)] for symbol in piece.gives]
        runs.append((scope, [_mask(each) for each in outputs], {id(each): here[id(each)] for each in piece.others}))
        return [*outputs, *scope.added]

    outputs = run(*(learnt.values() or [tf.zeros(())]))
    scope, masks, others = runs[0]  # the first, whose changes count
    for variable, value in scope.changes.values():
        variable.assign(value)
    for loss in outputs[len(masks) :]:
        keras.Layer.add_loss(graph, loss)  # a functional model has one that refuses
    given = zip(piece.gives, outputs, masks, strict=False)
    return others | {id(symbol): _masked(output, mask) for symbol, output, mask in given}


def _mask(tensor: Any) -> Any:
    return getattr(tensor, "_keras_mask", None)


def _masked(tensor: Any, mask: Any) -> Any:
    if mask is not None:
        tensor._keras_mask = mask
    return tensor
