"""Rematerialization: compute activations again in the backward pass instead of storing them.

It needs less memory and more time. The operations of a model are cut into segments, about as many as the square root of
their number. The forward pass stores only tensors that cross segments; the backward pass runs each segment again before
it computes its gradients. The last segment is needed first, so its activations are stored.
Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, https://arxiv.org/abs/1604.06174.

In a second run, a dropout would draw another mask, and a batch normalization would update its averages twice. So both
runs of a segment read variables that are not trained (averages, the state of random generators) as they were before the
first run, and assignments are recorded instead of carried out.
`docs/adr/0022-rematerialization.md` explains why Keras's ``RematScope`` is not used.
"""

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tfopt import keras_models
from tfopt.errors import ComponentError

# TensorFlow's stateful random ops begin with these
DRAWS = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")


@contextlib.contextmanager
def rematerialized(model: Any, enabled: bool = True) -> Iterator[None]:
    """Make the training steps of a compiled model rematerialize its activations while the block runs.

    Raises:
        ComponentError: If it is not a functional or sequential model of Keras 3, or a layer would compute another
            function in the second run.
    """
    if not enabled:
        yield
        return
    graphs = _find_graphs(model)
    for graph in graphs:
        segments = _cut(graph, keep_last=graph is graphs[0])
        graph.call = functools.partial(_call, graph, graph.call, segments)
    model.train_function = None
    try:
        yield
    except Exception as error:
        refusal: BaseException | None = error
        while refusal and not isinstance(refusal, ComponentError):  # Keras wraps it in another exception
            refusal = refusal.__cause__ or refusal.__context__
        if refusal is None or refusal is error:
            raise
        raise refusal from error
    finally:
        for graph in graphs:
            del graph.call
        model.train_function = None


@dataclass(frozen=True)
class Segment:
    """Consecutive operations of a model."""

    nodes: Sequence[Any]
    inputs: Sequence[Any]  # symbolic tensors of other segments that the operations take
    outputs: Sequence[Any]  # floating-point tensors of this segment that are used outside it
    others: Sequence[Any]  # other tensors that are used outside it; they have no gradient, such as masks
    rematerialize: bool  # True if it is run again in the backward pass


def _find_graphs(model: Any) -> list[Any]:
    """Return the model and the functional models inside it, the outermost first."""
    graph = _functional(model)
    if keras_models.is_keras_2(model) or graph is None:
        received = f"rematerialize for {model.name}, a {type(model).__module__.split('.')[0]} {type(model).__name__}"
        fix = "build it so, or leave rematerialize out and pass batch_size=0 or gradient_accumulation"
        raise ComponentError(received, "a functional or sequential model of Keras 3", fix)
    graphs = [graph]
    for each in graphs:
        inner = (_functional(operation) for operation in each.operations)
        graphs += [other for other in inner if other is not None and other not in graphs]
    return graphs


def _functional(layer: Any) -> Any:
    """Return the functional model that a layer is, or consists of; None if it is neither."""
    if type(layer).__name__ == "Sequential":
        return getattr(layer, "_functional", None)
    kind: Any = next((kind for kind in type(layer).__mro__ if kind.__name__ == "Functional"), None)
    return layer if kind is not None and type(layer).call is kind.call else None


def _cut(graph: Any, keep_last: bool) -> list[Segment]:
    """Cut a model's operations, in Keras's order of execution, into segments; an inner model is its own segment."""
    depths = sorted(graph._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in graph._nodes_by_depth[depth] if node.operation and not node.is_input]
    size = math.ceil(math.sqrt(len(nodes)))
    parts: list[list[Any]] = [[]]
    for node in nodes:
        is_model = _functional(node.operation) is not None
        if parts[-1] and (is_model or len(parts[-1]) == size or _functional(parts[-1][0].operation) is not None):
            parts.append([])
        parts[-1].append(node)
    return [_segment(graph, nodes, parts, keep_last and nodes is parts[-1]) for nodes in parts]


def _segment(graph: Any, nodes: list[Any], parts: list[list[Any]], keep: bool) -> Segment:
    produced = {id(tensor): tensor for node in nodes for tensor in node.outputs}
    consumed = {id(tensor): tensor for node in nodes for tensor in node.input_tensors}
    other_nodes = [node for part in parts if part is not nodes for node in part]
    used = {id(tensor) for node in other_nodes for tensor in node.input_tensors}
    used |= {id(tensor) for tensor in graph.outputs}
    crossing = [tensor for key, tensor in produced.items() if key in used]
    outputs = [tensor for tensor in crossing if keras.backend.is_float_dtype(tensor.dtype)]
    return Segment(
        nodes,
        [tensor for key, tensor in consumed.items() if key not in produced],
        outputs,
        [tensor for tensor in crossing if not keras.backend.is_float_dtype(tensor.dtype)],
        rematerialize=not keep and bool(outputs) and _functional(nodes[0].operation) is None,
    )


