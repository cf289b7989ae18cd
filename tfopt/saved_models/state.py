"""State that a model changes while it serves: variables that it writes, mutable tables, generators of random numbers.

A frozen model keeps such variables and tables. Its initialization op gives them the values that the saved model has.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts.saved_model_proto import functions_called, read_meta_graph
from tfopt.errors import ComponentError
from tfopt.graph.op_registry import definition
from tfopt.graph_def import GraphDef, NodeDef, node_of, nodes, reach, readers, subgraph

WRITES = re.compile(
    r"Assign|CountUpTo|^(Sparse)?Apply|^Resource(Scatter|(Sparse)?Apply|Strided|CountUpTo)|^Rng"
    r"|^Stateful(Uniform|StandardNormal|TruncatedNormal|RandomBinomial)|^Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)$"
)
VARIABLE = re.compile(r"^(Variable|VariableV2|VarHandleOp)$")
MUTABLE_TABLE = re.compile(r"^Mutable(Dense)?HashTable\w*$")
HANDLE_OPS = re.compile(r"^(Ref)?(Identity|IdentityN|Enter|Switch|Merge|Exit|NextIteration)$")
RANDOM = re.compile(r"Random|Multinomial|ParameterizedTruncatedNormal|CandidateSampler|^Stateful(?!PartitionedCall)")
INITIALIZER = "state_initializer"
WITHOUT = "without these operations, or a signature that does not reach them"
WITHOUT_STATE = (
    "build it again with stateful=False and load the weights, if it is a Keras model with such a recurrent layer; or "
    "pass the .keras file, if batch norms change: Keras exports those behind a Resizing layer in training mode; or "
    f"export it {WITHOUT}; optimize_graph and fold_batch_norm keep state"
)


def changes_state(graph_def: Any) -> bool:
    """Return whether a call of a graph may change what the next call returns, or returns random numbers."""
    return any(
        WRITES.search(node.op)
        or MUTABLE_TABLE.match(node.op)
        or (RANDOM.search(node.op) and definition(node.op) is not None and definition(node.op).is_stateful)
        for node in nodes(graph_def)
    )


def check_stateless(folder: Path, file: str, fix: str = "") -> None:
    """Raise ComponentError if the default signature of a SavedModel changes state, which a kind of ``file`` cannot."""
    meta_graph = read_meta_graph(folder)
    outputs = meta_graph.signature_def["serving_default"].outputs.values()
    reached = subgraph(meta_graph.graph_def, [node_of(end.name) for end in outputs])
    written = [node for node in nodes(reached) if WRITES.search(node.op) or MUTABLE_TABLE.match(node.op)]
    if written:
        more = f" and {len(written) - 3} more" if len(written) > 3 else ""
        shown = ", ".join(f"{node.name} ({node.op})" for node in written[:3])
        received = f"a model that changes its state while it serves: {shown}{more}"
        expected = f"a model whose outputs depend on its inputs only: {file} has no variables"
        raise ComponentError(received, expected, fix or WITHOUT_STATE)


def state_nodes(graph_def: GraphDef) -> list[NodeDef]:
    """Return the NodeDefs of mutable tables, and of variables that the graph or one of its functions writes."""
    by_name = {node.name: node for node in graph_def.node}
    writing = _writing_functions(graph_def)
    writers = [node for node in graph_def.node if WRITES.search(node.op) or functions_called([node]) & writing]

    def sources(node: NodeDef) -> list[str]:
        return [node_of(text) for text in node.input if not text.startswith("^")]

    def handle_sources(name: str) -> list[str]:
        return sources(by_name[name]) if HANDLE_OPS.match(by_name[name].op) else []

    reached = reach((source for node in writers for source in sources(node)), handle_sources)
    written = [by_name[name] for name in reached if VARIABLE.match(by_name[name].op)]
    tables = [node for node in graph_def.node if MUTABLE_TABLE.match(node.op)]
    return sorted([*written, *tables], key=lambda node: str(node.name))


def users_of(graph_def: GraphDef, states: list[NodeDef]) -> set[str]:
    """Return the names of states, of what passes their handles on, and of the operations that take a handle."""
    reading = readers(graph_def, controls=False)
    forwarding = {node.name for node in graph_def.node if HANDLE_OPS.match(node.op)}
    handles = reach((node.name for node in states), lambda name: forwarding.intersection(reading.get(name, ())))
    return handles.union(*(reading.get(name, ()) for name in handles))


def add_initializer(graph_def: GraphDef, states: list[NodeDef], values: list[Any], after: str | None) -> str:
    """Add an operation that gives states their values, after another initialization op, and return its name.

    Args:
        graph_def: The graph, changed in place.
        states: Nodes from `state_nodes`.
        values: For each an array, or the keys and values of a table; see `read_values`.
        after: The name of the other initialization op; None if there is none.
    """
    import tensorflow as tf

    made = []
    for state, value in zip(states, values, strict=True):
        node = graph_def.node.add(name=f"{INITIALIZER}/{state.name}", op="Assign", input=[state.name])
        types = []
        for number, array in enumerate(value):
            proto = tf.make_tensor_proto(array)
            constant = graph_def.node.add(op="Const", name=f"{node.name}/value_{number}")
            constant.input.extend([f"^{after}"] if after else [])
            constant.attr["dtype"].type = proto.dtype
            constant.attr["value"].tensor.CopyFrom(proto)
            node.input.append(constant.name)
            types.append(proto.dtype)
        if state.op == "VarHandleOp":
            node.op = "AssignVariableOp"
            node.attr["dtype"].type = types[0]
        elif MUTABLE_TABLE.match(state.op):
            node.op = "LookupTableInsertV2" if "Dense" in state.op else "LookupTableImportV2"  # an Import crashes
            node.attr["Tin"].type, node.attr["Tout"].type = types
        else:
            node.attr["T"].type = types[0]
        made.append(node.name)
    graph_def.node.add(name=INITIALIZER, op="NoOp", input=[f"^{name}" for name in made])
    return INITIALIZER


def read_values(session: Any, states: list[Any]) -> list[Any]:
    """Return the values of states in a session: an array of a variable, or the keys and values of a table.

    Raises:
        ValueError: If one cannot be read.
    """
    import tensorflow as tf

    with session.graph.as_default():
        fetched = [_contents(session.graph, state) for state in states]
    try:
        values = session.run(fetched)
    except tf.errors.OpError as error:
        raise ValueError(str(error).partition("\n")[2] or str(error)) from error
    return [_occupied(*value) if len(value) > 2 else value for value in values]


def _contents(graph: Any, state: Any) -> list[Any]:
    """Return the tensors of a variable's value, or of a table's keys and values; then the two keys of free places."""
    import tensorflow as tf

    tensor = graph.get_tensor_by_name(f"{state.name}:0")
    if state.op == "VarHandleOp":
        return [tf.raw_ops.ReadVariableOp(resource=tensor, dtype=tf.as_dtype(state.attr["dtype"].type))]
    if not MUTABLE_TABLE.match(state.op):
        return [tensor]
    keys, values = (tf.as_dtype(state.attr[name].type) for name in ("key_dtype", "value_dtype"))
    exported = tf.raw_ops.LookupTableExportV2(table_handle=tensor, Tkeys=keys, Tvalues=values)
    free = [graph.get_tensor_by_name(name if ":" in name else f"{name}:0") for name in state.input if name[0] != "^"]
    if not free:
        return list(exported)
    sizes = tf.TensorShape(state.attr["value_shape"].shape).as_list()
    return [tf.reshape(exported.keys, [-1, *free[0].shape]), tf.reshape(exported.values, [-1, *sizes]), *free]


def _occupied(keys: Any, values: Any, *free: Any) -> list[Any]:
    """Return the keys and values of a dense table without its free places."""
    axes = tuple(range(1, keys.ndim))
    rows = np.all([(keys != key).any(axes) for key in free], 0)
    return [keys[rows], values[rows]]


def _writing_functions(graph_def: Any) -> set[str]:
    bodies = {function.signature.name: function.node_def for function in graph_def.library.function}
    writing = {name for name, body in bodies.items() if any(WRITES.search(node.op) for node in body)}
    while more := {name for name, body in bodies.items() if functions_called(body) & writing} - writing:
        writing |= more
    return writing
