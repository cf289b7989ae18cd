"""Freezing: calls inlined, variables turned into constants, and what cannot be frozen refused."""

import re
from dataclasses import replace
from typing import Any

from tfopt.errors import ComponentError, first_line
from tfopt.graph import grappler
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature, nodes, prune_functions
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report
from tfopt.graph.rewrites import freeze_learning_phase

LOWERING = "_lower_using_switch_merge"  # set on If and While: TensorFlow may turn them into Switch and Merge
# A gradient that no other process knows; a variable's place; shapes from before While took constants for variables.
STRIPPED = ("_gradient_op_type", "_class", "_output_shapes")
WRITES = re.compile(
    r"Assign|CountUpTo|^(Sparse)?Apply|^Resource(Scatter|(Sparse)?Apply|Strided)"
    r"|^Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)$"
)
# Filled by a checkpoint or by code, not by the graph.
OUTSIDE = re.compile(r"Mutable\w*Hash|Iterator|BoostedTrees\w*Ensemble|Queue|Barrier|^(Eager)?PyFunc")
VARIABLE = re.compile(r"^(Variable|VariableV2|VarHandleOp|ReadVariableOp|ResourceGather(Nd)?)$")


def freeze(frozen: Frozen, session: Any) -> Frozen:
    """Return the model with constants for variables, calls inlined, and an Identity of its own for each output.

    Args:
        frozen: A model whose graph may have variables and calls. The graph is changed in place.
        session: A ``tf.compat.v1.Session`` in which that graph is loaded and restored; None when it has no variables.

    Raises:
        ComponentError: When something in the graph holds or changes state that constants cannot.
    """
    import tensorflow as tf

    extract = tf.compat.v1.graph_util.extract_sub_graph
    if frozen.initializer and all(node.op == "NoOp" for node in extract(frozen.graph, [frozen.initializer]).node):
        frozen.initializer = None
    _open_assets(frozen)
    keep = sorted(frozen.protected)
    frozen.graph = extract(frozen.graph, keep)
    prune_functions(frozen.graph)
    _refuse(frozen.graph, WRITES, "changes its variables while it serves", "a model that only reads them")
    _refuse(frozen.graph, OUTSIDE, "keeps state outside its graph", "a model of variables, static tables and assets")
    lowered = _set_lowering(frozen.graph, to=False)  # else inlining would turn While into Switch and Merge
    frozen = grappler.run(frozen, ["function"])
    if session is not None:
        frozen.graph = _constants(frozen.graph, session, keep)
    _leave_training(frozen)
    _refuse(frozen.graph, VARIABLE, "has a variable that could not be frozen", "variables read by ReadVariableOp")
    if lowered:
        _set_lowering(frozen.graph, to=True)
    for node in nodes(frozen.graph):
        for attribute in STRIPPED:
            node.attr.pop(attribute, None)
    return _name_outputs(frozen)


def _leave_training(frozen: Frozen) -> None:
    """Set to inference what nobody feeds; until then such a graph cannot be run, nor compared with anything."""
    ends = {end.node for signature in frozen.signatures.values() for end in signature.inputs.values()}
    graph = Graph.of(frozen.graph, fed=ends)
    if freeze_learning_phase.run(graph, Report()):
        frozen.graph = graph.to_graph_def()


def _open_assets(frozen: Frozen) -> None:
    """Make each file's name a Placeholder, which loaders feed, and which no constant folding swallows.

    TensorFlow 1 keeps it in a constant, TensorFlow 2 in a variable that the initialization op assigns.
    """
    import tensorflow as tf

    files = {tensor.rpartition(":")[0] for tensor in frozen.assets}
    assigns = [node for node in frozen.graph.node if node.op == "AssignVariableOp" and node.input[1] in files]
    holds = {node.input[0]: node.input[1] for node in assigns}
    for node in frozen.graph.node:
        if node.op == "AssignVariableOp" and node.input[0] in holds:
            node.CopyFrom(tf.compat.v1.NodeDef(name=node.name, op="NoOp"))
        elif node.op == "ReadVariableOp" and node.input[0] in holds:
            node.op = "Identity"
            node.input[0] = holds[node.input[0]]
            del node.attr["dtype"]
            node.attr["T"].type = tf.string.as_datatype_enum
        elif node.op == "Const" and node.name in files:
            node.op = "Placeholder"
            del node.attr["value"]
            node.attr["shape"].shape.SetInParent()


def _refuse(graph: Any, ops: re.Pattern[str], what: str, expected: str) -> None:
    found = sorted({f"{node.name} ({node.op})" for node in nodes(graph) if ops.search(node.op)})
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise ComponentError(
            f"a model that {what}: {', '.join(found[:3])}{more}", expected, "export it for serving without that"
        )


def _set_lowering(graph: Any, *, to: bool) -> bool:
    """Allow or forbid the lowering of functional control flow; return whether any was allowed."""
    marked = [node for node in nodes(graph) if LOWERING in node.attr]
    before = any(node.attr[LOWERING].b for node in marked)
    for node in marked:
        node.attr[LOWERING].b = to
    return before


def _constants(graph: Any, session: Any, keep: list[str]) -> Any:
    import tensorflow as tf

    for node in graph.node:  # a variable without a read of its own gets one, where TensorFlow looks for it
        if node.op == "VarHandleOp":
            _ensure_read(session.graph, node)
    try:
        frozen = tf.compat.v1.graph_util.convert_variables_to_constants(session, graph, keep)
    except Exception as error:
        raise ComponentError(
            f"freezing: {first_line(error)}", "variables that can be read", "export the model for serving again"
        ) from error
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
    """Give each output an Identity of its own, so that whatever makes it can be rewritten."""
    makers = {node.name: node for node in frozen.graph.node}
    taken = set(makers)
    signatures = {}
    for key, signature in frozen.signatures.items():
        outputs = {}
        for name, end in signature.outputs.items():
            node = frozen.graph.node.add(op="Identity", name=_new_name(f"{key}_{name}", taken))
            node.input.append(_source(end, makers))
            node.attr["T"].type = _dtype(end)
            outputs[name] = replace(end, tensor=f"{node.name}:0")
        signatures[key] = Signature(signature.inputs, outputs, signature.method)
    named = replace(frozen, signatures=signatures)
    import tensorflow as tf

    graph = tf.compat.v1.graph_util.extract_sub_graph(named.graph, sorted(named.protected))
    return replace(named, graph=graph)


def _source(end: Endpoint, makers: dict[str, Any]) -> str:
    """The tensor behind the IdentityN that inlining leaves of a call, unless that also waits for something."""
    name, _, index = end.tensor.rpartition(":")
    node = makers[name]
    if node.op in ("Identity", "IdentityN") and not any(given.startswith("^") for given in node.input):
        tensor = node.input[int(index)]
        return _source(replace(end, tensor=tensor if ":" in tensor else f"{tensor}:0"), makers)
    return name if index == "0" else end.tensor


def _new_name(wanted: str, taken: set[str]) -> str:
    base = re.sub(r"[^A-Za-z0-9_.]", "_", wanted).lstrip("_.") or "output"
    name = next(one for one in (base, *(f"{base}_{number}" for number in range(1, len(taken) + 2))) if one not in taken)
    taken.add(name)
    return name


def _dtype(end: Endpoint) -> int:
    import tensorflow as tf

    return int(tf.as_dtype(end.dtype).as_datatype_enum)
