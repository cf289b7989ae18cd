"""The batch norms of a graph, in each of the forms they are exported in."""

from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph.pattern import bindings, const, op
from tfopt.graph.report import Report

FUSED = {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "BatchNormWithGlobalNormalization"}
DECOMPOSED = op(("Add", "AddV2", "Sub"), op("Mul", "x", const("scale"), role="product"), const("shift"))


def batch_norms(graph: Graph) -> dict[str, str]:
    """Return the node that ends each batch norm, and the one it starts with.

    A constant product and sum per channel is taken for one: that is what Keras 3 exports, and what a batch norm is.
    """
    found = {}
    for name, node in graph.nodes.items():
        if node.op in FUSED:
            found[name] = name
        for binding in bindings(DECOMPOSED, graph, Tensor(name)):
            constants = [binding.tensors[role] for role in binding.constants]
            if all(graph.is_constant(tensor) and graph.array(tensor).size > 1 for tensor in constants):
                found[name] = binding.nodes["product"].name
    return found


def why_left(graph: Graph, start: str, report: Report) -> str:
    """Why a batch norm is still there, from the node it starts with."""
    for law in ("fold_batch_norm", "fold_scale", "fold_scale_before"):
        if start in report.refused[law]:
            return report.refused[law][start]
    node = graph.nodes[start]
    source = next(graph.nodes[tensor.node] for tensor in node.inputs if not graph.is_constant(tensor))
    return f"it follows {source.op} {source.name!r}, which has no kernel to fold it into"
