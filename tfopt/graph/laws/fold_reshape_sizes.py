"""Replace the shape that a Reshape computes from other shapes by a constant with one open size.

    Reshape(x, [shape(x)[0] shape(x)[1], 256]) = Reshape(x, [-1, 256])

    before    x [n, 64, 256] -> Shape -> GatherV2, Prod, Pack -> Reshape -> MatMul -> y
    after     x -> Reshape(-1, 256) -> MatMul -> y

Keras writes a dense layer on sequences in this way, with some ten operations on shapes. Other laws then know the shape
of the result.

Requires: one size at most depends on the input, and no other is 0; the sizes are known to hold all elements of x
(`symbolic_shapes`), so that the Reshape cannot fail, before and after.
"""

from collections.abc import Iterator

import numpy as np

from tfopt.graph.law import Graph, Maker, Node, Outcome, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.matching.symbolic_shapes import SymbolicShapes, product


def run(graph: Graph) -> Iterator[Outcome]:
    computed = [node for node in graph.of_op("Reshape") if not graph.is_constant(node.inputs[1])]
    if not computed or is_framed(graph):
        return
    shapes = SymbolicShapes(graph)
    for node in computed:
        sizes = _sizes(shapes, node)
        if isinstance(sizes, str):
            yield node.name, sizes
        else:
            _replace(graph, node, sizes)
            yield node.name, None


def _sizes(shapes: SymbolicShapes, node: Node) -> list[int] | str:
    sizes, elements = shapes.sizes_in(node.inputs[1]), shapes.elements(node.inputs[0])
    if sizes is None:
        return "the shape is not computed from shapes"
    if sum(bool(size.open) or size.factor < 0 for size in sizes) > 1:
        return "several sizes are open"
    if any(size.factor == 0 for size in sizes):
        return "a size is 0"
    if elements is None or (product(sizes) != elements and all(size.factor > 0 for size in sizes)):
        return "the sizes are not known to hold all elements"
    return [-1 if size.open else size.factor for size in sizes]


def _replace(graph: Graph, node: Node, sizes: list[int]) -> None:
    from tensorflow import as_dtype

    kind = as_dtype(attr(node, "Tshape")).as_numpy_dtype
    shape = Maker(graph, node, []).constant("sizes", np.asarray(sizes, kind))
    graph.replace(node, inputs=[node.inputs[0], shape])


LAW = WholeGraphLaw(
    run, changes_shapes=True, after={"fold_static_shapes": "a static shape needs no shapes of other nodes"}
)
