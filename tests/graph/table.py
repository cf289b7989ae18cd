"""The table that every law has: `tests/graph/rewrites/LAW.py` holds its rows, `test_laws.py` runs them all."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tfopt.graph.passes import run_one
from tfopt.graph.report import Report
from tfopt.graph.view import Graph

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
    """

    name: str
    build: Callable
    fires: int = 1
    because: str = ""
    gone: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def graph_def(self):
        """Build it."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            tf.identity(self.build(), name="y")
        return graph.as_graph_def()


def holds(name: str, build: Callable, *, fires: int = 1, gone=(), outputs=()) -> Row:
    """The law fires so often, leaves none of some operations, and the function as it was."""
    return Row(name, build, fires, gone=(gone,) if isinstance(gone, str) else tuple(gone), outputs=tuple(outputs))


def refuses(name: str, build: Callable, *, because: str, outputs=()) -> Row:
    """The law gives this reason and changes nothing."""
    return Row(name, build, 0, because, outputs=tuple(outputs))


def view(graph_def, outputs=("y",)) -> Graph:
    """The graph as the engine sees it: placeholders are fed."""
    return Graph.of(graph_def, fed=[n.name for n in graph_def.node if n.op == "Placeholder"], fetched=outputs)


def law_applied(law: str, graph_def, outputs=("y",)):
    """Return the graph after a law, how often it fired, and the reasons it gave."""
    graph, report = view(graph_def, outputs), Report()
    fired = run_one(law, graph, report)
    return graph.to_graph_def(), fired, list(report.refused[law].values())


def ops(graph_def) -> Counter:
    """How many nodes there are of each operation."""
    return Counter(node.op for node in graph_def.node)


def feed(*shape, dtype="float32", name="x"):
    """A placeholder."""
    import tensorflow as tf

    return tf.compat.v1.placeholder(dtype, shape, name=name)


def weights(*shape, dtype="float32", low=None):
    """A constant with values far from trivial; uniform from ``low`` to 2 where that is given."""
    import tensorflow as tf

    values = draw.normal(0, 0.7, shape) if low is None else draw.uniform(low, 2, shape)
    return tf.constant(values, dtype)
