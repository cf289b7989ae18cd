"""Einsums of an OpenVINO model as products of matrices, which NNCF quantizes; it leaves einsums in float."""

from collections.abc import Sequence
from typing import Any

from tfopt.conversion.einsum_products import EinsumProduct, Operations
from tfopt.runtimes.openvino_import import without_telemetry

with without_telemetry():
    from openvino import opset13


def replace_einsums(model: Any) -> None:
    """Replace einsums of floats by products if they are such, in place."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Einsum" and node.get_output_element_type(0).is_real():
            operands = [node.input_value(number) for number in range(node.get_input_size())]
            shapes = [operand.get_partial_shape() for operand in operands]
            if any(shape.rank.is_dynamic for shape in shapes):
                continue
            sizes = [[size.get_length() if size.is_static else -1 for size in shape] for shape in shapes]
            product = EinsumProduct.parse(node.get_attributes()["equation"], [len(shape) for shape in sizes])
            written = product and product.write(_Nodes(node.get_friendly_name()), operands, product.known_sizes(sizes))
            if written:
                written.get_node().set_friendly_name(node.get_friendly_name())
                written.set_names(node.output(0).get_names())
                node.output(0).replace(written)


class _Nodes(Operations[Any]):
    """Outputs of nodes; constants are computed here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def transpose(self, value: Any, axes: Sequence[int]) -> Any:
        if value.get_node().get_type_name() == "Constant":
            return opset13.constant(value.get_node().get_data().transpose(axes)).output(0)
        return opset13.transpose(value, opset13.constant(list(axes))).output(0)

    def reshape(self, value: Any, sizes: Sequence[int]) -> Any:
        if value.get_node().get_type_name() == "Constant":
            array = value.get_node().get_data()
            shape = [size or array.shape[axis] for axis, size in enumerate(sizes)]
            return opset13.constant(array.reshape(shape)).output(0)
        return opset13.reshape(value, opset13.constant(list(sizes)), special_zero=True).output(0)

    def multiply(self, left: Any, right: Any) -> Any:
        product = opset13.matmul(left, right, transpose_a=False, transpose_b=False)
        product.set_friendly_name(f"{self._name}/MatMul")  # for the lists of layers; else it would be a number
        return product.output(0)
