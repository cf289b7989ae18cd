"""Rewrite a graph with some nodes in 16 bits: change their dtypes, insert casts, convert their constants."""

from dataclasses import replace

from tfopt.graph.frozen_model import Frozen
from tfopt.graph.graph_def import FLOAT, data_type, subgraph
from tfopt.graph.law import Maker
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attributes, definition, output_types, types_of


def changed_attributes(node: Node, precision: str) -> list[str]:
    """Return the type attributes of a node that are float32 and allow this precision."""
    dtype = data_type(precision)
    op_def = definition(node.op)
    return [
        entry.name
        for entry in (op_def.attr if op_def else ())
        if entry.type == "type"
        and entry.name in node.attr
        and node.attr[entry.name].type == FLOAT
        and (not entry.HasField("allowed_values") or dtype in entry.allowed_values.list.type)
    ]


def rewritten(frozen: Frozen, nodes: set[str], precision: str) -> Frozen:
    """Return the model with these nodes in this precision; all other nodes read and return the same dtypes."""
    graph, half = Graph.of(frozen.graph), data_type(precision)
    for node in [node for node in graph.nodes.values() if node.name in nodes]:
        changed = dict.fromkeys(changed_attributes(node, precision), half)
        graph.replace(node, attr=attributes(node.op, node.attr, changed))
    cast: dict[tuple[Tensor, int], Tensor] = {}  # a tensor is cast once for all its readers
    for node in list(graph.nodes.values()):
        types = [kind for argument in definition(node.op).input_arg for kind in types_of(argument, node)]
        sources = list(zip(node.inputs, types, strict=True))
        cast |= {source: _as_type(graph, *source, precision) for source in sources if source not in cast}
        if (inputs := [cast[source] for source in sources]) != node.inputs:
            graph.replace(node, inputs=inputs)
    return replace(frozen, graph=subgraph(graph.to_graph_def(), frozen.protected))


def _as_type(graph: Graph, tensor: Tensor, kind: int, precision: str) -> Tensor:
    """Return a tensor in float32 or 16 bits; a cast is added if its dtype differs."""
    from tensorflow import as_dtype

    source = graph.nodes[tensor.node]
    own = output_types(source)[tensor.output]
    if own == kind:
        return tensor
    if graph.is_constant(tensor):  # stored in 16 bits, instead of cast at each call
        values = graph.array(tensor).astype(as_dtype(kind).as_numpy_dtype)
        return Maker(graph, source, source.controls).constant(precision, values)
    name = graph.fresh(f"{source.name}/{as_dtype(kind).name}")
    graph.insert(Node(name, "Cast", [tensor], [], attributes("Cast", {}, {"SrcT": own, "DstT": kind})))
    return Tensor(name)
