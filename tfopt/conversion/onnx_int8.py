"""int8 of an ONNX file, by ONNX Runtime's static quantizer."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import create_calibrator
from onnxruntime.quantization.shape_inference import quant_pre_process

from tfopt.conversion import calibration
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError, first_line

SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}


def quantize(
    source: Path, target: Path, feed: list[Batch], *, per_channel: bool, reduced: bool = False, symmetric: bool = False
) -> dict[str, Any]:
    """Write the int8 form of a float32 file, and return what the model card says of it.

    Args:
        source: The float32 file.
        target: What is written; the working files lie beside it and go again.
        feed: Inputs by name, to calibrate on.
        per_channel: Whether each output channel of a weight gets its own scale.
        reduced: Whether a bit of the weights is left unused.
        symmetric: Whether activations too have zero as their zero, in int8, and biases stay floats: TensorRT's kind.

    Raises:
        ComponentError: When the quantizer fails.
    """
    prepared = target.with_name("prepared.onnx")
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it recommends what was just done
    try:
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        stable = _stability(prepared, feed)
        quantize_static(
            prepared,
            target,
            _Reader(feed),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
            reduce_range=reduced,
            extra_options=SYMMETRIC if symmetric else {},
        )
    except ComponentError:
        raise
    except Exception as error:
        raise ComponentError(
            f"the quantizer failed: {first_line(error)[:300]}",
            "a graph that ONNX Runtime can quantize",
            "choose float32 or float16",
        ) from error
    finally:
        root.setLevel(level)
    prepared.unlink()
    return {"reduce_range": reduced, "stability": stable}


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
    ranges = {name: (float(low.min()), float(high.max())) for name, (low, high) in _ends(found)}
    if strange := [name for name, ends in ranges.items() if not np.isfinite(ends).all()]:
        raise ComponentError(
            f"{strange[0]!r} is NaN or infinite on examples to calibrate on; so are {len(strange) - 1} other tensors",
            "numbers",
            "check the parent's weights for NaN, and the examples for NaN and values out of range",
        )
    return ranges


def _ends(found: Any) -> Any:
    return ((name, found[name].range_value) for name in found.keys())  # noqa: SIM118  (no mapping)
