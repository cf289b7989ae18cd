"""Replace lookup tables from integers to numbers by comparisons with their keys, which every format has.

Converters to LiteRT and ONNX know tables between text and int64 only; LiteRT's crashes on others.
"""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.session import session
from tfopt.graph_def import NodeDef, node_of, nodes, subgraph, without_nodes

FIND, TABLE = "LookupTableFindV2", "HashTableV2"
MOST_KEYS = 1024  # a lookup compares with each of them


def has_numeric_tables(model: Path) -> bool:
    """Return True if a SavedModel looks up numbers by integers."""
    return any(_is_numeric(node) for node in nodes(read_meta_graph(model).graph_def))


def replace_numeric_tables(frozen: Frozen, bits: int = 64) -> Frozen:
    """Return the model without the tables from integers to numbers that have at most `MOST_KEYS` keys.

    Tables with a key of more than ``bits`` stay: the runtime would compare other numbers.

    The initializer and its files are left out if no other table is used.
    """
    tables = {node.name: node.name for node in frozen.graph.node if node.op == TABLE}
    for node in frozen.graph.node:  # in topological order: an Identity follows the table
        if node.op == "Identity" and node_of(node.input[0]) in tables:
            tables[node.name] = tables[node_of(node.input[0])]
    lookups = [node for node in frozen.graph.node if _is_numeric(node) and node_of(node.input[0]) in tables]
    finds = {node.name: tables[node_of(node.input[0])] for node in lookups}
    contents = _read_tables(frozen, {finds[node.name]: node for node in lookups})
    graph = without_nodes(frozen.graph)
    for node in frozen.graph.node:
        content = contents[finds[node.name]] if node.name in finds else None
        if content is not None and 0 < len(content[0]) <= MOST_KEYS and _fits(content[0], bits):
            graph.node.extend(_comparison(node, *content))
        else:
            graph.node.append(node)
    return _pruned(replace(frozen, graph=graph))


def _fits(keys: NDArray[Any], bits: int) -> bool:
    """Return whether signed integers of ``bits`` hold the keys."""
    limit: int = 2 ** (bits - 1)
    return -limit <= int(keys.min()) and int(keys.max()) < limit


def _is_numeric(node: Any) -> bool:
    import tensorflow as tf

    if node.op != FIND:
        return False
    keys, values = (tf.dtypes.as_dtype(node.attr[name].type) for name in ("Tin", "Tout"))
    return bool(keys.is_integer and (values.is_integer or values.is_floating))


def _read_tables(frozen: Frozen, tables: dict[str, NodeDef]) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return the keys and values of tables by name; each comes with a node that looks up in it."""
    graph = deepcopy(frozen.graph)
    exports = {}
    for number, (table, find) in enumerate(tables.items()):
        node = graph.node.add(name=f"tfopt_export_{number}", op="LookupTableExportV2", input=[table])
        node.attr["Tkeys"].type, node.attr["Tvalues"].type = find.attr["Tin"].type, find.attr["Tout"].type
        exports[table] = (f"{node.name}:0", f"{node.name}:1")
    files = {tensor: str(file) for tensor, file in frozen.assets.items()}
    with session(graph) as opened:
        if frozen.initializer:
            opened.run(frozen.initializer, files)
        contents: dict[str, tuple[NDArray[Any], NDArray[Any]]] = opened.run(exports)
    return contents


def _comparison(find: Any, keys: NDArray[Any], values: NDArray[Any]) -> list[Any]:
    """Return the nodes that select the value of the equal key, or the default; the last one has the lookup's name."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        key = tf.compat.v1.placeholder(keys.dtype, name="key")
        default = tf.compat.v1.placeholder(values.dtype, name="default")
        equal = tf.equal(key[..., None], tf.constant(keys))
        value = tf.gather(tf.constant(values), tf.argmax(tf.cast(equal, tf.int32), -1))
        tf.where(tf.reduce_any(equal, -1), value, default, name="result")
    sources = {"key": find.input[1], "default": find.input[2], "result": find.name}
    comparison = [node for node in graph.as_graph_def().node if node.name not in ("key", "default")]
    for node in comparison:
        node.input[:] = [_renamed(source, sources, find.name) for source in node.input]
        node.name = _renamed(node.name, sources, find.name)
    return comparison


def _renamed(source: str, sources: dict[str, str], prefix: str) -> str:
    return sources.get(source) or f"{prefix}/of_tfopt/{source}"


def _pruned(frozen: Frozen) -> Frozen:
    """Leave out what no signature needs: tables, the initializer and its files, if no signature looks up in a table."""
    ends = [end.node for signature in frozen.signatures.values() for end in signature.outputs.values()]
    graph = subgraph(frozen.graph, ends)
    if frozen.state or any(node.op.startswith("LookupTable") for node in nodes(graph)):
        return frozen
    tables = {node.name for node in graph.node if node.op == TABLE}
    for node in graph.node:  # calls that were inlined wait for all of their arguments
        node.input[:] = [source for source in node.input if not (source.startswith("^") and source[1:] in tables)]
    graph = subgraph(graph, ends)
    unread = frozen.inputs - {node.name for node in graph.node}
    graph.node.extend(node for node in frozen.graph.node if node.name in unread)
    return replace(frozen, graph=graph, initializer=None, assets={})
