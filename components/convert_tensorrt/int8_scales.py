"""Symmetric int8 quantization of ONNX files, as TensorRT requires it.

    q = round(x / s),  x' = q s,  q in -128..127

TensorRT's parser rejects zero points other than 0 and uint8. So each range [a, b] of an activation becomes [-m, m] with
m = max(|a|, |b|), and s = m / 127. A tensor that is never negative, as after a ReLU, loses half of its levels. Values
outside of [a, b] are clipped before the quantizer: ONNX Runtime's quantizer drops a ReLU if the range does its work.
Weights with zero point 0 keep their values exactly, as floats between a quantizer and a dequantizer. Biases become
floats again.

Reference: TensorRT's developer guide, "Working with Quantized Types" (explicit quantization is symmetric).
"""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tfopt.conversion.onnx.float_part import read_constants
from tfopt.errors import ComponentError

Constants = dict[str, NDArray[Any]]

QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
LEVELS = 127
LIMITS = {np.dtype("int8"): (-128, 127), np.dtype("uint8"): (0, 255)}


def make_symmetric(model: onnx.ModelProto) -> dict[str, int]:
    """Rewrite a quantized model in place; return the number of widened ranges, of weights and of biases.

    Raises:
        ComponentError: If quantized values have other than 8 bits, or scales are computed instead of stored.
    """
    graph, counts = model.graph, {"widened": 0, "weights": 0, "biases": 0}
    constants = read_constants(graph)
    for node in [node for node in graph.node if node.op_type in QUANTIZERS]:
        scale, zero = _scale_and_zero_point(node, constants)
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            stored = constants[node.input[0]]
            shift, factor = _per_channel(zero, node, constants), _per_channel(scale, node, constants)
            floats = (stored.astype(np.float32) - shift) * factor
            _store(graph, constants, f"{node.output[0]}_floats", floats.astype(np.float32))
            if stored.dtype == np.int32:
                counts["biases"] += 1
                renamed = {node.output[0]: f"{node.output[0]}_floats"}
                for reader in graph.node:
                    reader.input[:] = [renamed.get(name, name) for name in reader.input]
                graph.node.remove(node)
            else:
                counts["weights"] += 1
                _replace_weights(graph, node, constants, scale, floats)
        elif zero.dtype != np.int8 or zero.any():
            low, high = ((limit - zero.astype(np.float32)) * scale for limit in LIMITS[zero.dtype])
            if node.op_type == "QuantizeLinear":
                _clip_input(graph, node, low, high, scale)
                counts["widened"] += 1
            _set_scale(graph, node, constants, np.maximum(-low, high) / LEVELS)
    del graph.value_info[:]  # some entries are uint8
    used = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    return counts


def check_quantized(model: onnx.ModelProto, precision: str) -> None:
    """Raise ComponentError unless the model has a quantizer."""
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        received = f"precision={precision!r}, and nothing in the model has 8-bit levels"
        expected = "a convolution or a matrix product of the model's own weights"
        raise ComponentError(received, expected, "choose fp16 or fp32")


def _scale_and_zero_point(node: onnx.NodeProto, constants: Constants) -> tuple[NDArray[Any], NDArray[Any]]:
    computed = [name for name in node.input[1:] if name and name not in constants]
    if computed:
        received = f"{node.op_type} {node.name}: {computed[0]} is computed"
        raise ComponentError(received, "stored scales and zero points", "quantize it statically")
    scale = constants[node.input[1]].astype(np.float32)
    dtype = constants[node.input[0]].dtype if node.input[0] in constants else np.dtype("uint8")
    zero = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros(scale.shape, dtype)
    weights = node.op_type == "DequantizeLinear" and node.input[0] in constants
    if zero.dtype not in LIMITS and not (weights and zero.dtype == np.int32):
        received = f"{node.op_type} {node.name}: {zero.dtype} levels"
        raise ComponentError(received, "8-bit levels", "quantize the model to int8")
    return scale, zero


def _per_channel(values: NDArray[Any], node: onnx.NodeProto, constants: Constants) -> NDArray[Any]:
    """Reshape values of single channels so that they broadcast with the weights of a node."""
    if values.size == 1:
        return values.astype(np.float32).reshape(())
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
    shape = [1] * constants[node.input[0]].ndim
    shape[axis] = values.size
    return values.astype(np.float32).reshape(shape)


def _clip_input(graph: onnx.GraphProto, node: onnx.NodeProto, low: Any, high: Any, scale: NDArray[Any]) -> None:
    """Clip the input of a quantizer to its previous range, on the side where the symmetric range is larger."""
    if scale.size > 1:
        received = f"{node.op_type} {node.name}: activations with {scale.size} scales"
        raise ComponentError(received, "one scale", "quantize per tensor")
    if abs(float(high + low)) <= 1.5 * float(scale):  # symmetric already
        return
    name, limits = f"{node.output[0]}_cut", []
    if abs(float(low)) > 0.5 * float(scale):
        limits = [f"{name}_low", f"{name}_high"]
        graph.initializer.extend(
            numpy_helper.from_array(np.float32(limit).reshape(()), limit_name)
            for limit, limit_name in zip((low, high), limits, strict=True)
        )
    clip = helper.make_node("Clip" if limits else "Relu", [node.input[0], *limits], [name], name=name)
    graph.node.insert(list(graph.node).index(node), clip)
    node.input[0] = name


def _replace_weights(
    graph: onnx.GraphProto, node: onnx.NodeProto, constants: Constants, scale: Any, floats: NDArray[Any]
) -> None:
    """Put the floats and a quantizer of them before a dequantizer of stored weights."""
    stored = constants[node.input[0]]
    if stored.dtype != np.int8 or (len(node.input) > 2 and constants[node.input[2]].any()):
        others = tuple(axis for axis, size in enumerate(_per_channel(scale, node, constants).shape) if size == 1)
        scale = (np.abs(floats).max(axis=others if scale.size > 1 else None) / LEVELS).reshape(scale.shape)
        scale = np.where(scale > 0, scale, 1)
    _set_scale(graph, node, constants, scale)
    quantizer = helper.make_node(
        "QuantizeLinear",
        [f"{node.output[0]}_floats", *node.input[1:]],
        [f"{node.output[0]}_levels"],
        name=f"{node.output[0]}_quantizer",
    )
    quantizer.attribute.extend(attribute for attribute in node.attribute if attribute.name == "axis")
    node.input[0] = quantizer.output[0]
    graph.node.insert(0, quantizer)


def _set_scale(graph: onnx.GraphProto, node: onnx.NodeProto, constants: Constants, scale: NDArray[Any]) -> None:
    """Give a node a scale of its own, and int8 zero points of 0."""
    scale = np.asarray(scale, np.float32)
    names = [f"{node.output[0]}_step", f"{node.output[0]}_zero"]
    _store(graph, constants, names[0], scale)
    _store(graph, constants, names[1], np.zeros(scale.shape, np.int8))
    node.input[:] = [node.input[0], *names]
    for attribute in node.attribute:
        if attribute.name == "output_dtype":
            attribute.i = TensorProto.INT8


def _store(graph: onnx.GraphProto, constants: Constants, name: str, values: NDArray[Any]) -> None:
    constants[name] = values
    graph.initializer.append(numpy_helper.from_array(values, name))
