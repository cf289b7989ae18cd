"""Replace operations on constants by their results.

    f(c) = c'

    before    Const(variance) -> AddV2(Const(epsilon)) -> Rsqrt -> y
    after     Const(1 / sqrt(variance + epsilon)) -> y

TensorFlow computes all values in one run. A result has the control inputs of the constants, which in loops of version 1
determine the loop that it belongs to. An operation that fails, such as a division by zero in a branch that is never
taken, stays in the graph.

Requires: operations without effects and control edges; results of a known size of at most `LARGEST` bytes, or at most
that of the constants: a graph that fills a gigabyte with zeros should not store it on disk.
"""

import math
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from tfopt.error_messages import first_line
from tfopt.graph.law import Graph, Maker, Node, Outcome, Tensor, WholeGraphLaw
from tfopt.graph.op_registry import is_pure, output_types
from tfopt.graph.session import evaluate
from tfopt.graph_def import reach

LARGEST = 10 * 2**20  # bytes; Grappler's limit
HANDLES = {20, 21}  # the DataType values of resource and variant
NOT_FOLDED = ("QuantizeV2", "Dequantize", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")


def run(graph: Graph) -> Iterator[Outcome]:
    constants = [node for node in graph.of_op("Const") if node.name not in graph.fed]
    sizes = {node.name: node.attr["value"].tensor.ByteSize() for node in constants}
    if not any(node.inputs and all(tensor.node in sizes for tensor in node.inputs) for node in graph.nodes.values()):
        return
    constant_sizes = dict(sizes)
    for name in graph.downstream():
        node = graph.nodes[name]
        if name in constant_sizes or not node.inputs or not constant_sizes.keys() >= set(graph.sources(name)):
            continue
        reason = _refusal(graph, node, sum(constant_sizes[tensor.node] for tensor in node.inputs))
        if reason:
            yield name, reason
        else:
            constant_sizes[name] = _size(graph, name)
    frontier = [
        tensor
        for name in constant_sizes  # in this order, which that of a set would change from process to process
        if name not in sizes
        for tensor in _read_outside(graph, graph.nodes[name], constant_sizes)
    ]
    if frontier:
        yield from _replace(graph, frontier)


def _refusal(graph: Graph, node: Node, input_size: int) -> str | None:
    if not is_pure(node) or node.op in NOT_FOLDED:
        return f"{node.op} must run every time"
    if node.controls or node.name in graph.fed:
        return "it carries a control edge, or is fed from outside"
    if HANDLES & set(output_types(node)):
        return f"{node.op} makes a handle, which no constant holds"
    size = _size(graph, node.name)
    if size < 0:
        return "its size is not known"
    return f"it would take {size:,} bytes" if size > max(LARGEST, input_size) else None


def _size(graph: Graph, name: str) -> int:
    """Return the number of bytes of all outputs; -1 if it is unknown."""
    import tensorflow as tf

    total, node = 0, graph.nodes[name]
    for index, dtype in enumerate(output_types(node)):
        shape = graph.shape(Tensor(name, index))
        if shape is None or None in shape:
            return -1
        total += math.prod(size or 0 for size in shape) * max(tf.as_dtype(dtype).size or 8, 1)
    return total


def _read_outside(graph: Graph, node: Node, constants: dict[str, int]) -> list[Tensor]:
    """Return the outputs of a node that nodes other than constant ones read."""
    outside = [reader for reader in graph.readers(node.name) if reader.name not in constants]
    read = {tensor for reader in outside for tensor in reader.inputs if tensor.node == node.name}
    needed = {Tensor(node.name)} if node.name in graph.fetched or graph.waiting(node.name) else set()
    return sorted(read | needed)


def _replace(graph: Graph, frontier: list[Tensor]) -> Iterator[Outcome]:
    controls = _control_inputs(graph, reach({tensor.node for tensor in frontier}, graph.sources))
    for tensor, value in _values(graph, frontier).items():
        if isinstance(value, str):
            yield tensor.node, value
            continue
        node = graph.nodes[tensor.node]
        yield node.name, None
        if len(output_types(node)) == 1:
            graph.remove(node.name)
            constant = Maker(graph, node, controls[node.name]).constant("value", value)
            graph.rename(constant.node, node.name)
            continue
        output = Maker(graph, node, controls[node.name]).constant(f"value_{tensor.output}", value)
        graph.know_shape(output, tensor)
        graph.redirect(tensor, output)


def _values(graph: Graph, tensors: list[Tensor]) -> dict[Tensor, NDArray[Any] | str]:
    """Compute tensors in one run; if it fails, compute each half, down to the tensor that fails, with the reason."""
    from tensorflow.errors import OpError

    try:
        part = graph.ancestors({tensor.node for tensor in tensors})
        values = evaluate(part, [f"{tensor.node}:{tensor.output}" for tensor in tensors])
    except OpError as error:
        if len(tensors) == 1:
            return {tensors[0]: f"it fails: {first_line(error)}"}
        middle = len(tensors) // 2
        return _values(graph, tensors[:middle]) | _values(graph, tensors[middle:])
    return dict(zip(tensors, values, strict=True))


def _control_inputs(graph: Graph, names: set[str]) -> dict[str, list[str]]:
    """Return for each node the control inputs of the constants that it is computed from."""
    controls: dict[str, list[str]] = {}
    for name in (name for name in graph.downstream() if name in names):
        node = graph.nodes[name]
        before = [other for tensor in node.inputs for other in controls[tensor.node]]
        controls[name] = list(dict.fromkeys([*before, *node.controls]))
    return controls


LAW = WholeGraphLaw(
    run,
    requires=("direct edges",),
    ensures=("folded constants",),
    after={"drop_training_nodes": "an Identity between a constant and its reader is gone then"},
)
