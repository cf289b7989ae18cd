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

from tfopt.graph.law import WholeGraphLaw, attr
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attributes
from tfopt.graph.report import Report

NAME = "fuse_products_of_slices"


def run(graph: Graph, report: Report) -> int:
    """Replace every stack of such products."""
    fired = 0
    for stack in graph.of_op("Pack"):
        products = [graph.nodes[tensor.node] for tensor in stack.inputs]
        if len(products) < 2 or any(product.op != "MatMul" for product in products):
            continue
        if reason := _refusal(graph, stack, products):
            report.refuse(NAME, stack.name, reason)
            continue
        _replace(graph, stack, products)
        report.fire(NAME, stack.name)
        fired += 1
    return fired


class Slice(NamedTuple):
    """A slice of a tensor: one index of one axis, and all of the other axes."""

    source: Tensor
    axis: int
    number: int


def _refusal(graph: Graph, stack: Node, products: list[Node]) -> str | None:
    first = products[0]
    for product in products:
        if product.name in graph.fetched | graph.fed or product.controls or graph.waiting(product.name):
            return "a product is an output of the graph as well, fed from outside, or carries a control edge"
        if graph.uses(product.name) != 1:
            return f"a product has {graph.uses(product.name)} consumers"
        if product.inputs[1] != first.inputs[1] or attr(product, "transpose_b") != attr(first, "transpose_b"):
            return "the products are with different matrices"
        if attr(product, "transpose_a"):
            return "the slices are transposed"
    slices = [_slice(graph, product.inputs[0]) for product in products]
    if None in slices:
        return "not every factor is one slice of a tensor whose rank is 3, without a control edge"
    source, axis, _ = slices[0]  # type: ignore[misc]  # none of them is None
    shape = graph.shape(source)
    if slices != [Slice(source, axis, index) for index in range(len(products))] or not shape:
        return "the slices are not those of one tensor, in order"
    if shape[axis] != len(products):
        return f"{len(products)} slices of {shape[axis] or 'an unknown number'}"
    if attr(stack, "axis") not in (axis, axis - 3):
        return f"cut along axis {axis}, stacked along axis {attr(stack, 'axis')}"
    return None


def _slice(graph: Graph, tensor: Tensor) -> Slice | None:
    """Return the slice that a tensor is; None if it is none."""
    node = graph.nodes[tensor.node]
    if node.op not in ("Unpack", "StridedSlice") or node.name in graph.fed:
        return None
    if node.controls or any(graph.nodes[bound.node].controls for bound in node.inputs[1:]):
        return None
    source = node.inputs[0]
    shape = graph.shape(source)
    if not shape or len(shape) != 3:
        return None
    if node.op == "Unpack":
        axis = attr(node, "axis") % 3
        return Slice(source, axis, tensor.output) if axis < 2 else None
    return _strided(graph, node, source, shape)


def _strided(graph: Graph, node: Node, source: Tensor, shape: tuple[int | None, ...]) -> Slice | None:
    if not all(map(graph.is_constant, node.inputs[1:])) or attr(node, "ellipsis_mask") or attr(node, "new_axis_mask"):
        return None
    begin, _, stride = (graph.array(tensor) for tensor in node.inputs[1:])
    axis = {1: 0, 2: 1}.get(attr(node, "shrink_axis_mask"))
    if axis is None or axis >= len(begin) or (stride != 1).any() or (attr(node, "begin_mask") >> axis) & 1:
        return None
    others = sum(1 << index for index in range(len(begin)) if index != axis)
    if others & ~attr(node, "begin_mask") or others & ~attr(node, "end_mask"):
        return None
    index = int(begin[axis])
    return Slice(source, axis, index if index >= 0 else index + (shape[axis] or 0))


def _replace(graph: Graph, stack: Node, products: list[Node]) -> None:
    like = products[0]
    source = graph.nodes[like.inputs[0].node].inputs[0]
    changed = {"adj_x": False, "adj_y": attr(like, "transpose_b")}
    attrs = attributes("BatchMatMulV2", like.attr, changed)
    inputs = [source, like.inputs[1]]
    graph.remove(stack.name)
    graph.insert(Node(stack.name, "BatchMatMulV2", inputs, stack.controls, attrs, stack.device))
    for product in products:
        graph.remove(product.name)


LAW = WholeGraphLaw(
    run,
    requires=("direct edges", "folded constants"),
    rounds=True,
    before={"fold_scale_before": "the folds have one kernel to fold into then"},
    follows="fuse_map_loops",
)
