"""Freeze a graph: inline calls, turn variables into constants, and refuse state that constants cannot represent."""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph import grappler
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.law_runner import run_law
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.op_registry import definition
from tfopt.graph.report import Report
from tfopt.graph_def import (
    STRING,
    GraphDef,
    NodeDef,
    data_type,
    node_of,
    nodes,
    prune_functions,
    subgraph,
    unused_name,
)
from tfopt.saved_models.marked_functions import functions_to_inline, unmark
from tfopt.saved_models.state import (
    MUTABLE_TABLE,
    VARIABLE,
    WITHOUT,
    WITHOUT_STATE,
    WRITES,
    add_initializer,
    read_values,
    state_nodes,
    users_of,
)

LOWERING = "_lower_using_switch_merge"  # set on If and While: TensorFlow may turn them into Switch and Merge
# Names of Python gradients are unknown in other processes. _class may point to a removed variable. The shapes were
# inferred before loops took constants instead of variables.
STRIPPED = ("_gradient_op_type", "_class", "_output_shapes")
# State that comes from a checkpoint or from code, not from the graph.
OUTSIDE = re.compile(r"Iterator|BoostedTrees\w*Ensemble|Queue|Barrier")
PYTHON = re.compile(r"^(Eager)?PyFunc")
READS = re.compile(r"^(ReadVariableOp|ResourceGather(Nd)?)$")
TABLES = ("HashTableV2", "MutableHashTableV2", "MutableHashTableOfTensorsV2")


class CannotFreezeError(ComponentError):
    """A model that can be loaded, and so is whole, has something that a frozen graph cannot represent."""


def freeze(frozen: Frozen, session: Any, *, state: bool = False, python: bool = False) -> Frozen:
    """Return the model with constants instead of variables, inlined calls, and a separate Identity for each output.

    Args:
        frozen: A model whose graph may have variables and calls. The graph is changed in place.
        session: A ``tf.compat.v1.Session`` in which that graph is loaded and restored; None when it has no variables.
        state: Allow variables that the model writes, and mutable tables, which the initialization op then sets.
        python: Allow calls of Python code, for a graph that is not run.

    Raises:
        CannotFreezeError: If an operation has or changes state that constants cannot represent.
    """
    if frozen.initializer and all(node.op == "NoOp" for node in subgraph(frozen.graph, [frozen.initializer]).node):
        frozen.initializer = None
    _open_assets(frozen)
    keep = sorted(frozen.protected)
    frozen.graph = subgraph(frozen.graph, keep)
    state = state and session is not None
    if not state:
        _refuse(frozen.graph, WRITES, "changes its variables while it serves", "a model that only reads them")
        _refuse(frozen.graph, MUTABLE_TABLE, "keeps state outside its graph", "a model of variables and static tables")
    _refuse(frozen.graph, OUTSIDE, "keeps state outside its graph", "a model of variables, static tables and assets")
    if not python:
        _refuse(frozen.graph, PYTHON, "calls Python code, which is not in the file", "a model of TensorFlow operations")
    lowered = _set_lowering(frozen.graph, to=False)  # otherwise inlining would turn While into Switch and Merge
    _return_effects(frozen.graph)
    unmark(frozen.graph, functions_to_inline(frozen.graph))
    try:
        frozen = grappler.run(frozen, ["function"])
    except ComponentError:  # Grappler does not read graphs with some dtypes of 8 bits
        if frozen.graph.library.function:
            raise
    _inline_tables(frozen.graph)
    states = state_nodes(frozen.graph) if state else []
    names = [node.name for node in states]
    if session is not None:
        frozen.graph = _constants(frozen.graph, session, keep, names)
    graph = Graph.of(frozen.graph, fed=frozen.inputs)
    if run_law("freeze_learning_phase", graph, Report()):  # without a value the graph cannot be run
        frozen.graph = graph.to_graph_def()
    for ops in (VARIABLE,) if states else (VARIABLE, READS):
        problem = "has a variable that could not be frozen"
        _refuse(frozen.graph, ops, problem, "variables read by ReadVariableOp", but=names)
    _keep_state(frozen, states, session)
    if lowered:
        _set_lowering(frozen.graph, to=True)
    for node in nodes(frozen.graph):
        for attribute in STRIPPED:
            node.attr.pop(attribute, None)
    frozen = _name_outputs(frozen)
    frozen.state = users_of(frozen.graph, states)
    return frozen


def _keep_state(frozen: Frozen, states: list[Any], session: Any) -> None:
    """Make the initialization op give states the values that they have in a session."""
    if not states:
        return
    try:
        values = read_values(session, states)
    except (KeyError, ValueError) as error:
        received = f"state that cannot be read: {first_line(error)}"
        raise CannotFreezeError(received, "variables with values", "export the model again") from error
    frozen.initializer = add_initializer(frozen.graph, states, values, frozen.initializer)


