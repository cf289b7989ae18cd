"""State that a model changes while it serves: variables that it writes, mutable tables, generators of random numbers.

A frozen model keeps such variables and tables. Its initialization op gives them the values that the saved model has.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt.artifacts.saved_model_proto import functions_called
from tfopt.graph.graph_def import NodeDef, node_of, nodes
from tfopt.graph.op_registry import definition

WRITES = re.compile(
    r"Assign|CountUpTo|^(Sparse)?Apply|^Resource(Scatter|(Sparse)?Apply|Strided|CountUpTo)|^Rng"
    r"|^Stateful(Uniform|StandardNormal|TruncatedNormal|RandomBinomial)|^Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)$"
)
VARIABLE = re.compile(r"^(Variable|VariableV2|VarHandleOp)$")
MUTABLE_TABLE = re.compile(r"^Mutable(Dense)?HashTable\w*$")
HANDLE_OPS = re.compile(r"^(Ref)?(Identity|IdentityN|Enter|Switch|Merge|Exit|NextIteration)$")
RANDOM = re.compile(r"Random|Multinomial|ParameterizedTruncatedNormal|CandidateSampler|^Stateful(?!PartitionedCall)")
INITIALIZER = "state_initializer"


def changes_state(graph_def: Any) -> bool:
    """Return whether a call of a graph may change what the next call returns, or returns random numbers."""
    return any(
        WRITES.search(node.op)
        or MUTABLE_TABLE.match(node.op)
        or (RANDOM.search(node.op) and definition(node.op) is not None and definition(node.op).is_stateful)
        for node in nodes(graph_def)
    )


def state_nodes(graph_def: Any) -> list[Any]:
    """Return the NodeDefs of mutable tables, and of variables that the graph or one of its functions writes."""
    by_name = {node.name: node for node in graph_def.node}
    writing = _writing_functions(graph_def)
    ahead = [node for node in graph_def.node if WRITES.search(node.op) or functions_called([node]) & writing]
    reached: dict[str, NodeDef] = {}
    while ahead:
        for text in ahead.pop().input:
            node = by_name[node_of(text)]
            if not text.startswith("^") and node.name not in reached:
                reached[node.name] = node
                if HANDLE_OPS.match(node.op):
                    ahead.append(node)
    written = [node for node in reached.values() if VARIABLE.match(node.op)]
    tables = [node for node in graph_def.node if MUTABLE_TABLE.match(node.op)]
    return sorted([*written, *tables], key=lambda node: str(node.name))


def users_of(graph_def: Any, states: list[Any]) -> Iterator[str]:
    """Yield the names of states, of what passes their handles on, and of the operations that take a handle."""
    names = {node.name for node in states}
    passing = set(names)
    yield from names
    for _ in graph_def.node:  # nodes are in any order
        more = {
            node.name
            for node in graph_def.node
            if HANDLE_OPS.match(node.op) and node.name not in passing and _takes(node, passing)
        }
        if not more:
            break
        passing |= more
    for node in graph_def.node:
        if _takes(node, passing):
            yield node.name


def add_initializer(graph_def: Any, states: list[Any], values: list[Any], after: str | None) -> str:
    """Add an operation that gives states their values, after another initialization op, and return its name.

    Args:
        graph_def: The graph, changed in place.
        states: NodeDefs from `state_nodes`.
        values: For each an array, or the keys and values of a table; see `read_values`.
        after: The name of the other initialization op; None if there is none.
    """
    import tensorflow as tf

    made = []
    for state, value in zip(states, values, strict=True):
        constants = []
        for number, array in enumerate(value):
            name = f"{INITIALIZER}/{state.name}/value_{number}"
            proto = tf.make_tensor_proto(array)
            constant = graph_def.node.add(name=name, op="Const", input=[f"^{after}"] if after else [])
            constant.attr["dtype"].type = proto.dtype
            constant.attr["value"].tensor.CopyFrom(proto)
            constants.append(constant)
        node = graph_def.node.add(
            name=f"{INITIALIZER}/{state.name}", input=[state.name, *(constant.name for constant in constants)]
        )
        types = [constant.attr["dtype"].type for constant in constants]
        node.op = "Assign"
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


def _takes(node: Any, names: set[str]) -> bool:
    return any(text.partition(":")[0] in names for text in node.input)


def _writing_functions(graph_def: Any) -> set[str]:
    """Return the names of the functions that write variables, themselves or in functions that they call."""
    bodies = {function.signature.name: function.node_def for function in graph_def.library.function}
    writing = {name for name, body in bodies.items() if any(WRITES.search(node.op) for node in body)}
    while more := {name for name, body in bodies.items() if functions_called(body) & writing} - writing:
        writing |= more
    return writing
