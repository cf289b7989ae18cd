"""Lower precisions of an ONNX file: int8 by ONNX Runtime's static quantizer, float16 by its caster."""

import logging
import platform
import re
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import create_calibrator
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from tfopt import calibration
from tfopt.components.export_onnx.request import Request
from tfopt.errors import ComponentError, first_line
from tfopt.examples import Batch

VNNI = re.compile(r"\b(avx512_vnni|avx_vnni|amx_int8)\b")


def half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with float16 weights and activations, and float32 inputs and outputs."""
    sorted_anew = OnnxModel(convert_float_to_float16(model, keep_io_types=True))
    sorted_anew.topological_sort()  # the caster appends its casts
    return sorted_anew.model


def quantize(source: Path, target: Path, feed: list[Batch], request: Request) -> dict[str, Any]:
    """Write the int8 form of a float32 file, and return what the model card says of it.

    Args:
        source: The float32 file.
        target: What is written; the working files lie beside it and go again.
        feed: Inputs by name, to calibrate on.
        request: What was asked for.

    Raises:
        ComponentError: When the quantizer fails.
    """
    reduced = needs_reduced_range() if request.reduce_range == "auto" else request.reduce_range == "on"
    prepared = target.with_name("prepared.onnx")
    logging.getLogger().setLevel(logging.ERROR)  # of a child process: it recommends what was just done
    try:
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        stable = _stability(prepared, feed)
        quantize_static(
            prepared,
            target,
            _Reader(feed),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=request.per_channel,
            reduce_range=reduced,
        )
    except Exception as error:
        raise ComponentError(
            f"the quantizer failed: {first_line(error)[:300]}",
            "a graph that ONNX Runtime can quantize",
            "choose float32 or float16",
        ) from error
    prepared.unlink()
    return {"reduce_range": reduced, "stability": stable}


def needs_reduced_range(described: Path = Path("/proc/cpuinfo"), machine: str | None = None) -> bool:
    """Whether this CPU's 8-bit products overflow: an x86 without VNNI."""
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64", "i686"):
        return False
    return not (described.is_file() and VNNI.search(described.read_text()))


class _Reader:
    """The calibration data, as the quantizer asks for it."""

    def __init__(self, feed: list[Batch]) -> None:
        self._left = iter(feed)

    def get_next(self) -> Batch | None:
        return next(self._left, None)


def _stability(file: Path, feed: list[Batch]) -> dict[str, Any]:
    return calibration.stability(*(_ranges(file, half) for half in calibration.halves(feed)))


def _ranges(file: Path, feed: list[Batch]) -> calibration.Ranges:
    augmented = file.with_name("augmented.onnx")
    calibrator = create_calibrator(file, augmented_model_path=str(augmented), calibrate_method=CalibrationMethod.MinMax)
    calibrator.collect_data(_Reader(feed))
    found = calibrator.compute_data()
    augmented.unlink()
    return {name: (float(low.min()), float(high.max())) for name, (low, high) in _ends(found)}


def _ends(found: Any) -> Any:
    return ((name, found[name].range_value) for name in found.keys())  # noqa: SIM118  (no mapping)
