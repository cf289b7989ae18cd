"""Quantization of an ONNX file to int8 by ONNX Runtime's static quantizer."""

import logging
from pathlib import Path

import numpy as np
import onnx
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
        if floating:
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
            nodes_to_exclude=floating.operations,
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
        prepared.unlink(missing_ok=True)
    if floating:
        quantized = onnx.load(target)
        onnx_float_part.restore_inputs(quantized, set(floating.operations))
        onnx.save(quantized, target)
    return {"reduce_range": reduced, "stability": stable, **floating.facts()}


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
