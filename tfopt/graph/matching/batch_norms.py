"""Find the batch norms of a graph in all forms that exporters write."""

import re

from tfopt.graph.law import Graph, Tensor, const, matches, op
from tfopt.graph.matching.affine_ops import FUSED, GLOBAL
from tfopt.graph.matching.layout_ops import KEEPING
from tfopt.graph.report import Report

CALL_SCOPES = re.compile(r"\b(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
DECOMPOSED = op(("Add", "AddV2", "Sub"), op("Mul", "x", const("scale"), role="product"), const("bias"))


def batch_norms(graph: Graph) -> dict[str, str]:
    """Return the first node of each batch norm, by the name of its last node.

    A product and a sum with constants per channel count as a batch norm, because Keras 3 exports it so, but not the
    product and sum at the end of a layer normalization.
    """
    starts = {}
    for name, node in graph.nodes.items():
        if node.op in (*FUSED, GLOBAL):
            starts[name] = name
        for match in matches(graph, node, (DECOMPOSED,)):
            is_per_channel = all(match.array(role).size > 1 for role in ("scale", "bias"))
            if is_per_channel and not _is_layer_norm(graph, match.tensor("x")):
                starts[name] = match.node("product").name
    return starts


def _is_layer_norm(graph: Graph, tensor: Tensor) -> bool:
    """Return whether a tensor is normalized by a deviation that the graph computes."""
    node = graph.nodes[tensor.node]
    return node.op == "Mul" and any(graph.nodes[factor.node].op == "Rsqrt" for factor in node.inputs)


def layer_before(graph: Graph, name: str) -> str:
    """Return the layer that a batch norm was folded into, given the batch norm's last node, which has its result."""
    node = graph.nodes.get(name)
    while node is not None and node.op in ("BiasAdd", *KEEPING):
        node = graph.nodes[node.inputs[0].node]
    return "an operation before it" if node is None else node.name


def why_left(graph: Graph, start: str, report: Report) -> str:
    """Return why a batch norm remains, given its first node."""
    for law in ("fold_batch_norm", "fold_scale", "fold_scale_before", "push_before_view"):
        if start in report.refused[law]:
            return report.refused[law][start]
    node = graph.nodes[start]
    source = next(graph.nodes[tensor.node] for tensor in node.inputs if not graph.is_constant(tensor))
    return f"it follows {source.op} {source.name!r}, which has no kernel to fold it into"


def without_scopes(text: str) -> str:
    """Remove the scopes of function calls around the model from the names of nodes in a text.

    >>> without_scopes("follows 'StatefulPartitionedCall_1/PartitionedCall/model/relu'")
    "follows 'model/relu'"
    """
    return CALL_SCOPES.sub("", text)
