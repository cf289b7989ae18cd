"""Find inputs and operations for which special values are dangerous: sizes of tensors, and kernels that crash."""

from tfopt.graph.frozen_model import Frozen, nodes

# Operations that allocate no more for an extreme integer: they compute, select, or fail.
COMPUTING = {
    "Abs",
    "Add",
    "AddN",
    "AddV2",
    "All",
    "Any",
    "ArgMax",
    "ArgMin",
    "Cast",
    "ConcatV2",
    "Const",
    "Cumsum",
    "Div",
}
COMPUTING |= {"Equal", "ExpandDims", "Floor", "FloorDiv", "FloorMod", "Gather", "GatherNd", "GatherV2", "Greater"}
COMPUTING |= {"GreaterEqual", "Identity", "IdentityN", "Invert", "LeftShift", "Less", "LessEqual", "LogicalAnd"}
COMPUTING |= {"LogicalNot", "LogicalOr", "LookupTableFindV2", "MatMul", "Max", "Maximum", "Mean", "Min", "Minimum"}
COMPUTING |= {"Mod", "Mul", "Neg", "NotEqual", "Pack", "Pow", "Prod", "RealDiv", "Relu", "Reshape", "ReverseV2"}
COMPUTING |= {"RightShift", "Select", "SelectV2", "Sign", "Split", "SplitV", "Square", "SquaredDifference", "Squeeze"}
COMPUTING |= {"StopGradient", "StridedSlice", "Sub", "Sum", "Transpose", "TruncateDiv", "TruncateMod", "Unpack"}
COMPUTING |= {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BatchMatMulV2", "BiasAdd", "StringToHashBucketFast", "AsString"}
COMPUTING |= {
    "Ceil",
    "Conv2D",
    "DepthwiseConv2dNative",
    "DivNoNan",
    "Elu",
    "Erf",
    "Exp",
    "FusedBatchNormV3",
    "LeakyRelu",
}
COMPUTING |= {
    "Log",
    "Log1p",
    "LogSoftmax",
    "Reciprocal",
    "Relu6",
    "Round",
    "Rsqrt",
    "Sigmoid",
    "Softmax",
    "Sqrt",
    "Tanh",
}
# Their result depends on the shape of the input, not on its values.
SHAPES = {"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"}

# Kernels of TensorFlow 2.21 that read out of bounds, or never end, for NaN or the largest floats.
CRASHING = {"CropAndResize", "CropAndResizeGradBoxes", "CropAndResizeGradImage", "RandomPoisson", "RandomPoissonV2"}
CRASHING |= {"AdjustHue", "StatefulRandomBinomial", "StatelessRandomBinomial", "StatelessRandomPoisson"}


def crashing_operations(frozen: Frozen) -> list[str]:
    """Return the operations of a model whose kernels may crash on special values."""
    return sorted({node.op for node in nodes(frozen.graph)} & CRASHING)


def size_inputs(frozen: Frozen, key: str) -> set[str]:
    """Return the names of the integer inputs of a signature that reach another operation than those above."""
    readers: dict[str, list[str]] = {}
    ops = {node.name: node.op for node in frozen.graph.node}
    for node in frozen.graph.node:
        for name in node.input:
            readers.setdefault(name.lstrip("^").partition(":")[0], []).append(node.name)
    sizes = set()
    for name, end in frozen.signatures[key].inputs.items():
        if "int" not in end.dtype:
            continue
        reached, ahead = set(), list(readers.get(end.node, ()))
        while ahead:
            node = ahead.pop()
            if node in reached or ops[node] in SHAPES:
                continue
            reached.add(node)
            ahead += readers.get(node, ())
        if not {ops[node] for node in reached} <= COMPUTING:
            sizes.add(name)
    return sizes
