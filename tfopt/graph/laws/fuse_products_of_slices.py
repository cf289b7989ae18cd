"""Replace stacked products of all slices with one matrix by a single product.

    stack(A[0] B, A[1] B, …) = A B

    before    A -> StridedSlice 0 -> MatMul(B) -> Pack -> y
              A -> StridedSlice 1 -> MatMul(B) ->
    after     A -> BatchMatMulV2(B) -> y

``tf.stack([A[i] @ B for i in range(n)])`` has this form, and a loop over the time steps ``A[:, t]`` with ``axis=1``. B
need not be constant.

Requires: all slices along one axis of a tensor of rank 3, in order, a known number of them, stacked along that axis.
"""

from typing import NamedTuple

from tfopt.graph.law import Maker, SearchLaw, attr
from tfopt.graph.matching.inner_nodes import product_refusal
from tfopt.graph.matching.parts import part_of, size_along
from tfopt.graph.mutable_graph import Graph, Node, Tensor


class Products(NamedTuple):
    """The tensor that is sliced, and the product of its first slice."""

    source: Tensor
    first: Node


def find(graph: Graph, stack: Node) -> Products | str | None:
    """Return what a stack of products of all slices is computed from."""
    products = [graph.nodes[tensor.node] for tensor in stack.inputs]
    if len(products) < 2 or any(product.op != "MatMul" for product in products):
        return None
    return _product_refusal(graph, products) or _sliced(graph, stack, products)


def rewrite(products: Products, make: Maker) -> list[Tensor]:
    """Return the product of the tensor."""
    source, like = products
    changed = {"adj_x": False, "adj_y": attr(like, "transpose_b")}
    return [make.node("BatchMatMulV2", source, like.inputs[1], like=like, **changed)]


def _product_refusal(graph: Graph, products: list[Node]) -> str | None:
    if reason := product_refusal(graph, products):
        return reason
    if len({(product.inputs[1], attr(product, "transpose_b")) for product in products}) > 1:
        return "the products are with different matrices"
    return "the slices are transposed" if any(attr(product, "transpose_a") for product in products) else None


def _sliced(graph: Graph, stack: Node, products: list[Node]) -> Products | str:
    slices = [part_of(graph, product.inputs[0]) for product in products]
    first = slices[0]
    is_cut = all(part is not None and part.is_index and part.axis < 2 for part in slices)
    if first is None or not is_cut or len(graph.shape(first.source) or ()) != 3:
        return "not every factor is one slice of a tensor whose rank is 3, without a control edge"
    source, axis = first.source, first.axis
    if slices != [first._replace(number=index) for index in range(len(products))]:
        return "the slices are not of one tensor, in order"
    if (size := size_along(graph, source, axis)) != len(products):
        return f"{len(products)} slices of {size or 'an unknown number'}"
    if attr(stack, "axis") not in (axis, axis - 3):
        return f"cut along axis {axis}, stacked along axis {attr(stack, 'axis')}"
    return Products(source, products[0])


LAW = SearchLaw(
    ("Pack",),
    find,
    rewrite,
    in_frames=True,
    rounds=True,
    before={"fold_scale_before": "the folds have one kernel to fold into then"},
    follows="fuse_map_loops",
)
