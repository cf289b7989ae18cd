"""The table that every law has: `tests/graph/rewrites/LAW.py` holds its rows, `test_laws.py` runs them all."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tfopt.graph.mutable_graph import Graph
from tfopt.graph.pass_manager import run_law
from tfopt.graph.report import Report

draw = np.random.default_rng(7)


@dataclass(frozen=True)
class Row:
    """An example of a law.

    Attributes:
        name: What it shows.
        build: Makes the graph from placeholders, in the default graph; returns the output, which becomes ``y``.
        fires: How often the law fires; 0 where it refuses.
        because: Part of the reason, where it refuses.
        gone: Operations of which none is left.
        outputs: Names of nodes that are asked for beside ``y``.
        unfed: Names of placeholders that nothing feeds; false, where the graph is run as it was.
    """

    name: str
    build: Callable
    fires: int = 1
    because: str = ""
    gone: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    unfed: tuple[str, ...] = ()

    def graph_def(self):
        """Build it."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            tf.identity(self.build(), name="y")
        return graph.as_graph_def()


def holds(name: str, build: Callable, *, fires: int = 1, gone=(), outputs=(), unfed=()) -> Row:
    """The law fires so often, leaves none of some operations, and the function as it was."""
    gone = (gone,) if isinstance(gone, str) else tuple(gone)
    return Row(name, build, fires, gone=gone, outputs=tuple(outputs), unfed=tuple(unfed))


def refuses(name: str, build: Callable, *, because: str, outputs=(), unfed=()) -> Row:
    """The law gives this reason and changes nothing."""
    return Row(name, build, 0, because, outputs=tuple(outputs), unfed=tuple(unfed))


def view(graph_def, outputs=("y",), unfed=()) -> Graph:
    """The graph as the engine sees it: placeholders are fed."""
    fed = {node.name for node in graph_def.node if node.op == "Placeholder"} - set(unfed)
    return Graph.of(graph_def, fed=fed, fetched=outputs)


def law_applied(law: str, graph_def, outputs=("y",), unfed=()):
    """Return the graph after a law, how often it fired, and the reasons it gave."""
    graph, report = view(graph_def, outputs, unfed), Report()
    fired = run_law(law, graph, report)
    return graph.to_graph_def(), fired, list(report.refused[law].values())


def answering(graph_def, unfed=()):
    """The graph as it can be run: false for each placeholder that nothing feeds."""
    import tensorflow as tf

    made = type(graph_def).FromString(graph_def.SerializeToString())
    for node in made.node:
        if node.name in unfed:
            kind = node.attr["dtype"].type
            node.op = "Const"
            node.attr.clear()
            node.attr["dtype"].type = kind
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.zeros([], tf.as_dtype(kind).as_numpy_dtype)))
    return made


def ops(graph_def) -> Counter:
    """How many nodes there are of each operation."""
    return Counter(node.op for node in graph_def.node)


def feed(*shape, dtype="float32", name="x"):
    """A placeholder, outside of any loop or branch that is being built."""
    import tensorflow as tf

    with tf.control_dependencies(None):
        return tf.compat.v1.placeholder(dtype, shape, name=name)


def unknown(tensor):
    """A tensor of whose shape nothing is known, not even how many axes: at most one size is open."""
    import tensorflow as tf

    sizes = [-1 if size is None else size for size in tf.convert_to_tensor(tensor).shape]
    none = feed(1, dtype="int32", name="u") * 0 - 2
    return tf.reshape(tensor, tf.raw_ops.ListDiff(x=sizes, y=none)[0])  # all of them, but nobody counts them before


def weights(*shape, dtype="float32", low=None):
    """A constant with values far from trivial; uniform from ``low`` to 2 where that is given."""
    import tensorflow as tf

    values = draw.normal(0, 0.7, shape) if low is None else draw.uniform(low, 2, shape)
    return tf.constant(values, dtype)
