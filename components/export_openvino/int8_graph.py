"""Changes of a float OpenVINO model, because OpenVINO's CPU plugin computes some int8 graphs wrongly."""

from math import prod
from typing import Any

import numpy as np

from tfopt.components.export_openvino.einsums import replace_einsums
from tfopt.runtimes.openvino_import import without_telemetry

with without_telemetry():
    from openvino import Type, opset13

CONVOLUTIONS = ("Convolution", "GroupConvolution")
NO_BIAS = 1e-30  # OpenVINO would remove zero
LEAST = float(np.finfo(np.float32).min)
REDUCTIONS = {
    "ReduceL1": opset13.reduce_l1,
    "ReduceL2": opset13.reduce_l2,
    "ReduceMax": opset13.reduce_max,
    "ReduceMean": opset13.reduce_mean,
    "ReduceMin": opset13.reduce_min,
    "ReduceProd": opset13.reduce_prod,
    "ReduceSum": opset13.reduce_sum,
}


def prepare(model: Any) -> None:
    """Make these changes, and replace einsums, in place."""
    replace_einsums(model)
    add_missing_biases(model)
    keep_reduced_axes(model)
    separate_single_rows(model)
    split_rows_before_products(model)


def add_missing_biases(model: Any) -> None:
    """Give convolutions without a bias one that changes no value, in place.

    The CPU plugin moves the scales of an int8 convolution behind the operation that reads it. If others read it as well
    and there is no bias, one of them gets values without scales.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() in CONVOLUTIONS and node.get_output_partial_shape(0).rank.is_static:
            readers = node.output(0).get_target_inputs()
            if [reader.get_node().get_type_name() for reader in readers] == ["Add"]:
                continue
            shape = [1] * len(node.get_output_partial_shape(0))
            biased = opset13.add(
                node, opset13.constant(np.full(shape, NO_BIAS, node.get_output_element_type(0).to_dtype()))
            )
            for reader in readers:
                reader.replace_source_output(biased.output(0))
            biased.output(0).set_names(node.output(0).get_names())


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


def separate_single_rows(model: Any) -> None:
    """Put a maximum that changes no value behind products of computed matrices that have a single row, in place.

    Such as those of an attention with one query. The CPU plugin fuses a Multiply by a row, as SmoothQuant adds before
    the next layer, into an int8 product; if that has one row, it reads other memory in place of the constants.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "MatMul" or node.get_output_element_type(0) != Type.f32:
            continue
        shape = node.get_output_partial_shape(0)
        computed = all(end.get_source_output().get_node().get_type_name() != "Constant" for end in node.inputs())
        if computed and shape.rank.is_static and len(shape) > 2 and shape[len(shape) - 2].get_max_length() == 1:
            readers = node.output(0).get_target_inputs()
            same = opset13.maximum(node, opset13.constant(np.float32(LEAST)))
            for reader in readers:
                reader.replace_source_output(same.output(0))
            same.output(0).set_names(node.output(0).get_names())


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
