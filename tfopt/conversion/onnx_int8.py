"""int8 form of an ONNX file: by ONNX Runtime's static quantizer, or with the ranges of quantization-aware training."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import TensorsData, create_calibrator, save_tensors_data
from onnxruntime.quantization.shape_inference import quant_pre_process

from tfopt.conversion import calibration, onnx_float_part
from tfopt.conversion.activation_ranges import AUTO, Histogram, Method, choose_method, select_ranges
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
    source: Path,
    target: Path,
    feed: list[Batch],
    measure_error: Callable[[Path], float],
    *,
    method: Method | Literal["auto"],
    per_channel: bool,
    reduced: bool = False,
    symmetric: bool = False,
) -> ConversionFacts:
    """Write the int8 form of a float32 file, and return metadata for the model card.

    ``method`` selects the ranges; ``measure_error`` returns the error of a file on other records. ``reduced`` leaves
    one bit of the weights unused. ``symmetric`` quantizes activations to int8 with zero point 0 and keeps biases as
    floats, as for TensorRT. Temporary files are written next to the target and removed.

    Raises:
        ComponentError: If the quantizer fails.
    """
    prepared, cache = target.with_name("prepared.onnx"), target.with_name("ranges.json")
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
        if floating:
            onnx.save(model, prepared)  # with the names of its nodes
        histograms = _histograms(prepared, feed)
        for node in model.graph.node:
            for name in (*node.input, *node.output) if node.name in floating.operations else ():
                if name in histograms:
                    histograms[name].is_exact = True
        halves = (_histograms(prepared, half) for half in calibration.split_halves(feed))
        stable = calibration.compare_ranges(*(select_ranges(half, "min_max") for half in halves))

        def quantize_by(method: Method) -> Path:
            file = target.with_name(f"{method}.onnx")
            ranges = select_ranges(histograms, method, symmetric=symmetric)
            stored = {name: tuple(np.array(end, np.float32) for end in ends) for name, ends in ranges.items()}
            save_tensors_data(TensorsData(CalibrationMethod.MinMax, stored), cache)
            quantize_static(
                prepared,
                file,
                None,
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=per_channel,
                reduce_range=reduced,
                nodes_to_exclude=floating.operations,
                extra_options=SYMMETRIC if symmetric else {},
                calibration_cache_path=cache,
            )
            if floating:
                quantized = onnx.load(file)
                onnx_float_part.restore_inputs(quantized, set(floating.operations))
                onnx.save(quantized, file)
            return file

        chosen, _, facts = choose_method(method, quantize_by, measure_error)
        chosen.replace(target)
    except ComponentError:
        raise
    except Exception as error:
        received = f"the quantizer failed: {first_line(error)[:300]}"
        raise ComponentError(received, "a graph that ONNX Runtime can quantize", "choose float32 or float16") from error
    finally:
        root.setLevel(level)
        for file in (prepared, cache, *(target.with_name(f"{method}.onnx") for method in AUTO)):
            file.unlink(missing_ok=True)
    return {"reduce_range": reduced, "stability": stable, **facts, **floating.facts()}


def _histograms(file: Path, feed: list[Batch]) -> dict[str, Histogram]:
    """Return the histogram of each activation that ONNX Runtime may quantize."""
    augmented = file.with_name("augmented.onnx")  # with all of them as outputs
    calibrator = create_calibrator(
        file, augmented_model_path=str(augmented), calibrate_method=CalibrationMethod.Entropy
    )
    augmented.unlink()
    session, selected = calibrator.infer_session, calibrator.tensors_to_calibrate
    names = [output.name for output in session.get_outputs() if output.name in selected]
    histograms = {name: Histogram(name) for name in names}
    for batch in feed:
        for histogram, values in zip(histograms.values(), session.run(names, batch), strict=True):
            histogram.add(values)
    return histograms


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
