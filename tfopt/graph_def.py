"""Read, copy and cut GraphDefs."""

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain, count
from typing import Any

from tfopt.artifacts.saved_model_proto import functions_called

GraphDef = Any  # tf.compat.v1.GraphDef: protocol buffers have no types here
NodeDef = Any  # tf.compat.v1.NodeDef
FunctionDef = Any  # tensorflow.core.framework.function_pb2.FunctionDef
FLOAT, INT32, STRING, INT64, QINT8, QUINT8, VARIANT = 1, 3, 7, 9, 11, 12, 21  # of the enum DataType


def nodes(graph: GraphDef) -> Iterator[NodeDef]:
    """Yield every NodeDef of a GraphDef and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def node_of(source: str) -> str:
    """Return the node that an input of a NodeDef names: ``node``, ``node:1`` or ``^node``."""
    return source.removeprefix("^").partition(":")[0]


def unused_name(base: str, used: Container[str]) -> str:
    """Return a name that is not used: ``base``, else ``base_1`` or the next number."""
    return next(name for name in chain([base], (f"{base}_{number}" for number in count(1))) if name not in used)


def readers(graph: GraphDef, *, controls: bool = True) -> dict[str, list[str]]:
    """Return the names of the nodes that read a node, or (``controls``) wait for it, by its name."""
    reading: dict[str, list[str]] = {}
    for node in graph.node:
        for source in node.input:
            if controls or not source.startswith("^"):
                reading.setdefault(node_of(source), []).append(node.name)
    return reading


def reach(starts: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """Return names and all that follow them, directly or through others."""
    reached, ahead = set(), set(starts)
    while ahead:
        reached |= ahead
        ahead = set().union(*map(following, ahead)) - reached
    return reached


def data_type(name: str) -> int:
    """Return the number of a dtype in the enum DataType."""
    from tensorflow import as_dtype

    return int(as_dtype(name).as_datatype_enum)


def without_nodes(graph: GraphDef) -> GraphDef:
    """Return a GraphDef with the function library and the versions of another one, and without nodes."""
    empty = type(graph)()
    empty.versions.CopyFrom(graph.versions)
    empty.library.CopyFrom(graph.library)
    return empty


def subgraph(graph: GraphDef, names: Iterable[str]) -> GraphDef:
    """Return a copy of some nodes, of what they depend on, and of the functions that these call."""
    from tensorflow.compat.v1.graph_util import extract_sub_graph

    copy = extract_sub_graph(graph, sorted(set(names)))
    prune_functions(copy)
    return copy


def prune_functions(graph: GraphDef) -> None:
    """Remove unreachable functions from a GraphDef, and all gradient definitions."""
    del graph.library.gradient[:]
    if not graph.library.function:
        return
    bodies = {function.signature.name: function.node_def for function in graph.library.function}
    called = functions_called(graph.node) & set(bodies)
    reached = reach(called, lambda name: functions_called(bodies[name]) & set(bodies))
    reachable = [function for function in graph.library.function if function.signature.name in reached]
    del graph.library.function[:]
    graph.library.function.extend(reachable)
