"""int8 of a model that was trained for it: its ranges are in the graph already, and its kernels lie on their levels.

Freezing leaves each fake quantization of an activation as a pair of QuantizeLinear and DequantizeLinear, and computes
those of the kernels: these are floats again, but each is a whole number of steps, also where a batch norm was folded
in, which gives every channel another step. The steps are found again, and the kernels stored as those whole numbers.
Nothing is rounded a second time, and a kernel that was left in floats, which lies on no such levels, stays as it is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from tfopt.errors import ComponentError

LEVELS = 127  # on either side of zero
EXACT = 1e-3  # of a step: floats that were multiplied twice are nearer than that
AXES = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1, "Gemm": 1}  # of the output channels of a kernel

Floats = NDArray[np.float32]


def quantize(source: Path, target: Path) -> dict[str, Any]:
    """Write the int8 form of a float32 file that has trained ranges, and return what the model card says of it.

    Args:
        source: As converted, with pairs of QuantizeLinear and DequantizeLinear around activations.
        target: What is written.

    Raises:
        ComponentError: When no kernel lies on levels.
    """
    _fold(source, target)
    model = onnx.load(target)
    stored = _store(model.graph)
    if not stored:
        raise ComponentError(
            "a model with trained ranges, and no kernel on 8-bit levels",
            "what tfopt quantize, or TensorFlow's toolkit, trained",
            "export it with export_tflite, or give the model from before it was quantized and calibrate",
        )
    onnx.save(model, target)
    return {"ranges": "trained", "kernels": stored}


def steps(kernel: Floats, axis: int) -> Floats | None:
    """Return the steps of which every weight is a whole number, at most 127; None where there are none.

    Args:
        kernel: Its weights.
        axis: Of its output channels.

    Returns:
        One step where one does for all, or one for each channel.
    """
    for by_channel in (kernel.reshape(1, -1), np.moveaxis(kernel, axis, 0).reshape(kernel.shape[axis], -1)):
        largest = np.abs(by_channel).max(1).astype(np.float64)
        found = np.where(largest == 0, 1.0, 0.0)
        for levels in range(LEVELS, 0, -1):
            step = largest / levels
            ratio = by_channel / np.where(step == 0, 1, step)[:, None]
            exact = np.abs(ratio - np.round(ratio)).max(1) < EXACT
            found = np.where((found == 0) & exact, step, found)
            if found.all():
                return found.astype(np.float32)
    return None


def _fold(source: Path, target: Path) -> None:
    """Let ONNX Runtime fold what is left of batch norms into convolutions, and round no kernel on its own account."""
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def _store(graph: onnx.GraphProto) -> list[str]:
    """Put whole numbers in place of the kernels; return their names."""
    floats = {item.name: item for item in graph.initializer if item.data_type == onnx.TensorProto.FLOAT}
    stored: dict[str, str] = {}
    for name, axis in list(_kernels(graph)):
        if name not in floats or name in stored:
            continue
        kernel = numpy_helper.to_array(floats[name])
        step = steps(kernel, axis)
        if step is not None:
            stored[name] = _dequantized(graph, name, kernel, step, axis)
            graph.initializer.remove(floats[name])
    for node in graph.node:
        node.input[:] = [stored.get(name, name) for name in node.input]
    return sorted(stored)


def _kernels(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    for node in graph.node:
        if node.op_type in AXES:
            turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            yield node.input[1], 0 if turned else AXES[node.op_type]


def _dequantized(graph: onnx.GraphProto, name: str, kernel: Floats, step: Floats, axis: int) -> str:
    """Add the whole numbers, their steps, and what multiplies them; return the name of the product."""
    one = step.size == 1
    shape = [1] * kernel.ndim
    shape[axis] = step.size
    whole = np.round(kernel / step.reshape(shape)).astype(np.int8)
    scale = step.reshape(()) if one else step
    constants = {"int8": whole, "step": scale, "zero": np.zeros(scale.shape, np.int8)}
    graph.initializer.extend(numpy_helper.from_array(array, f"{name}_{what}") for what, array in constants.items())
    inputs, output = [f"{name}_{what}" for what in constants], f"{name}_dequantized"
    options = {} if one else {"axis": axis}
    graph.node.insert(0, helper.make_node("DequantizeLinear", inputs, [output], name=output, **options))
    return output
