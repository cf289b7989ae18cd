"""Test cases of laws: `tests/graph/laws/LAW.py` declares those of a law, and `test_laws.py` runs them."""

import functools
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tfopt.graph.law_runner import run_law
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report

draw = np.random.default_rng(7)


@dataclass(frozen=True)
class Row:
    """A test case of a law.

    Attributes:
        name: A description.
        build: Function that builds the graph in the default graph and returns the output, which is named ``y``.
        fires: Expected number of firings; 0 if the law refuses.
        because: Part of the reason, if the law refuses.
        gone: Operations that are absent from the result.
        outputs: Names of fetched nodes besides ``y``.
        unfed: Names of placeholders that are not fed; they are false when the graph is run.
    """

    name: str
    build: Callable
    fires: int = 1
    because: str = ""
    gone: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    unfed: tuple[str, ...] = ()

    def graph_def(self):
        """Return a copy of the graph, with the same weights in any order of the tests."""
        import tensorflow as tf

        return tf.compat.v1.GraphDef.FromString(_build(self))


@functools.cache
def _build(row: Row) -> bytes:
    import tensorflow as tf

    draw.bit_generator.state = np.random.default_rng(zlib.crc32(row.name.encode())).bit_generator.state
    with tf.Graph().as_default() as graph:
        tf.identity(row.build(), name="y")
    return graph.as_graph_def().SerializeToString()


def holds(name: str, build: Callable, *, fires: int = 1, gone=(), outputs=(), unfed=()) -> Row:
    """Return a case in which the law fires, removes the operations ``gone``, and preserves the function."""
    gone = (gone,) if isinstance(gone, str) else tuple(gone)
    return Row(name, build, fires, gone=gone, outputs=tuple(outputs), unfed=tuple(unfed))


def refuses(name: str, build: Callable, *, because: str, outputs=(), unfed=()) -> Row:
    """Return a case in which the law refuses with this reason and changes nothing."""
    return Row(name, build, 0, because, outputs=tuple(outputs), unfed=tuple(unfed))


def view(graph_def, outputs=("y",), unfed=()) -> Graph:
    """Return a mutable graph whose placeholders are fed."""
    fed = {node.name for node in graph_def.node if node.op == "Placeholder"} - set(unfed)
    return Graph.of(graph_def, fed=fed, fetched=outputs)


def law_applied(law: str, graph_def, outputs=("y",), unfed=()):
    """Return the graph after a law, the number of firings, and the reasons for refusals."""
    graph, report = view(graph_def, outputs, unfed), Report()
    fired = run_law(law, graph, report)
    return graph.to_graph_def(), fired, list(report.refused[law].values())


def answering(graph_def, unfed=()):
    """Return a graph that can be run: unfed placeholders become the constant false."""
    import tensorflow as tf

    result = type(graph_def).FromString(graph_def.SerializeToString())
    for node in result.node:
        if node.name in unfed:
            dtype = node.attr["dtype"].type
            node.op = "Const"
            node.attr.clear()
            node.attr["dtype"].type = dtype
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.zeros([], tf.as_dtype(dtype).as_numpy_dtype)))
    return result


def is_unchanged(before, after) -> bool:
    """Return True if two graphs have the same nodes and functions."""
    nodes = [{node.name: node for node in graph.node} for graph in (before, after)]
    return nodes[0] == nodes[1] and before.library == after.library


def ops(graph_def) -> Counter:
    """Count the nodes of each operation."""
    return Counter(node.op for node in graph_def.node)


def feed(*shape, dtype="float32", name="x"):
    """Return a placeholder outside any loop or branch that is being built."""
    import tensorflow as tf

    with tf.control_dependencies(None):
        return tf.compat.v1.placeholder(dtype, shape, name=name)


def unknown(tensor):
    """Return a tensor of unknown rank with the values of ``tensor``, which may have one unknown size."""
    import tensorflow as tf

    sizes = [-1 if size is None else size for size in tf.convert_to_tensor(tensor).shape]
    absent = feed(1, dtype="int32", name="u") * 0 - 2
    shape = tf.raw_ops.ListDiff(x=sizes, y=absent)[0]  # all sizes, but shape inference does not know how many
    return tf.reshape(tensor, shape)


def weights(*shape, dtype="float32", low=None):
    """Return a constant with normally distributed values, or uniform ones from ``low`` to 2."""
    import tensorflow as tf

    values = draw.normal(0, 0.7, shape) if low is None else draw.uniform(low, 2, shape)
    return tf.constant(values, dtype)
