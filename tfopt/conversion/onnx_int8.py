"""int8 form of an ONNX file: by ONNX Runtime's static quantizer, or with the ranges of quantization-aware training."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import create_calibrator
from onnxruntime.quantization.shape_inference import quant_pre_process

from tfopt.conversion import calibration, onnx_float_part
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.onnx import decode_text

SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}
LEVELS = 127  # on either side of zero
EXACT = 1e-3  # of a scale: rounding errors of two float multiplications are smaller
AXES = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1, "Gemm": 1}  # of the output channels of a kernel

Floats = NDArray[np.float32]


def quantize(
    source: Path, target: Path, feed: list[Batch], *, per_channel: bool, reduced: bool = False, symmetric: bool = False
) -> ConversionFacts:
    """Write the int8 form of a float32 file, and return metadata for the model card.

    ``reduced`` leaves one bit of the weights unused. ``symmetric`` quantizes activations to int8 with zero point 0 and
    keeps biases as floats, as for TensorRT. Temporary files are written next to the target and removed.

    Raises:
        ComponentError: If the quantizer fails.
    """
    prepared = target.with_name("prepared.onnx")
    feed = [
        {name: decode_text(name, array) if array.dtype.kind in "OS" else array for name, array in batch.items()}
        for batch in feed
    ]
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # the quantizer recommends the preprocessing that was just done
    try:
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        model = onnx.load(prepared)
        floating = onnx_float_part.find(model)
        excluded = [*floating.operations, *_read_for_shapes(model.graph)]
        if excluded:
            onnx.save(model, prepared)  # with the names of its nodes
        stable = calibration.compare_ranges(*(_ranges(prepared, half) for half in calibration.split_halves(feed)))
        quantize_static(
            prepared,
            target,
            _Reader(feed),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
            reduce_range=reduced,
            nodes_to_exclude=excluded,
            extra_options=SYMMETRIC if symmetric else {},
        )
    except ComponentError:
        raise
    except Exception as error:
        received = f"the quantizer failed: {first_line(error)[:300]}"
        raise ComponentError(received, "a graph that ONNX Runtime can quantize", "choose float32 or float16") from error
    finally:
        root.setLevel(level)
        prepared.unlink(missing_ok=True)
    if floating:
        quantized = onnx.load(target)
        onnx_float_part.restore_inputs(quantized, set(floating.operations))
        onnx.save(quantized, target)
    return {"reduce_range": reduced, "stability": stable, **floating.facts()}


def _read_for_shapes(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the nodes whose results are used for their shapes only, as Keras computes those of a loop.

    8 bits would store their weights, which the loop has in float, a second time.
    """
    read, needed = {value.name for value in graph.output}, set()
    for node in reversed(graph.node):  # they are in topological order
        if read.isdisjoint(node.output):
            continue
        needed.add(node.name)
        if node.op_type not in ("Shape", "Size"):
            read.update(_names_read(node))
    return [node.name for node in graph.node if node.name not in needed]


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the tensors that a node reads, in the bodies of a loop or branch too."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            yield from (value.name for value in body.output)
            for inner in body.node:
                yield from _names_read(inner)


class _Reader:
    """The interface by which the quantizer reads calibration data."""

    def __init__(self, feed: list[Batch]) -> None:
        self._batches = iter(feed)

    def get_next(self) -> Batch | None:
        return next(self._batches, None)


def _ranges(file: Path, feed: list[Batch]) -> calibration.Ranges:
    augmented = file.with_name("augmented.onnx")
    calibrator = create_calibrator(file, augmented_model_path=str(augmented), calibrate_method=CalibrationMethod.MinMax)
    calibrator.collect_data(_Reader(feed))
    tensors = calibrator.compute_data()  # has keys and items by key, but is not a mapping
    augmented.unlink()
    ends = {name: tensors[name].range_value for name in tensors.keys()}  # noqa: SIM118
    ranges = {name: (float(low.min()), float(high.max())) for name, (low, high) in ends.items()}
    if invalid := [name for name, limits in ranges.items() if not np.isfinite(limits).all()]:
        raise ComponentError(
            f"{invalid[0]!r} is NaN or infinite on examples to calibrate on; so are {len(invalid) - 1} other tensors",
            "finite numbers",
            "check the parent's weights for NaN, and the examples for NaN and values out of range",
        )
    return ranges


def quantize_trained(source: Path, target: Path) -> ConversionFacts:
    """Write the int8 form of a float32 file that has trained ranges, and return metadata for the model card.

    The file has a pair of QuantizeLinear and DequantizeLinear for each fake-quantized activation. Fake-quantized
    kernels are constants: floats, but each an integer multiple of a scale, also if a batch norm was folded in, which
    gives every channel another scale. The scales are recovered, and the kernels are stored as those integers. Nothing
    is rounded a second time. A kernel that was not quantized is no multiple of a scale and stays as it is.

    Raises:
        ComponentError: If no kernel was quantized.
    """
    options = SessionOptions()  # for ONNX Runtime to fold remaining batch norms into convolutions, without rounding
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    model = onnx.load(target)
    stored = _store(model.graph)
    if not stored:
        received = "a model with trained ranges, and no kernel on 8-bit levels"
        fix = "export it with export_tflite, or pass the model from before it was quantized and calibrate"
        raise ComponentError(received, "a model from tfopt quantize or from TensorFlow's toolkit", fix)
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
