"""A function of constants is a constant.

    f(c) = c'

    before    Const(variance) -> AddV2(Const(epsilon)) -> Rsqrt -> y
    after     Const(1 / sqrt(variance + epsilon)) -> y

TensorFlow itself computes the values, all of them in one run. What the constants wait for, their result waits for: in
loops of version 1 that says which one they belong to. Needs: operations without effects and without control edges, and
results whose size is known before and that are at most `LARGEST` or no larger than what they are made of: a graph that
fills a gigabyte with zeros when it runs should not carry it on disk. What fails, such as a division by zero on a branch
that is never taken, stays to fail where it did.
"""

import math
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from tfopt.errors import first_line
from tfopt.graph.mutable_graph import Graph, GraphDef, Node, Tensor
from tfopt.graph.op_registry import is_pure, output_types
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Maker, Whole
from tfopt.graph.session import evaluate

LARGEST = 10 * 2**20  # bytes; what Grappler takes
HANDLES = {20, 21}  # resource and variant, in the numbers of protocol buffers
KEPT = ("QuantizeV2", "Dequantize", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")


def run(graph: Graph, report: Report) -> int:
    """Replace what is computed from constants and read by something else."""
    constants = [node for node in graph.of_op("Const") if node.name not in graph.fed]
    sizes = {node.name: node.attr["value"].tensor.ByteSize() for node in constants}
    if not any(node.inputs and all(tensor.node in sizes for tensor in node.inputs) for node in graph.nodes.values()):
        return 0
    known = dict(sizes)
    for name in graph.downstream():
        node = graph.nodes[name]
        if name in known or not node.inputs or any(tensor.node not in known for tensor in node.inputs):
            continue
        reason = _refusal(graph, node, sum(known[tensor.node] for tensor in node.inputs))
        if reason:
            report.refuse("fold_constants", name, reason)
        else:
            known[name] = _size(graph, name)
    frontier = [
        tensor for name in known.keys() - sizes.keys() for tensor in _read_outside(graph, graph.nodes[name], known)
    ]
    return _replace(graph, frontier, report) if frontier else 0


def _refusal(graph: Graph, node: Node, given: int) -> str | None:
    if not is_pure(node) or node.op in KEPT:
        return f"{node.op} must run every time"
    if node.controls or node.name in graph.fed:
        return "it carries a control edge, or is fed from outside"
    if HANDLES & set(output_types(node)):
        return f"{node.op} makes a handle, which no constant holds"
    size = _size(graph, node.name)
    if size < 0:
        return "its size is not known"
    return f"it would take {size:,} bytes" if size > max(LARGEST, given) else None


def _size(graph: Graph, name: str) -> int:
    """Bytes of all outputs; -1 where that is not known."""
    import tensorflow as tf

    total, node = 0, graph.nodes[name]
    for index, kind in enumerate(output_types(node)):
        shape = graph.shape(Tensor(name, index))
        if shape is None or None in shape:
            return -1
        total += math.prod(size or 0 for size in shape) * max(tf.as_dtype(kind).size or 8, 1)
    return total


def _read_outside(graph: Graph, node: Node, known: dict[str, int]) -> list[Tensor]:
    outside = [reader for reader in graph.readers(node.name) if reader.name not in known]
    read = {tensor for reader in outside for tensor in reader.inputs if tensor.node == node.name}
    asked = {Tensor(node.name)} if node.name in graph.fetched or graph.waiting(node.name) else set()
    return sorted(read | asked)


def _replace(graph: Graph, frontier: list[Tensor], report: Report) -> int:
    waited = _waited(graph, graph.ancestors({tensor.node for tensor in frontier}))
    values = _values(graph, frontier, report)
    for tensor, value in values.items():
        node = graph.nodes[tensor.node]
        report.fire("fold_constants", node.name)
        if len(output_types(node)) == 1:
            graph.remove(node.name)
            made = Maker(graph, node, waited[node.name]).unplaced("value", value)
            graph.insert(replace(made, name=node.name))
            continue
        output = Maker(graph, node, waited[node.name]).constant(f"value_{tensor.output}", value)
        graph.know_shape(output, tensor)
        graph.redirect(tensor, output)
    return len(values)


def _values(graph: Graph, tensors: list[Tensor], report: Report) -> dict[Tensor, NDArray[Any]]:
    """What some tensors are, in one run; where that fails, in a run for each half, down to the one that failed."""
    from tensorflow.errors import OpError

    try:
        part = graph.ancestors({tensor.node for tensor in tensors})
        found = evaluate(part, [f"{tensor.node}:{tensor.output}" for tensor in tensors])
    except OpError as error:
        if len(tensors) == 1:
            report.refuse("fold_constants", tensors[0].node, f"it fails: {first_line(error)}")
            return {}
        middle = len(tensors) // 2
        return _values(graph, tensors[:middle], report) | _values(graph, tensors[middle:], report)
    return dict(zip(tensors, found, strict=True))


def _waited(graph: Graph, part: GraphDef) -> dict[str, list[str]]:
    """For what the constants that each of some nodes is computed from wait, by its name."""
    left = {proto.name for proto in part.node}
    found: dict[str, list[str]] = {}
    for name in (name for name in graph.downstream() if name in left):
        node = graph.nodes[name]
        before = [other for tensor in node.inputs for other in found[tensor.node]]
        found[name] = list(dict.fromkeys([*before, *node.controls]))
    return found


LAW = Whole(run, requires=("direct edges",), ensures=("folded constants",))
