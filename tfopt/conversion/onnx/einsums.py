"""Einsums as products of matrices while tf2onnx converts a graph; its own form computes shapes in each call."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from tf2onnx import utils
from tf2onnx.onnx_opset.math import Einsum

from tfopt.conversion.einsum_products import EinsumProduct, Operations

FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE}


def convert_einsum(graph: Any, node: Any, _name: str, _: Any) -> None:
    """Convert an einsum of floats to products if it is one; tf2onnx converts the others."""
    shapes, written = [graph.get_shape(name) for name in node.input], None
    if graph.get_dtype(node.input[0]) in FLOATS and None not in shapes:
        product = EinsumProduct.parse(node.get_attr_value("equation").decode(), [len(shape) for shape in shapes])
        written = product and product.write(_Nodes(graph, node.name), node.input, product.known_sizes(shapes))
    if not written:
        Einsum.version_12(graph, node)
        return
    dtypes, output_shapes, outputs = node.output_dtypes, node.output_shapes, node.output
    graph.remove_node(node.name)
    graph.make_node("Identity", [written], outputs=outputs, dtypes=dtypes, shapes=output_shapes)


class _Nodes(Operations[str]):
    """Nodes of a graph of tf2onnx, by the name of their output; constants are computed here."""

    def __init__(self, graph: Any, name: str) -> None:
        self._graph, self._name = graph, name

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        if self._graph.is_const(value):
            return self._constant(self._graph.get_tensor_value(value, as_list=False).transpose(axes))
        shape = [self._graph.get_shape(value)[axis] for axis in axes]
        return self._make("Transpose", [value], shape, perm=list(axes))

    def reshape(self, value: str, sizes: Sequence[int]) -> str:
        shape = [size or self._graph.get_shape(value)[axis] for axis, size in enumerate(sizes)]
        if self._graph.is_const(value):
            return self._constant(self._graph.get_tensor_value(value, as_list=False).reshape(shape))
        return self._make("Reshape", [value, self._constant(np.array(sizes, np.int64))], shape)

    def multiply(self, left: str, right: str) -> str:
        shape = [*self._graph.get_shape(left)[:-1], self._graph.get_shape(right)[-1]]
        return self._make("MatMul", [left, right], shape)

    def _constant(self, array: np.ndarray[Any, Any]) -> str:
        name: str = self._graph.make_const(utils.make_name(self._name), np.ascontiguousarray(array)).output[0]
        return name

    def _make(self, op: str, inputs: list[str], shape: list[int], **attributes: Any) -> str:
        dtype = self._graph.get_dtype(inputs[0])
        name = utils.make_name(f"{self._name}/{op}")
        node = self._graph.make_node(op, inputs, attr=attributes, dtypes=[dtype], shapes=[shape], name=name)
        output: str = node.output[0]
        return output
