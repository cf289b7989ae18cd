"""Replace the sign bits of zeros, which ``keras.ops.argmax`` and ``argmin`` of Keras 3 read, by a comparison.

They replace negative zeros before they look for a value, where x = 0 and bits(x) & 0x80000000 < 0. Neither LiteRT nor
ONNX has the bits of a float. At x = 0, the sign is also that of 1 / x, which is infinite.
"""

from typing import Any

from tfopt.graph_def import FLOAT, GraphDef, NodeDef, node_of, nodes, without_nodes

SIGN = -(2**31)


def has_sign_bits(graph: GraphDef) -> bool:
    """Return True if a graph reads the bits of numbers."""
    return any(node.op == "Bitcast" for node in nodes(graph))


def replace_sign_bits(graph: GraphDef) -> GraphDef:
    """Return a graph of nodes without the sign bits of zeros; other uses of bits stay."""
    rewritten = without_nodes(graph)
    rewritten.node.extend(graph.node)
    by_name = {node.name: node for node in rewritten.node}
    for node in rewritten.node:
        if node.op == "LogicalAnd":
            for zero, sign in (node.input[:2], node.input[1::-1]):
                _replace(by_name, by_name[node_of(zero)], by_name[node_of(sign)])
    read = {node_of(source) for node in rewritten.node for source in node.input}
    unread = [node for node in rewritten.node if node.op == "Bitcast" and node.name not in read]
    for node in unread:
        rewritten.node.remove(node)
    return rewritten


def _replace(by_name: dict[str, NodeDef], equal: NodeDef, less: NodeDef) -> None:
    """Let ``less`` compare 1 / x with zero if it compares the sign bit of what ``equal`` compares with zero."""
    if equal.op != "Equal" or less.op != "Less":
        return
    bits = by_name[node_of(less.input[0])]
    cast = by_name[node_of(bits.input[0])] if bits.op == "BitwiseAnd" else bits
    if cast.op != "Bitcast" or cast.input[0] != equal.input[0] or cast.attr["T"].type != FLOAT:
        return
    mask, limit, zero = (by_name[node_of(source)] for source in (bits.input[1], less.input[1], equal.input[1]))
    if [_number(constant) for constant in (mask, limit, zero)] != [SIGN, 0, 0]:
        return
    bits.op = "Reciprocal"
    bits.input[:] = [cast.input[0]]
    less.input[1] = equal.input[1]
    for node in (bits, less):
        node.attr["T"].type = FLOAT


def _number(node: NodeDef) -> Any:
    """Return the number of a constant, or None."""
    import tensorflow as tf

    array = tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" else None
    return array.item() if array is not None and array.size == 1 else None
