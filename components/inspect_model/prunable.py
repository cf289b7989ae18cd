"""Count the work of layers that have channels to remove: those whose channels end in the kernel of another layer."""

from collections import Counter
from collections.abc import Iterable

from tfopt.components.inspect_model.called_graphs import CALLS
from tfopt.graph.mutable_graph import Graph, Node
from tfopt.reports.inspection_report import NodeCost

# operations whose kernels have channels that can be removed
CHANNEL_OPS = {"Conv2D", "Conv3D", "MatMul", "DepthwiseConv2dNative", "BatchMatMulV2", "Einsum"}
ENDS = {*CALLS, "TensorListFromTensor", "Shape"}  # channels are not followed into these


def count_prunable(graph: Graph, costs: Iterable[NodeCost]) -> int:
    """Return the floating-point operations of kernels whose channels end in another kernel, or come from one.

    A kernel that several nodes read is left out: its layer is called several times, as those of unrolled recurrent
    layers. So is what functions and loops contain.
    """
    kernels = {node.name: kernel for node in graph.of_op(*CHANNEL_OPS) if (kernel := _kernel(graph, node))}
    readers = Counter(kernels.values())
    single = {name for name, kernel in kernels.items() if readers[kernel] == 1}
    sources: dict[str, frozenset[str]] = {}  # the nearest kernels from which a tensor has its channels
    prunable: set[str] = set()
    for name in graph.downstream():
        node = graph.nodes[name]
        near = frozenset().union(*(sources.get(tensor.node, ()) for tensor in node.inputs))
        if name in single and near:
            prunable |= {name, *near}
        sources[name] = frozenset([name]) if name in single else frozenset() if _ends(node) else near
    return sum(cost.flops or 0 for cost in costs if cost.node in prunable)


def _ends(node: Node) -> bool:
    return node.op in CHANNEL_OPS or node.op in ENDS


def _kernel(graph: Graph, node: Node) -> str | None:
    """Return the name of the constant that is the kernel of a node; None if it has none."""
    constants = [tensor.node for tensor in node.inputs if graph.is_constant(tensor)]
    return constants[0] if constants else None
