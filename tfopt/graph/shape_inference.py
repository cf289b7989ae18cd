"""Infer the static shapes of all tensors of a GraphDef with Grappler."""

from typing import Any

from tfopt.graph_def import node_of, readers, subgraph

Shape = tuple[int | None, ...] | None
MAX_RANK = 6
UNUSUAL = 1_000_003  # a size that no constant has
SMALL = (1, 2, 3, 4)  # sizes that are tried, besides sizes of constants
NEAR = 60  # nodes after a tensor that determine its shape, so that the time does not depend on the size of the graph


def shapes_of(graph_def: Any) -> dict[tuple[str, int], Shape]:
    """Return the shapes of tensors of known rank, by node and output; five times faster than importing the graph."""
    from tensorflow.compat.v1 import MetaGraphDef
    from tensorflow.python.grappler.item import Item

    from tfopt.graph.const_arrays import zero_weights  # imports NumPy, which checks of names of passes do not need

    meta = MetaGraphDef(graph_def=zero_weights(graph_def))
    fetch = meta.graph_def.node.add(name="_fetch", op="NoOp").name  # Grappler needs a fetched node
    meta.collection_def["train_op"].node_list.value.append(fetch)
    for node in meta.graph_def.node:
        if node.op == "Placeholder":  # Grappler ignores the static shape of a Placeholder
            node.op = "ImmutableConst"
            node.attr["memory_region_name"].s = b""
    shapes: dict[tuple[str, int], Shape] = {}
    try:
        properties = Item(meta).GetOpProperties()
    except ValueError:  # TensorFlow 2.21 fails on valid graphs, such as shape(x)[::-1]
        return {}
    for name, outputs in properties.items():
        for index, output in enumerate(outputs):
            if not output.shape.unknown_rank:
                shapes[name, index] = tuple(size.size if size.size >= 0 else None for size in output.shape.dim)
    return shapes


def infer_shape(graph_def: Any, tensor: str) -> Shape:
    """Return the shape that a tensor of unknown rank must have: the ranks and sizes that TensorFlow does not refuse.

    It is None if several ranks are possible, with None for a size that can be any. The graph is cut at the tensor.
    """
    import tensorflow as tf

    graph_def = _following(graph_def, node_of(tensor))
    constants = [node.attr["value"].tensor.tensor_shape.dim for node in graph_def.node if node.op == "Const"]
    sizes = sorted({*SMALL, *(dim.size for shape in constants for dim in shape)})

    def fits(shape: list[int | None]) -> bool:
        with tf.Graph().as_default():
            value = tf.compat.v1.placeholder(tf.as_dtype(dtype), shape)
            try:
                tf.import_graph_def(graph_def, {tensor: value}, name="")
            except ValueError:
                return False
        return True

    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        dtype = graph.get_tensor_by_name(tensor).dtype.base_dtype
    ranks = [rank for rank in range(MAX_RANK + 1) if fits([None] * rank)]
    if len(ranks) != 1:
        return None
    shape: list[int | None] = [None] * ranks[0]
    for axis in range(ranks[0]):
        left, right = shape[:axis], shape[axis + 1 :]
        if not fits([*left, UNUSUAL, *right]):
            possible = [size for size in sizes if fits([*left, size, *right])]
            shape[axis] = possible[0] if len(possible) == 1 else None
    return tuple(shape)


def _following(graph_def: Any, name: str) -> Any:
    """Return the GraphDef of the nearest nodes that are computed from a node, and of what they need."""
    reading = readers(graph_def)
    near = {name: None}
    ahead = [name]
    while ahead and len(near) < NEAR:
        new = [reader for source in ahead for reader in reading.get(source, ()) if reader not in near]
        near |= dict.fromkeys(new)
        ahead = new
    return subgraph(graph_def, [*near][:NEAR])
