"""Sizes of the elements of lists, which loops read and write, in a model with a fixed batch size.

The lists of a recurrent layer have an element for each step, ``[batch, units]``. A model is traced with an open batch
size, which its graph has as the constant -1 of each list. It is another one in a layer that is distributed over time:
the product of the batch size and the number of steps.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tfopt.graph.function_bodies import read_body
from tfopt.graph.mutable_graph import Graph, Node
from tfopt.graph.shape_inference import Shape
from tfopt.graph_def import FunctionDef, GraphDef, NodeDef, node_of

LOOPS = ("While", "StatelessWhile")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # Keras 2 has each of its recurrent layers in a function
WITH_SIZES = ("TensorListReserve", "TensorListFromTensor", "TensorListStack", "TensorListGetItem")


def fix_list_sizes(graph: GraphDef) -> None:
    """Replace the open first size of lists' elements by the batch size, in a GraphDef and its functions, in place.

    The batch size of a loop is that of the tensors whose slices it reads, or 1 if they are open too. An open first size
    is taken for the batch size: a comparison of outputs would show another meaning.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    _fix_loops(graph.node, lambda: Graph.of(graph), functions)
    for nodes in (graph.node, *(function.node_def for function in functions.values())):
        _fix(nodes, nodes, 1)


def _fix_loops(nodes: Any, read: Callable[[], Graph], functions: Mapping[str, FunctionDef]) -> None:
    """Fix the lists of loops whose batch size is known, in the nodes of a graph that ``read`` returns with shapes.

    It is read again after each change, from which sizes behind a loop follow.
    """
    if not any(node.op in (*LOOPS, *CALLS) for node in nodes):
        return
    raw = {node.name: node for node in nodes}
    graph = read()
    for name in [name for name in graph.downstream() if graph.nodes[name].op in (*LOOPS, *CALLS)]:
        node = graph.nodes[name]
        function = functions.get(node.attr["body" if node.op in LOOPS else "f"].func.name)
        if function is None:
            continue
        if node.op in CALLS:
            shapes = [graph.shape(tensor) for tensor in node.inputs]
            _fix_loops(function.node_def, partial(_read_function, function, functions, shapes), functions)
        elif size := _read_size(graph, node):
            around = {tensor.node for tensor in node.inputs} | {reader.name for reader in graph.readers(name)}
            _fix(nodes, [raw[each] for each in around if each in raw], size)
            _fix(function.node_def, function.node_def, size)
        graph = read()


def _read_function(function: FunctionDef, functions: Mapping[str, FunctionDef], shapes: Iterable[Shape]) -> Graph:
    """Return the body of a function as a graph, with the shapes of its arguments; empty if it cannot be read."""
    import tensorflow as tf

    body = read_body(function, functions)
    if isinstance(body, str):
        return Graph()
    for name, shape in zip(body.arguments, shapes, strict=True):
        if shape is not None:
            body.graph.nodes[name].attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return body.graph


def _read_size(graph: Graph, loop: Node) -> int:
    """Return the first size of the slices that a loop reads from tensors; 0 if it is open, or if there are several."""
    lists = [graph.nodes[tensor.node] for tensor in loop.inputs]
    shapes = [graph.shape(node.inputs[0]) for node in lists if node.op == "TensorListFromTensor"]
    sizes = {shape[1] or 0 if shape and len(shape) > 1 else 0 for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else 0


def _fix(nodes: Any, lists: Iterable[NodeDef], size: int) -> None:
    """Replace the open first size of some lists, which get constants of their own: other operations read the old."""
    import tensorflow as tf

    constants = {node.name: node for node in nodes if node.op == "Const"}
    for node in [node for node in lists if node.op in WITH_SIZES]:
        for index, constant in enumerate([constants.get(node_of(source)) for source in node.input]):
            if constant is None:
                continue
            sizes = tf.make_ndarray(constant.attr["value"].tensor)
            if sizes.ndim != 1 or not sizes.size or sizes[0] != -1 or sizes[1:].min(initial=0) < 0:
                continue
            fixed = nodes.add(name=f"{node.name}/sizes_{index}", op="Const")
            fixed.attr["dtype"].CopyFrom(constant.attr["dtype"])
            values = np.array([size, *sizes[1:]], sizes.dtype)
            fixed.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
            node.input[index] = node.input[index].replace(constant.name, fixed.name, 1)
