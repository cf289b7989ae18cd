"""Statistics of the constants of a graph: parameters, zeros and channels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.keras_models.weight_constraints import is_n_m
from tfopt.reports.inspection_report import KernelSparsity, NonFiniteWeight, ParameterCount, Sparsity, UnalignedKernel

# The axes of input and output channels of an op's kernel, which is its second input.
KERNELS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("Conv2D", "Conv3D", "MatMul", "BatchMatMulV2"), (-2, -1)),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), (-1, -2)),
    "DepthwiseConv2dNative": (-2, None),
}
ALIGNMENT = 8  # channels that a CPU's registers and int8 instructions, or a GPU's tensor cores, process at once
MAX_KERNELS = 20


def count_parameters(graph: Graph) -> tuple[ParameterCount, list[NonFiniteWeight]]:
    """Count the floating-point constants with more than one value, which variables become; find NaN and infinity."""
    import tensorflow as tf

    count, size, non_finite = 0, 0, []
    for name, node in graph.nodes.items():
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            array = graph.array(Tensor(name))
            broken = int(np.isnan(array).sum()), 0
            if array.size > 1:  # one number may be infinite on purpose: a mask, a limit
                count, size = count + array.size, size + array.nbytes
                broken = broken[0], int(np.isinf(array).sum())
            non_finite += [NonFiniteWeight(name, array.size, *broken)] if any(broken) else []
    return ParameterCount(count, size), non_finite


def measure_sparsity(graph: Graph) -> Sparsity:
    """Count the zeros of the kernels, and the kernels with 2:4 sparsity along the input channels."""
    kernels = []
    for node, kernel, input_axis, _ in _kernels(graph):
        zeros = int(kernel.size - np.count_nonzero(kernel))
        kernels.append(KernelSparsity(node.name, kernel.size, zeros, is_n_m(kernel, 2, 4, input_axis)))
    size, zeros = sum(kernel.size for kernel in kernels), sum(kernel.zeros for kernel in kernels)
    sparse = [kernel for kernel in kernels if kernel.zeros >= kernel.size / 10]
    return Sparsity(
        zeros=zeros,
        fraction=zeros / size if size else 0.0,
        two_of_four=sum(kernel.two_of_four for kernel in kernels),
        kernels=sorted(sparse, key=lambda kernel: -kernel.zeros)[:MAX_KERNELS],
    )


def find_unaligned_kernels(graph: Graph) -> list[UnalignedKernel]:
    """Return the kernels with a number of input or output channels that is not a multiple of 8."""
    unaligned = []
    for node, kernel, input_axis, output_axis in _kernels(graph):
        # a depthwise kernel has its last axis for each input channel
        outputs = kernel.shape[-1] * kernel.shape[-2] if output_axis is None else kernel.shape[output_axis]
        inputs = kernel.shape[input_axis]
        if inputs % ALIGNMENT or outputs % ALIGNMENT:
            unaligned.append(UnalignedKernel(node.name, node.op, inputs, outputs))
    return unaligned


def _kernels(graph: Graph) -> Iterator[tuple[Node, NDArray[Any], int, int | None]]:
    """Yield nodes with a constant kernel, the kernel, and its axes of input and output channels."""
    for node in graph.nodes.values():
        if node.op in KERNELS and graph.is_constant(node.inputs[1]):
            inputs, outputs = KERNELS[node.op]
            is_transposed = any(node.attr[key].b for key in ("transpose_b", "adj_y") if key in node.attr)
            axes = (outputs or -1, inputs) if is_transposed else (inputs, outputs)
            yield node, graph.array(node.inputs[1]), *axes
