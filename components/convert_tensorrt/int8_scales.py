"""8-bit levels as TensorRT takes them: int8 with zero as its zero, around floats, and nowhere else.

    q = round(x / s),  x' = q s,  q in -128..127

Its parser refuses zero points and unsigned bytes. So each range [a, b] of an activation becomes [-m, m] with
m = max(|a|, |b|), and s = m / 127: what never is negative, as after a ReLU, keeps half of its levels. What [a, b] cut
off is cut off before it: quantizers drop a ReLU whose work the range does. Weights that lie on such levels already
keep them exactly, as floats between a quantizer and a dequantizer; biases become floats again.

Reference: TensorRT's developer guide, "Working with Quantized Types" (explicit quantization is symmetric).
"""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tfopt.errors import ComponentError

PAIR = ("QuantizeLinear", "DequantizeLinear")
LEVELS = 127
LIMITS = {np.dtype("int8"): (-128, 127), np.dtype("uint8"): (0, 255)}


def symmetric(model: onnx.ModelProto) -> dict[str, int]:
    """Rewrite a quantized model in place; return how many ranges were widened, weights kept and biases made floats.

    Raises:
        ComponentError: When levels have other than 8 bits, or steps that are computed and not stored.
    """
    graph, done = model.graph, {"widened": 0, "weights": 0, "biases": 0}
    known = _constants(graph)
    for node in [node for node in graph.node if node.op_type in PAIR]:
        step, zero = _step(node, known)
        if node.op_type == "DequantizeLinear" and node.input[0] in known:
            values = (known[node.input[0]].astype(np.float32) - _along(zero, node, known)) * _along(step, node, known)
            kind = known[node.input[0]].dtype
            done["biases" if kind == np.int32 else "weights"] += 1
            _store(graph, known, f"{node.output[0]}_floats", values.astype(np.float32))
            _set_floats(graph, node, known, step, values) if kind != np.int32 else _set_bias(graph, node)
        elif zero.dtype != np.int8 or zero.any():
            low, high = ((end - zero.astype(np.float32)) * step for end in LIMITS[zero.dtype])
            if node.op_type == "QuantizeLinear":
                _cut(graph, node, low, high, step)
                done["widened"] += 1
            _set(graph, node, known, np.maximum(-low, high) / LEVELS)
    del graph.value_info[:]  # some said uint8
    _drop_unused(graph)
    return done


def check(model: onnx.ModelProto) -> None:
    """Raise ComponentError unless something in the model is computed on 8-bit levels."""
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        raise ComponentError(
            "precision='int8', and nothing in the model has 8-bit levels",
            "a convolution or a matrix product of the model's own weights",
            "choose fp16 or fp32",
        )


def _constants(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def _step(node: onnx.NodeProto, known: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The step and the zero point of a node, which are arrays of one size."""
    missing = [name for name in node.input[1:] if name and name not in known]
    if missing:
        raise ComponentError(
            f"{node.op_type} {node.name}: {missing[0]} is computed", "stored steps and zeros", "quantize it statically"
        )
    step = known[node.input[1]].astype(np.float32)
    given = known[node.input[0]].dtype if node.input[0] in known else np.dtype("uint8")
    zero = known[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros(step.shape, given)
    weights = node.op_type == "DequantizeLinear" and node.input[0] in known
    if zero.dtype not in LIMITS and not (weights and zero.dtype == np.int32):
        raise ComponentError(
            f"{node.op_type} {node.name}: {zero.dtype} levels", "8-bit levels", "quantize the model to int8"
        )
    return step, zero


def _along(values: NDArray[Any], node: onnx.NodeProto, known: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """A value for each channel, shaped to meet the weights."""
    if values.size == 1:
        return values.astype(np.float32).reshape(())
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
    shape = [1] * known[node.input[0]].ndim
    shape[axis] = values.size
    return values.astype(np.float32).reshape(shape)


def _cut(graph: onnx.GraphProto, node: onnx.NodeProto, low: Any, high: Any, step: NDArray[Any]) -> None:
    """Clip what goes into a quantizer to the range it had, on the side where the new one reaches further."""
    if step.size > 1:
        raise ComponentError(
            f"{node.op_type} {node.name}: activations with {step.size} steps", "one step for all", "quantize per tensor"
        )
    if abs(float(high + low)) <= 1.5 * float(step):  # as far on both sides
        return
    name, ends = f"{node.output[0]}_cut", []
    if abs(float(low)) > 0.5 * float(step):
        ends = [f"{name}_low", f"{name}_high"]
        graph.initializer.extend(
            numpy_helper.from_array(np.float32(end).reshape(()), where)
            for end, where in zip((low, high), ends, strict=True)
        )
    cut = helper.make_node("Clip" if ends else "Relu", [node.input[0], *ends], [name], name=name)
    graph.node.insert(list(graph.node).index(node), cut)
    node.input[0] = name


def _set_floats(
    graph: onnx.GraphProto, node: onnx.NodeProto, known: dict[str, NDArray[Any]], step: Any, values: NDArray[Any]
) -> None:
    """Put floats and a quantizer before a dequantizer of stored weights."""
    stored = known[node.input[0]]
    if stored.dtype != np.int8 or (len(node.input) > 2 and known[node.input[2]].any()):
        others = tuple(axis for axis, size in enumerate(_along(step, node, known).shape) if size == 1)
        step = (np.abs(values).max(axis=others if step.size > 1 else None) / LEVELS).reshape(step.shape)
        step = np.where(step > 0, step, 1)
    _set(graph, node, known, step)
    axis = [attribute for attribute in node.attribute if attribute.name == "axis"]
    quantizer = helper.make_node(
        "QuantizeLinear",
        [f"{node.output[0]}_floats", *node.input[1:]],
        [f"{node.output[0]}_levels"],
        name=f"{node.output[0]}_quantizer",
    )
    quantizer.attribute.extend(axis)
    node.input[0] = quantizer.output[0]
    graph.node.insert(0, quantizer)


def _set_bias(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    """Let everyone read the floats, and nobody the dequantizer."""
    for reader in graph.node:
        reader.input[:] = [f"{node.output[0]}_floats" if name == node.output[0] else name for name in reader.input]
    graph.node.remove(node)


def _set(graph: onnx.GraphProto, node: onnx.NodeProto, known: dict[str, NDArray[Any]], step: NDArray[Any]) -> None:
    """Give a node a step of its own, and int8 zeros."""
    step = np.asarray(step, np.float32)
    names = [f"{node.output[0]}_step", f"{node.output[0]}_zero"]
    _store(graph, known, names[0], step)
    _store(graph, known, names[1], np.zeros(step.shape, np.int8))
    node.input[:] = [node.input[0], *names]
    for attribute in node.attribute:
        if attribute.name == "output_dtype":
            attribute.i = TensorProto.INT8


def _store(graph: onnx.GraphProto, known: dict[str, NDArray[Any]], name: str, values: NDArray[Any]) -> None:
    known[name] = values
    graph.initializer.append(numpy_helper.from_array(values, name))


def _drop_unused(graph: onnx.GraphProto) -> None:
    used = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
