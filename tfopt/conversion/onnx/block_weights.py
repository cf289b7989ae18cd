"""Matrices with 4 or 8 bits for a weight and a scale for each block, in ONNX Runtime's own op MatMulNBits."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import InferenceSession

from tfopt.conversion.onnx.node_order import subgraphs
from tfopt.conversion.rounded_weights import Floats, Grid, Rounded, draw_rows, round_layers
from tfopt.data.batches import Batch
from tfopt.value_types import JsonObject

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


def round_matrices(
    model: onnx.ModelProto, outputs: Collection[str], feed: Sequence[Batch]
) -> tuple[dict[str, Rounded], JsonObject]:
    """Return the matrices of the products with these outputs on 4-bit levels, and metadata for the model card."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = {node.output[0]: node for node in model.graph.node if node.output[0] in outputs}
    matrices = {name: _matrix(node, stored) for name, node in nodes.items()}

    def read(names: Sequence[str], weights: Mapping[str, Floats]) -> Iterator[dict[str, tuple[Floats, Floats]]]:
        inputs = {name: nodes[name].input[0] for name in names}
        tensors = sorted({*inputs.values()} - {value.name for value in model.graph.input})
        exact, rounded = (_open(model, tensors, replaced) for replaced in ({}, weights))
        for batch in feed:
            values, floats = ({**batch, **_run(session, tensors, batch)} for session in (rounded, exact))
            yield {name: (_draw(values[tensor]), _draw(floats[tensor])) for name, tensor in inputs.items()}

    return round_layers(matrices, Grid(-8, 7, _block_steps), len(feed), read)


def store(model: onnx.ModelProto, bits: Mapping[str, int], rounded: Mapping[str, Rounded] | None = None) -> None:
    """Store the matrices of the products with these outputs with a number of bits for each weight.

    Those of 4 bits have the integers and steps of ``rounded``, if they are there.
    """
    graph = model.graph
    stored, replaced = {tensor.name: tensor for tensor in graph.initializer}, set()
    for node in graph.node:
        if node.output[0] not in bits:
            continue
        replaced.add(node.input[1])
        matrix = _matrix(node, stored)
        in_four = (rounded or {}).get(node.output[0]) if bits[node.output[0]] == 4 else None
        packed, scales = _pack(matrix, bits[node.output[0]], in_four)
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


def _matrix(node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto]) -> Floats:
    """Return the matrix of a product as ``[inputs, outputs]``."""
    matrix: Floats = numpy_helper.to_array(stored[node.input[1]])
    return matrix.T if _attribute(node, "transB") else matrix


def _open(model: onnx.ModelProto, tensors: Sequence[str], weights: Mapping[str, Floats]) -> InferenceSession:
    """Return a session that computes tensors, with other matrices of products."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        if node.output[0] in weights:
            matrix = weights[node.output[0]]
            matrix = np.ascontiguousarray(matrix.T if _attribute(node, "transB") else matrix)
            changed.graph.initializer.append(numpy_helper.from_array(matrix, f"{node.output[0]}_rounded"))
            node.input[1] = f"{node.output[0]}_rounded"
    del changed.graph.output[:]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors or [model.graph.output[0].name])
    return InferenceSession(changed.SerializeToString(), providers=["CPUExecutionProvider"])


def _run(session: InferenceSession, tensors: Sequence[str], batch: Batch) -> Mapping[str, Floats]:
    return dict(zip(tensors, session.run(tensors, batch), strict=True)) if tensors else {}


def _draw(tensor: Floats) -> Floats:
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows[draw_rows(len(rows))]


def _block_steps(matrix: Floats, half: int = 8) -> Floats:
    """Return the step of each weight: the largest weight of a block has the level that only one sign has."""
    blocks = _blocks(matrix)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
    return np.asarray(np.repeat(largest[..., 0] / -half, BLOCK, axis=1)[:, : len(matrix)].T, np.float32)


def _blocks(matrix: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the weights by output and block, ``[outputs, blocks, BLOCK]``, with zeros at the end."""
    return np.pad(matrix.T, ((0, 0), (0, -len(matrix) % BLOCK))).reshape(matrix.shape[1], -1, BLOCK)


def _pack(matrix: Floats, bits: int, rounded: Rounded | None = None) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the weights and scales as `MatMulNBits` reads them: by column, in blocks, as unsigned integers."""
    half = 2 ** (bits - 1)
    if rounded is not None:
        steps = _blocks(rounded.steps)
        scales = np.take_along_axis(steps, np.abs(steps).argmax(axis=2, keepdims=True), axis=2)  # 0 for zeros
        levels = _blocks(rounded.integers) + half
    else:
        blocks = _blocks(matrix)
        scales = _blocks(_block_steps(matrix, half))[..., :1]
        levels = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales != 0).round() + half
    levels = levels.clip(0, 2 * half - 1).astype(np.uint8)
    packed = levels if bits == 8 else levels[..., ::2] | levels[..., 1::2] << 4
    return packed, scales[..., 0].astype(np.float32)
