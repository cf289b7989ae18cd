"""int8 form of an ONNX file from a model with quantization-aware training, with the trained ranges and levels.

The frozen graph has a pair of QuantizeLinear and DequantizeLinear for each fake-quantized activation. Fake-quantized
kernels are constants: floats, but each an integer multiple of a scale, also if a batch norm was folded in, which gives
every channel another scale. The scales are recovered, and the kernels are stored as those integers. Nothing is rounded
a second time. A kernel that was not quantized is no multiple of a scale and stays as it is.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.errors import ComponentError

LEVELS = 127  # on either side of zero
EXACT = 1e-3  # of a scale: rounding errors of two float multiplications are smaller
AXES = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1, "Gemm": 1}  # of the output channels of a kernel

Floats = NDArray[np.float32]


def quantize(source: Path, target: Path) -> ConversionFacts:
    """Write the int8 form of a float32 file that has trained ranges, and return metadata for the model card.

    The file has pairs of QuantizeLinear and DequantizeLinear around activations.

    Raises:
        ComponentError: If no kernel was quantized.
    """
    _fold(source, target)
    model = onnx.load(target)
    stored = _store(model.graph)
    if not stored:
        raise ComponentError(
            "a model with trained ranges, and no kernel on 8-bit levels",
            "a model from tfopt quantize or from TensorFlow's toolkit",
            "export it with export_tflite, or pass the model from before it was quantized and calibrate",
        )
    onnx.save(model, target)
    return {"ranges": "trained", "kernels": stored}


def find_scales(kernel: Floats, axis: int) -> Floats | None:
    """Return scales that divide all weights into integers of at most 127; None if there are none.

    There is one scale if it fits all channels, else one for each output channel, which are on ``axis``.
    """
    for by_channel in (kernel.reshape(1, -1), np.moveaxis(kernel, axis, 0).reshape(kernel.shape[axis], -1)):
        largest = np.abs(by_channel).max(1).astype(np.float64)
        scales = np.where(largest == 0, 1.0, 0.0)
        for levels in range(LEVELS, 0, -1):
            scale = largest / levels
            ratio = by_channel / np.where(scale == 0, 1, scale)[:, None]
            exact = np.abs(ratio - np.round(ratio)).max(1) < EXACT
            scales = np.where((scales == 0) & exact, scale, scales)
            if scales.all():
                return scales.astype(np.float32)
    return None


def _fold(source: Path, target: Path) -> None:
    """Let ONNX Runtime fold remaining batch norms into convolutions, without rounding kernels."""
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def _store(graph: onnx.GraphProto) -> list[str]:
    """Replace kernels by integers in the graph, and return the names of these kernels."""
    floats = {item.name: item for item in graph.initializer if item.data_type == onnx.TensorProto.FLOAT}
    stored: dict[str, str] = {}
    for name, axis in list(_kernels(graph)):
        if name not in floats or name in stored:
            continue
        kernel = numpy_helper.to_array(floats[name])
        scale = find_scales(kernel, axis)
        if scale is not None:
            stored[name] = _add_dequantizer(graph, name, kernel, scale, axis)
            graph.initializer.remove(floats[name])
    for node in graph.node:
        node.input[:] = [stored.get(name, name) for name in node.input]
    return sorted(stored)


def _kernels(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    for node in graph.node:
        if node.op_type in AXES:
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            yield node.input[1], 0 if transposed else AXES[node.op_type]


def _add_dequantizer(graph: onnx.GraphProto, name: str, kernel: Floats, scale: Floats, axis: int) -> str:
    """Add a kernel's integers and scales and a DequantizeLinear of them; return the name of its output."""
    per_tensor = scale.size == 1
    shape = [1] * kernel.ndim
    shape[axis] = scale.size
    integers = np.round(kernel / scale.reshape(shape)).astype(np.int8)
    scale = scale.reshape(()) if per_tensor else scale
    constants = {"int8": integers, "step": scale, "zero": np.zeros(scale.shape, np.int8)}
    graph.initializer.extend(numpy_helper.from_array(array, f"{name}_{part}") for part, array in constants.items())
    inputs, output = [f"{name}_{part}" for part in constants], f"{name}_dequantized"
    options = {} if per_tensor else {"axis": axis}
    graph.node.insert(0, helper.make_node("DequantizeLinear", inputs, [output], name=output, **options))
    return output
