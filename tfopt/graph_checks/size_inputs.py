"""Find inputs and operations for which special values are dangerous: sizes of tensors, and kernels that crash."""

from tfopt.graph.frozen_model import Frozen
from tfopt.graph.graph_def import nodes, reach, readers
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY

# Operations that allocate no more for an extreme integer: they compute, select, or fail.
COMPUTING = UNARY | BINARY | REDUCTIONS
COMPUTING |= {"AddN", "ArgMax", "ArgMin", "AsString", "BatchMatMulV2", "BiasAdd", "ConcatV2", "Const", "Conv2D"}
COMPUTING |= {"Cumsum", "DepthwiseConv2dNative", "ExpandDims", "FusedBatchNormV3", "Gather", "GatherNd", "GatherV2"}
COMPUTING |= {"Identity", "IdentityN", "LogSoftmax", "LookupTableFindV2", "MatMul", "Pack", "Reshape", "ReverseV2"}
COMPUTING |= {"Select", "SelectV2", "Softmax", "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice"}
COMPUTING |= {"StringToHashBucketFast", "Transpose", "Unpack"}
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
    reading = readers(frozen.graph)
    ops = {node.name: node.op for node in frozen.graph.node}

    def following(name: str) -> list[str]:
        return [reader for reader in reading.get(name, ()) if ops[reader] not in SHAPES]

    integers = {name: end for name, end in frozen.signatures[key].inputs.items() if "int" in end.dtype}
    return {
        name
        for name, end in integers.items()
        if not {ops[node] for node in reach(following(end.node), following)} <= COMPUTING
    }
