"""Find the layers of a graph that can be computed in 8 bits: a kernel, its bias, a residual, an activation."""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tfopt.graph.law import attr
from tfopt.graph.mutable_graph import Graph, Node, Tensor

CONVOLUTION, DEPTHWISE, PRODUCT = "Conv2D", "DepthwiseConv2dNative", "MatMul"
ADDING = ("AddV2", "Add")
ACTIVATIONS = ("Relu", "Relu6")
PASSING = ("Reshape", "Squeeze", "ExpandDims", "MaxPool")  # they return some of the values that they read

Stays = dict[str, dict[str, int]]  # operations that stay, with their counts, by reason


@dataclass(frozen=True)
class Layer:
    """Operations that become one 8-bit operation."""

    kernel: Node  # the convolution or product
    bias: Tensor | None  # the constant that is added
    residual: Tensor | None  # the tensor that is added to the result, before the activation
    activation: str | None  # ``Relu`` or ``Relu6``
    end: str  # the name of the last operation, whose value the layer computes

    @property
    def source(self) -> Tensor:
        """The tensor that the layer reads."""
        return self.kernel.inputs[0]


def find_layers(graph: Graph, operations: Collection[str], within: Collection[str]) -> tuple[list[Layer], Stays]:
    """Return the layers in topological order, and the counts of operations that stay, by reason.

    Only ``operations`` may be quantized, ``within`` the nodes whose values are known on the calibration examples.
    """
    layers: list[Layer] = []
    stays: dict[str, Counter[str]] = defaultdict(Counter)
    ends: set[str] = set()
    for name in graph.downstream():
        node = graph.nodes[name]
        if node.op not in (CONVOLUTION, DEPTHWISE, PRODUCT):
            continue
        if reason := _refusal(graph, node, operations, within):
            stays[reason][node.op] += 1
            continue
        layers.append(_layer(graph, node, ends))
        ends.add(layers[-1].end)
    return layers, {reason: dict(ops.most_common()) for reason, ops in stays.items()}


def producer(graph: Graph, ends: Collection[str], tensor: Tensor) -> str | None:
    """Return the end of the layer whose values a tensor consists of, through operations that pass values on."""
    while tensor.node not in ends:
        node = graph.nodes[tensor.node]
        if not passes(graph, node):
            return None
        tensor = node.inputs[0]
    return tensor.node if tensor.output == 0 else None


def passes(graph: Graph, node: Node) -> bool:
    """Return True if an operation can pass 8-bit values on."""
    if node.op not in PASSING or node.name in graph.fed or node.controls:
        return False
    return node.op != "MaxPool" or (attr(node, "data_format") == "NHWC" and attr(node, "padding") != "EXPLICIT")


def _refusal(graph: Graph, node: Node, operations: Collection[str], within: Collection[str]) -> str | None:
    if node.op not in operations:
        return "not among the requested operations"
    if node.name not in within:
        return "the examples do not reach it"
    if attr(node, "T") != 1:  # DT_FLOAT
        return "it is not in float32"
    if not graph.is_constant(node.inputs[1]):
        return "its weights are computed"
    weights = graph.array(node.inputs[1])
    if not np.isfinite(weights).all() or not weights.size:
        return "its weights are not finite"
    if node.op == PRODUCT:
        return "its input is transposed" if attr(node, "transpose_a") else None
    if attr(node, "data_format") != "NHWC":
        return "its channels come first"
    shape = graph.shape(node.inputs[0])
    if node.op == CONVOLUTION and (shape is None or shape[-1] != weights.shape[2]):
        return "it has groups, or an unknown number of channels"
    return None


def _layer(graph: Graph, kernel: Node, ends: set[str]) -> Layer:
    bias = residual = activation = None
    end, shape = kernel, graph.array(kernel.inputs[1]).shape
    transposed = kernel.op == PRODUCT and attr(kernel, "transpose_b")
    channels = int(np.prod(shape[2:])) if kernel.op == DEPTHWISE else shape[0 if transposed else -1]
    node = _only_reader(graph, end)
    if node is not None and (bias := _bias(graph, node, end, channels)):
        end, node = node, _only_reader(graph, node)
    if kernel.op == CONVOLUTION and node is not None and (residual := _residual(graph, node, end)):
        rectified = _only_reader(graph, node)
        if rectified is not None and rectified.op == "Relu" and rectified.name not in ends:
            return Layer(kernel, bias, residual, "Relu", rectified.name)
    if node is not None and node.op in ACTIVATIONS:
        activation, end = node.op, node
    return Layer(kernel, bias, None, activation, end.name)


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """Return the only reader of a node, if nothing else depends on the node's value."""
    if graph.uses(node.name) != 1 or node.name in graph.fetched or graph.waiting(node.name):
        return None
    (reader,) = graph.readers(node.name)
    return None if reader.controls or reader.name in graph.fed else reader


def _bias(graph: Graph, node: Node, end: Node, count: int) -> Tensor | None:
    """Return the constant that a node adds to each channel."""
    if node.op == "BiasAdd" and attr(node, "data_format") == "NHWC":
        constants = node.inputs[1:]
    elif node.op in ADDING:
        constants = [tensor for tensor in node.inputs if tensor.node != end.name]
    else:
        return None
    for tensor in constants:
        if graph.is_constant(tensor) and graph.array(tensor).shape[-1:] == (count,):
            vector = graph.array(tensor)
            return tensor if vector.size == count and np.isfinite(vector).all() else None
    return None


def _residual(graph: Graph, node: Node, end: Node) -> Tensor | None:
    """Return the tensor of the same shape that a node adds."""
    if node.op not in ADDING:
        return None
    other = next((tensor for tensor in node.inputs if tensor.node != end.name), None)
    shape = graph.shape(Tensor(end.name))
    if other is None or graph.is_constant(other) or shape is None or graph.shape(other) != shape:
        return None
    return other if None not in shape[1:] else None
