"""Join the constants of an AddN, and adjacent constants of a concatenation.

    c + x + d + y = x + y + (c + d)
    [x, c, d, y] = [x, (c, d), y]

    before    AddN(c, x, d, y)            ConcatV2(x, c, d, y)
    after     AddN(x, y, c + d)           ConcatV2(x, cd, y)

Requires:
    - The joined float constant is finite: a sum that contains infinities of both signs depends on the order.
    - The axis of a ConcatV2 is a constant.
    - The constants have no control inputs.

Source: `PartialAssocOpConstFolding` and `PartialConcatConstFolding` in Grappler's constant folding.
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Graph, Maker, Node, SearchLaw, Tensor

Group = list[Tensor]  # one tensor, or several constants that become one
Joined = list[Tensor | NDArray[np.generic]]  # the tensors and joined constants of a list


def find(graph: Graph, node: Node) -> Joined | str | None:
    groups = list(_summands(graph, node) if node.op == "AddN" else _concatenated(graph, node))
    if all(len(group) == 1 for group in groups):
        return None
    if node.op == "ConcatV2" and not graph.is_constant(node.inputs[-1]):
        return "the axis is not a constant"
    arrays = [_joined(graph, node, group) for group in groups if len(group) > 1]
    if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays):
        return "the constants are not finite, or their sum is not"
    return [group[0] if len(group) == 1 else arrays.pop(0) for group in groups]


def rewrite(joined: Joined, make: Maker) -> list[Tensor]:
    node = make.root
    inputs = [each if isinstance(each, Tensor) else make.constant("constants", each) for each in joined]
    axis = node.inputs[-1:] if node.op == "ConcatV2" else []
    return [make.node(node.op, *inputs, *axis, like=node, N=len(inputs))]


def _is_joinable(graph: Graph, tensor: Tensor) -> bool:
    return graph.is_constant(tensor) and not graph.nodes[tensor.node].controls


def _summands(graph: Graph, node: Node) -> Iterator[Group]:
    yield from ([tensor] for tensor in node.inputs if not _is_joinable(graph, tensor))
    if constants := [tensor for tensor in node.inputs if _is_joinable(graph, tensor)]:
        yield constants


def _concatenated(graph: Graph, node: Node) -> Iterator[Group]:
    for is_joinable, group in groupby(node.inputs[:-1], lambda tensor: _is_joinable(graph, tensor)):
        if is_joinable:
            yield list(group)
        else:
            yield from ([tensor] for tensor in group)


def _joined(graph: Graph, node: Node, group: Group) -> NDArray[np.generic]:
    arrays = [graph.array(tensor) for tensor in group]
    if node.op == "ConcatV2":
        return np.concatenate(arrays, int(graph.array(node.inputs[-1])))
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays)
        return np.asarray(total).astype(arrays[0].dtype)


LAW = SearchLaw(
    ("AddN", "ConcatV2"),
    find,
    rewrite,
    in_frames=True,
    rounds=True,
    after={"fold_constants": "constants that the graph computes are joined, too"},
    before={"drop_idle_layout": "lists of one tensor remain"},
    follows="push_constants_into_bodies",
)