def _call(
    graph: Any,
    original_call: Any,
    segments: Sequence[Segment],
    inputs: Any,
    training: Any = None,
    mask: Any = None,
    **options: Any,
) -> Any:
    """Replace the model's ``call``: in training, run it segment by segment."""
    if not training:
        return original_call(inputs, training=training, mask=mask, **options)
    flat = graph._standardize_inputs(inputs)
    for tensor, its_mask in zip(flat, keras.tree.flatten(mask), strict=False):
        _set_mask(tensor, its_mask)
    values = {id(symbol): tensor for symbol, tensor in zip(graph.inputs, flat, strict=True)}
    for segment in segments:
        if segment.rematerialize:
            values |= _run_twice(graph, segment, values, training)
        else:
            _run(segment, values, training)
    packed = keras.tree.pack_sequence_as(graph._outputs_struct, [values[id(symbol)] for symbol in graph.outputs])
    return packed[0] if isinstance(packed, list | tuple) and len(packed) == 1 else packed


def _run(segment: Segment, values: dict[int, Any], training: Any) -> None:
    for node in segment.nodes:
        arguments, options = node.arguments.fill_in(values)
        if isinstance(node.operation, keras.Layer):  # in the second run, no enclosing call sets `training`
            options["training"] = training
        outputs = keras.tree.flatten(node.operation(*arguments, **options))
        values |= {id(symbol): tensor for symbol, tensor in zip(node.outputs, outputs, strict=True)}


def _run_twice(graph: Any, segment: Segment, values: Mapping[int, Any], training: Any) -> dict[int, Any]:
    """Run a segment now and, for its gradients, again; return its outputs."""
    inputs = {id(symbol): values[id(symbol)] for symbol in segment.inputs}
    differentiable = {
        key: tensor for key, tensor in inputs.items() if isinstance(tensor, tf.Tensor) and tensor.dtype.is_floating
    }
    state: dict[int, Any] = {}
    runs: list[tuple[Any, list[Any], dict[int, Any]]] = []

    @tf.recompute_grad  # type: ignore[untyped-decorator]
    def run(*tensors: Any) -> list[Any]:
        local = dict(inputs)
        for key, tensor in zip(differentiable, tensors, strict=False):
            local[key] = _set_mask(tensor, _mask(inputs[key]))
        with _refuse_tensorflow_draws(), _ReplayScope(state) as scope:
            _run(segment, local, training)
        outputs = [local[id(symbol)] for symbol in segment.outputs]
        others = {id(symbol): local[id(symbol)] for symbol in segment.others}
        runs.append((scope, [_mask(output) for output in outputs], others))
        return [*outputs, *scope.added_losses]

    outputs = run(*(differentiable.values() or [tf.zeros(())]))
    scope, masks, others = runs[0]  # assignments of the first run are carried out, those of the second are not
    for variable, value in scope.assignments.values():
        variable.assign(value)
    for loss in outputs[len(masks) :]:
        keras.Layer.add_loss(graph, loss)  # the functional model's own method raises
    masked = zip(segment.outputs, outputs, masks, strict=False)
    return others | {id(symbol): _set_mask(output, mask) for symbol, output, mask in masked}


def _mask(tensor: Any) -> Any:
    return getattr(tensor, "_keras_mask", None)


def _set_mask(tensor: Any, mask: Any) -> Any:
    if mask is not None:
        tensor._keras_mask = mask
    return tensor


class _ReplayScope(keras.StatelessScope):  # type: ignore[misc]  # Keras is untyped
    """A Keras scope in which variables that are not trained have the values of ``state``.

    Values that are missing in ``state`` are added to it. Assignments are recorded in the scope's ``assignments`` and
    not carried out, except those to trained variables, which raise ComponentError. Losses that layers add are recorded
    in ``added_losses``.
    """

    def __init__(self, state: dict[int, Any]) -> None:
        super().__init__(collect_losses=True, initialize_variables=False)
        self.state = state
        self.assignments: dict[int, tuple[Any, Any]] = {}
        self.added_losses: list[Any] = []

    def get_current_value(self, variable: Any) -> Any:
        key = id(variable)
        if key not in self.state_mapping and not variable.trainable:
            if key not in self.state:
                self.state[key] = tf.convert_to_tensor(variable._value)
            return self.state[key]
        return self.state_mapping.get(key)

    def add_update(self, update: tuple[Any, Any]) -> None:
        variable, _ = update
        if variable.trainable:
            received = f"rematerialize: a layer assigns {variable.path}, which is trained"
            expected = "layers that leave trained variables to the optimizer"
            raise ComponentError(received, expected, "leave rematerialize out")
        self.assignments[id(variable)] = update
        super().add_update(update)

    def add_loss(self, loss: Any) -> None:
        self.added_losses.append(loss)


@contextlib.contextmanager
def _refuse_tensorflow_draws() -> Iterator[None]:
    """Raise if the block adds random ops of TensorFlow to the graph: their numbers would differ in the second run."""
    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    op_count, functions = len(graph.get_operations()), {*graph._functions}
    yield
    bodies = [function.graph for name, function in graph._functions.items() if name not in functions]  # loops, branches
    added = graph.get_operations()[op_count:] + [op for body in bodies for op in body.get_operations()]
    draws = [op.name for op in added if op.type.startswith(DRAWS)]
    if draws:
        received = f"rematerialize, and {draws[0]} draws other random numbers in each run"
        fix = "draw with keras.random and a keras.random.SeedGenerator, or leave rematerialize out"
        raise ComponentError(received, "layers that compute the same when they are run again", fix)
