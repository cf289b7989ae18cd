"""Count the floating-point operations of a TensorFlow op from its shapes.

A multiplication and an addition are two operations. An elementwise function is one operation for each output value.
TensorFlow's own profiler lacks BatchMatMul, Einsum and AddV2.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

Sizes = tuple[int, ...]

_FREE = """
Assert BatchToSpaceND BroadcastTo Cast CheckNumerics CheckNumericsV2 ConcatV2 Const DecodeJpeg DecodePng
DepthToSpace ExpandDims Fill Gather GatherNd GatherV2 HashTableV2 Identity IdentityN InitializeTableFromTextFileV2
InitializeTableV2 LookupTableFindV2 MirrorPad NoOp OneHot OnesLike Pack Pad PadV2
ParseExampleV2 Placeholder Range Rank Reshape ResizeNearestNeighbor ReverseV2 Select SelectV2 Shape Size Slice
SpaceToBatchND SpaceToDepth Split SplitV Squeeze StopGradient StridedSlice StringJoin Tile Transpose Unpack Where
TensorListFromTensor TensorListGetItem TensorListReserve TensorListSetItem TensorListStack ZerosLike
"""
FREE = set(_FREE.split())
VIEWS = {"ExpandDims", "Identity", "IdentityN", "Rank", "Reshape", "Shape", "Size", "Squeeze", "StopGradient"}
_ELEMENTWISE = """
Abs Add AddV2 BiasAdd Ceil ClipByValue Cos Div DivNoNan Elu Equal Erf Erfc Exp Expm1 Floor FloorDiv FloorMod Gelu
Greater GreaterEqual LeakyRelu Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul
MulNoNan Neg NotEqual Pow RealDiv Reciprocal Relu Relu6 Round Rsqrt Selu Sigmoid Sign Sin Softplus Softsign Sqrt
Square Sub Tanh
"""
ELEMENTWISE = set(_ELEMENTWISE.split())
REDUCTIONS = {"All", "Any", "ArgMax", "ArgMin", "Cumsum", "Max", "Mean", "Min", "Prod", "Sum"}
# operations for each output value
SEVERAL = {
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "BatchNormWithGlobalNormalization"), 2),
    "SquaredDifference": 2,
    "Softmax": 5,  # maximum, difference, exponential, sum, quotient
    "LogSoftmax": 5,
    "ResizeBilinear": 9,  # three interpolations: difference, product, sum
}


def count_flops(op: str, attr: Any, inputs: Sequence[Sizes], output: Sizes) -> int | None:
    """Return the operations of a node with these shapes of its inputs and first output; None for an unknown op."""
    if op in FREE:
        return 0
    if op in ELEMENTWISE or op in SEVERAL:
        return SEVERAL.get(op, 1) * prod(output)
    if op in REDUCTIONS:
        return prod(inputs[0])
    rule = OP_RULES.get(op)
    return rule(attr, inputs, output) if rule else None


def _einsum(attr: Any, inputs: Sequence[Sizes], output: Sizes) -> int:
    """Count a product and a sum for each combination of indices; an ellipsis is an index of its own."""
    terms = attr["equation"].s.decode().replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, inputs, strict=True):
        before, dots, after = term.partition("...")
        sizes |= dict(zip(before, shape, strict=False))
        sizes |= dict(zip(reversed(after), reversed(shape), strict=False)) if after else {}
        if dots:
            sizes["..."] = max(sizes.get("...", 1), prod(shape[len(before) : len(shape) - len(after)]))
    return len(terms) * prod(sizes.values())


OP_RULES: dict[str, Callable[[Any, Sequence[Sizes], Sizes], int]] = {
    # Each output value sums over the window and its group's channels.
    **dict.fromkeys(("Conv2D", "Conv3D"), lambda _, inputs, output: 2 * prod(output) * prod(inputs[1][:-1])),
    "DepthwiseConv2dNative": lambda _, inputs, output: 2 * prod(output) * prod(inputs[1][:2]),
    # Each input value is added to a window of all output channels.
    **dict.fromkeys(
        ("Conv2DBackpropInput", "Conv3DBackpropInputV2"),
        lambda _, inputs, output: 2 * prod(inputs[2]) * prod(inputs[1][:-1]),
    ),
    "MatMul": lambda attr, inputs, output: 2 * prod(output) * inputs[0][-2 if attr["transpose_a"].b else -1],
    **dict.fromkeys(
        ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"),
        lambda attr, inputs, output: 2 * prod(output) * inputs[0][-2 if attr["adj_x"].b else -1],
    ),
    "Einsum": _einsum,
    **dict.fromkeys(
        ("AvgPool", "AvgPool3D", "MaxPool", "MaxPool3D"),
        lambda attr, inputs, output: prod(output) * prod(int(size) for size in attr["ksize"].list.i),
    ),
    "AddN": lambda _, inputs, output: (len(inputs) - 1) * prod(output),
}
