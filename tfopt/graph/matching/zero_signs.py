"""Find out if the sign of a zero can change the value of an output.

0 and -0 are equal, but 1 / 0 and 1 / -0 are not. x + 0 turns -0 into 0, and 0 - x turns 0 into 0 where -x is -0. Laws
about them therefore depend on the operations that read the result.
"""

import numpy as np

from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import is_pure
from tfopt.graph_def import GraphDef, reach

DIVISIONS = ("RealDiv", "Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod", "Xdivy")
INVERSES = ("Reciprocal", "Inv", "Rsqrt", "Atan2", "Bitcast", "Digamma", "NextAfter", "Angle", "AsString", "Complex")
WRITERS = ("SparseFillEmptyRows", "StringFormat", "SerializeTensor", "DecodeRaw")
# By operation, the inputs whose zeros have a sign that matters; None for all.
SENSITIVE: dict[str, tuple[int, ...] | None] = {"Pow": (0,)}
SENSITIVE |= dict.fromkeys(DIVISIONS, (1,)) | dict.fromkeys((*INVERSES, *WRITERS))
# 0 and -0 have the same result, up to the sign of a zero that is an output.
ABSORBING = {"Abs", "ArgMax", "ArgMin", "Cos", "Cosh", "Equal", "Exp", "Greater", "GreaterEqual", "IsFinite", "IsInf"}
ABSORBING |= {"IsNan", "Less", "LessEqual", "LogSoftmax", "NotEqual", "OnesLike", "Rank", "Shape", "Sigmoid", "Size"}
ABSORBING |= {"Softmax", "Softplus", "Square", "SquaredDifference", "ZerosLike"}
SUMS = {"Add", "AddV2", "Sub"}
SOURCES = {"Placeholder", "PlaceholderWithDefault", "Const"}


def sign_of_zero_matters(graph: Graph, name: str, *, in_other_graphs: bool = True) -> bool:
    """Return True unless the sign of zeros in the output of a node changes no output but for the sign of its zeros.

    Args:
        graph: The graph; after the first call, only the operations of that time are known until the next law runs.
        name: The node.
        in_other_graphs: Expect functions that read the value to depend on the sign.
    """
    if graph.fast_math:
        return False
    if in_other_graphs not in graph.zero_signs:
        graph.zero_signs[in_other_graphs] = _dependent(graph, in_other_graphs=in_other_graphs)
    return name in graph.zero_signs[in_other_graphs]


def signed_sums(graph_def: GraphDef) -> set[str]:
    """Return the nodes that add a constant 0, or subtract from it, if the sign of a zero matters to their result."""
    if not {node.op for node in graph_def.node} & set(SENSITIVE):
        return set()
    graph = Graph.of(graph_def)
    sums = [node.name for node in graph.of_op(*SUMS) if any(_is_zero(graph, tensor) for tensor in node.inputs)]
    return {name for name in sums if sign_of_zero_matters(graph, name)}


def _is_zero(graph: Graph, tensor: Tensor) -> bool:
    return graph.is_constant(tensor) and not np.any(graph.array(tensor) != 0)


def _dependent(graph: Graph, *, in_other_graphs: bool) -> set[str]:
    """Return the nodes whose zeros have a sign that an operation depends on."""
    ahead = list(graph.fetched) if in_other_graphs and graph.is_body else []
    for node in graph.of_op(*SENSITIVE):
        places = SENSITIVE[node.op]
        ahead += [tensor.node for place, tensor in enumerate(node.inputs) if places is None or place in places]
    if in_other_graphs:
        calls = (node for node in graph.nodes.values() if not is_pure(node) and node.op not in SOURCES)
        ahead += [tensor.node for node in calls for tensor in node.inputs]

    def before(name: str) -> list[str]:
        node = graph.nodes[name]
        is_end = node.op in ABSORBING or _adds_nonzero(graph, node)
        return [] if is_end else [tensor.node for tensor in node.inputs]

    return reach([name for name in ahead if name in graph.nodes], before)


def _adds_nonzero(graph: Graph, node: Node) -> bool:
    constants = [graph.array(tensor) for tensor in node.inputs if graph.is_constant(tensor)] if node.op in SUMS else []
    return any(bool(np.all(array != 0)) for array in constants)