def _open_assets(frozen: Frozen) -> None:
    """Replace each asset file name by a Placeholder, which loaders feed and constant folding does not remove.

    TensorFlow 1 stores the file name in a constant, TensorFlow 2 in a variable that the initialization op assigns.
    """
    files = set(map(node_of, frozen.assets))
    assigns = [node for node in frozen.graph.node if node.op == "AssignVariableOp" and node.input[1] in files]
    holds = {node.input[0]: node.input[1] for node in assigns}
    for node in frozen.graph.node:
        if node.op == "AssignVariableOp" and node.input[0] in holds:
            node.CopyFrom(type(node)(name=node.name, op="NoOp"))
        elif node.op == "ReadVariableOp" and node.input[0] in holds:
            node.op = "Identity"
            node.input[0] = holds[node.input[0]]
            del node.attr["dtype"]
            node.attr["T"].type = STRING
        elif node.op == "Const" and node.name in files:
            node.op = "Placeholder"
            del node.attr["value"]
            node.attr["shape"].shape.SetInParent()


def _return_effects(graph: Any) -> None:
    """Make every stateful node of a function one of its control outputs, without which Grappler does not inline calls.

    Functions that ``tf.compat.v1.wrap_function`` made, such as the graph of TensorFlow Transform, lack them.
    """
    for function in graph.library.function:
        returned = set(function.control_ret.values())
        for node in function.node_def:
            op_def = definition(node.op)
            is_stateful = op_def is not None and op_def.is_stateful
            if (is_stateful or node.op.startswith("LookupTable")) and node.name not in returned:
                function.control_ret[node.name] = node.name
                function.signature.control_output.append(node.name)


def _inline_tables(graph: Any) -> None:
    """Replace each call of a function that only creates a lookup table by the table; Grappler does not inline it."""
    tables = {}
    for function in graph.library.function:
        others = [node for node in function.node_def if node.op not in ("Identity", "NoOp")]
        if not function.signature.input_arg and len(others) == 1 and others[0].op in TABLES:
            tables[function.signature.name] = others[0]
    for node in graph.node:
        if "f" in node.attr and node.attr["f"].func.name in tables:
            name, controls = node.name, list(node.input)
            node.CopyFrom(tables[node.attr["f"].func.name])
            node.name, node.input[:] = name, controls


def _refuse(graph: GraphDef, ops: re.Pattern[str], problem: str, expected: str, but: Collection[str] = ()) -> None:
    matching = (node for node in nodes(graph) if ops.search(node.op) and node.name not in but)
    refused = sorted({f"{node.name} ({node.op})" for node in matching})
    if refused:
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        fix = WITHOUT_STATE if ops in (WRITES, MUTABLE_TABLE) else f"export it for serving {WITHOUT}"
        raise CannotFreezeError(f"a model that {problem}: {', '.join(refused[:3])}{more}", expected, fix)


def _set_lowering(graph: Any, *, to: bool) -> bool:
    """Allow or forbid the lowering of functional control flow; return whether any was allowed."""
    marked = [node for node in nodes(graph) if LOWERING in node.attr]
    before = any(node.attr[LOWERING].b for node in marked)
    for node in marked:
        node.attr[LOWERING].b = to
    return before


def _constants(graph: Any, session: Any, keep: list[str], states: list[str]) -> Any:
    import tensorflow as tf

    for node in graph.node:  # TensorFlow freezes only variables with a ReadVariableOp of this name
        if node.op == "VarHandleOp":
            _ensure_read(session.graph, node)
    try:
        convert = tf.compat.v1.graph_util.convert_variables_to_constants
        frozen = convert(session, graph, keep, variable_names_blacklist=states)
    except Exception as error:
        received = f"freezing: {first_line(error)}"
        raise CannotFreezeError(received, "variables that can be read", "export the model for serving again") from error
    prune_functions(frozen)
    return frozen


def _ensure_read(graph: Any, variable: Any) -> None:
    import tensorflow as tf

    name = f"{variable.name}/Read/ReadVariableOp"
    try:
        graph.get_operation_by_name(name)
    except KeyError:
        with graph.as_default():
            handle = graph.get_tensor_by_name(f"{variable.name}:0")
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(variable.attr["dtype"].type), name=name)


def _name_outputs(frozen: Frozen) -> Frozen:
    """Add an Identity for each output, so that the node before it can be rewritten."""
    producers = {node.name: node for node in frozen.graph.node}
    used_names = set(producers)
    signatures = {}
    for key, signature in frozen.signatures.items():
        outputs = {}
        for name, end in signature.outputs.items():
            base = re.sub(r"[^A-Za-z0-9_.]", "_", f"{key}_{name}").lstrip("_.") or "output"
            node = frozen.graph.node.add(op="Identity", name=unused_name(base, used_names))
            used_names.add(node.name)
            node.input.append(_source(end, producers))
            node.attr["T"].type = data_type(end.dtype)
            outputs[name] = replace(end, tensor=f"{node.name}:0")
        signatures[key] = Signature(signature.inputs, outputs, signature.method)
    named = replace(frozen, signatures=signatures)
    return replace(named, graph=subgraph(named.graph, named.protected))


def _source(end: Endpoint, producers: dict[str, NodeDef]) -> str:
    """Return the source of the IdentityN that inlining leaves of a call, unless it has control inputs."""
    name, _, index = end.tensor.rpartition(":")
    node = producers[name]
    if node.op in ("Identity", "IdentityN") and not any(name.startswith("^") for name in node.input):
        tensor = node.input[int(index)]
        return _source(replace(end, tensor=tensor if ":" in tensor else f"{tensor}:0"), producers)
    return name if index == "0" else end.tensor
