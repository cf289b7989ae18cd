"""Matrices with 4 or 8 bits for a weight and a scale for each block, in ONNX Runtime's own op MatMulNBits."""

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tfopt.conversion.onnx.node_order import subgraphs

OP, DOMAIN = "MatMulNBits", "com.microsoft"
BLOCK = 32  # weights with a common scale
IN_INT8 = 4  # accuracy level: activations have 8 bits with a scale for each block, which is found in each call


def find_matrices(graph: onnx.GraphProto, excluded: Collection[str]) -> set[str]:
    """Return the outputs of products with a stored matrix, except those of nodes with these names."""
    stored = {tensor.name: tensor.dims for tensor in graph.initializer}
    return {
        node.output[0]
        for node in graph.node
        if node.name not in excluded and _is_product(node) and len(stored.get(node.input[1], ())) == 2
    }


def store(model: onnx.ModelProto, bits: Mapping[str, int]) -> None:
    """Store the matrices of the products with these outputs with a number of bits for each weight."""
    graph = model.graph
    stored, replaced = {tensor.name: tensor for tensor in graph.initializer}, set()
    for node in graph.node:
        if node.output[0] not in bits:
            continue
        replaced.add(node.input[1])
        matrix = numpy_helper.to_array(stored[node.input[1]])
        matrix = matrix.T if _attribute(node, "transB") else matrix
        packed, scales = _pack(matrix, bits[node.output[0]])
        names = [f"{node.output[0]}_packed", f"{node.output[0]}_scales"]
        graph.initializer.extend(map(numpy_helper.from_array, (packed, scales), names))
        sizes = {"K": matrix.shape[0], "N": matrix.shape[1], "bits": bits[node.output[0]], "block_size": BLOCK}
        inputs = [node.input[0], *names, *(["", "", *node.input[2:]] if node.input[2:] else [])]
        arguments = {"name": node.name, "domain": DOMAIN, "accuracy_level": IN_INT8, **sizes}
        node.CopyFrom(helper.make_node(OP, inputs, list(node.output), **arguments))
    used = {name for part in subgraphs(graph) for node in part.node for name in node.input}
    for name in replaced - used:
        graph.initializer.remove(stored[name])
    if bits and DOMAIN not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _is_product(node: onnx.NodeProto) -> bool:
    plain = _attribute(node, "alpha", 1.0) == _attribute(node, "beta", 1.0) == 1 and not _attribute(node, "transA")
    return node.op_type == "MatMul" or (node.op_type == "Gemm" and plain)


def _attribute(node: onnx.NodeProto, name: str, default: float = 0) -> float:
    values = [helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name == name]
    return values[0] if values else default


def _pack(matrix: NDArray[np.float32], bits: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the weights and scales as `MatMulNBits` reads them: by column, in blocks, as unsigned integers."""
    blocks = np.pad(matrix.T, ((0, 0), (0, -len(matrix) % BLOCK))).reshape(matrix.shape[1], -1, BLOCK)
    half = 2 ** (bits - 1)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
    scales = largest / -half  # the largest weight has the level that only one sign has
    levels = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales != 0).round() + half
    levels = levels.clip(0, 2 * half - 1).astype(np.uint8)
    packed = levels if bits == 8 else levels[..., ::2] | levels[..., 1::2] << 4
    return packed, scales[..., 0]
