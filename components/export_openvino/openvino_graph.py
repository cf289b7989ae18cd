"""OpenVINO's converter with readable errors, and queries on its graphs."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.openvino_import import openvino, without_telemetry

with without_telemetry():
    from openvino import opset13

LAYERS = ("Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul")
ENDS = ("Constant", "Parameter", "Result")
FAKE_QUANTIZE = "FakeQuantize"
REDUCTIONS = {
    "ReduceL1": opset13.reduce_l1,
    "ReduceL2": opset13.reduce_l2,
    "ReduceMax": opset13.reduce_max,
    "ReduceMean": opset13.reduce_mean,
    "ReduceMin": opset13.reduce_min,
    "ReduceProd": opset13.reduce_prod,
    "ReduceSum": opset13.reduce_sum,
}
# keep quantized values quantized
MOVES = ("Reshape", "StridedSlice", "Slice", "Transpose", "Squeeze", "Unsqueeze", "MaxPool", "Concat", "Pad")


def check_no_strings(specs: Mapping[str, TensorSpec]) -> None:
    """Raise ComponentError if an input or output is a string, for which OpenVINO has no kernels."""
    for name, spec in specs.items():
        if spec.dtype == "string":
            expected = "numeric inputs and outputs; OpenVINO has kernels for nothing else"
            raise ComponentError(f"{name!r}: {spec}", expected, "look words up before the model")


def convert(source: Path) -> Any:
    """Return the ``openvino.Model`` of a SavedModel's ``serving_default`` or of an ONNX file, with its names.

    Raises:
        ComponentError: If an op cannot be converted; the ops are named.
    """
    try:
        with without_telemetry():
            model = openvino.convert_model(str(source))
    except Exception as error:  # its exceptions share no base
        raise _conversion_error(error) from error
    model.set_rt_info("", ["conversion_parameters", "input_model"])  # else a path of this machine and run
    return model


def count_ops(model: Any) -> dict[str, int]:
    """Return the number of ops of each type, without constants, parameters and results."""
    types = Counter(op.get_type_name() for op in model.get_ops())
    return {name: count for name, count in sorted(types.items()) if name not in ENDS}


def int8_layers(model: Any) -> list[str]:
    """Return the names of the convolutions and matrix products whose activations are quantized to 8 bits."""
    return [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() in LAYERS and _is_quantized(op)]


def keep_reduced_axes(model: Any) -> None:
    """Let reductions keep their axes, with a Squeeze after each, in place.

    The CPU plugin fuses a Multiply or Add of a row of constants, and a FakeQuantize after it, into a reduction. If that
    removes axes before the last one, as GlobalAveragePooling, it applies the constants along the wrong axis.
    """
    for node in model.get_ordered_ops():
        name = node.get_type_name()
        if name in REDUCTIONS and not node.get_attributes()["keep_dims"]:
            values, axes = node.input_value(0), node.input_value(1)
            reduced = REDUCTIONS[name](values, axes, keep_dims=True)
            squeezed = opset13.squeeze(reduced, axes)
            squeezed.set_friendly_name(node.get_friendly_name())
            squeezed.output(0).set_names(node.output(0).get_names())
            node.output(0).replace(squeezed.output(0))


def split_rows_before_products(model: Any) -> None:
    """Let matrix products take their rows in the axes that a Reshape after them makes of these, in place.

    The CPU plugin moves the scales of an int8 product, one for each column, behind a Reshape after it. If that splits
    rows, as after a Dense layer on sequences, it takes the second axis for that of the columns: it scales wrong values,
    or cannot compile the model.
    """
    for last in model.get_ordered_ops():
        if last.get_type_name() == "Reshape" and (new := _multiply_split_rows(last)):
            last.input(0).replace_source_output(new)


def _multiply_split_rows(last: Any) -> Any:
    """Return the output of a matrix product that takes its rows split as this Reshape splits them; None if it cannot.

    What remains for the Reshape is to split the columns, or nothing.
    """
    product, shape = last.input_value(0).get_node(), last.input_value(1).get_node()
    if product.get_type_name() != "MatMul" or shape.get_type_name() != "Constant":
        return None
    rows, options, sizes = product.input_value(0), product.get_attributes(), shape.get_data().tolist()
    has_two_axes = all(product.get_input_partial_shape(number).rank == 2 for number in (0, 1))
    if not has_two_axes or options["transpose_a"] or 0 in sizes:
        return None
    width, columns = rows.get_partial_shape()[1], product.get_output_partial_shape(0)[1]
    axes = next((count for count in range(2, len(sizes)) if columns == prod(sizes[count:])), None)
    if axes is None or width.is_dynamic:
        return None
    split = opset13.reshape(rows, opset13.constant([*sizes[:axes], width.get_length()]), special_zero=False)
    before = rows.get_node().input_value(0) if rows.get_node().get_type_name() == "Reshape" else split.output(0)
    is_same = before.get_partial_shape() == split.get_output_partial_shape(0)
    new = opset13.matmul(before if is_same else split, product.input_value(1), False, options["transpose_b"])
    new.set_friendly_name(product.get_friendly_name())
    return new.output(0)


def has_attention(model: Any) -> bool:
    """Return True if the result of a softmax is a factor of a matrix product."""
    types = {op.get_type_name() for op in model.get_ops()}
    softmaxes = [op for op in model.get_ops() if op.get_type_name() == "Softmax"]
    return "ScaledDotProductAttention" in types or any(
        reader.get_type_name() in ("MatMul", "Einsum") for op in softmaxes for reader in _readers(op)
    )


def _is_quantized(op: Any) -> bool:
    return any(_origin(end.get_source_output().get_node()).get_type_name() == FAKE_QUANTIZE for end in op.inputs())


def _origin(node: Any) -> Any:
    while node.get_type_name() in MOVES:
        node = node.input(0).get_source_output().get_node()
    return node


def _readers(node: Any) -> Iterator[Any]:
    for target in node.output(0).get_target_inputs():
        reader = target.get_node()
        if reader.get_type_name() in MOVES:
            yield from _readers(reader)
        else:
            yield reader


def _conversion_error(error: Exception) -> ComponentError:
    unknown = re.search(r"(?:No conversion rule found for operations|Conversion is failed for): (.+)", str(error))
    if unknown:
        received = f"ops that OpenVINO cannot convert: {unknown[1].strip()}"
        expected = "a model of ops that can be converted"
        return ComponentError(received, expected, "express them with other ops in the model")
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
    received = f"the converter failed: {(lines[-1] if lines else first_line(error))[:300]}"
    expected = "a model that OpenVINO can convert"
    return ComponentError(received, expected, "check that the file is complete, and report this with the model")
