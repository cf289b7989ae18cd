"""Checks of `convert_tensorrt` before any work; they import nothing heavy."""

from tfopt.artifacts import Examples, Model
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.conversion.convert import check_conversion
from tfopt.errors import ComponentError
from tfopt.tensorrt import machine


def check(model: Model, examples: Examples | None, parameters: TensorRTConversion) -> None:
    """Raise ComponentError if the parameters contradict each other or the model, or this machine has no GPU."""
    ranges = "which has 8-bit levels in it" if is_quantized(model) else None
    has_ranges = check_conversion(
        *(model, examples, parameters.precision, parameters.split, ("saved_model", "keras", "onnx")),
        without_examples="fp16",
        ranges=ranges,
    )
    if parameters.usual_batch > parameters.largest_batch:
        raise ComponentError(
            f"usual_batch={parameters.usual_batch} with largest_batch={parameters.largest_batch}",
            "a usual batch of at most the largest",
            "pass a larger largest_batch",
        )
    _check_calibrator(parameters)
    if has_ranges and parameters.calibrator == "entropy":
        raise ComponentError(
            f"calibrator='entropy' for {model.name}, {ranges or 'whose 8-bit ranges were trained'}",
            "a float model, without ranges",
            "leave calibrator out, or pass the model from before it was quantized",
        )
    machine.detect_machine()


def is_quantized(model: Model) -> bool:
    """Return True if an ONNX file contains quantizers; operator names are plain text in the file."""
    return bool(model.format == "onnx" and model.onnx and b"QuantizeLinear" in model.onnx.read_bytes())


def _check_calibrator(parameters: TensorRTConversion) -> None:
    if parameters.calibration_cache and parameters.calibrator != "entropy":
        raise ComponentError(
            "calibration_cache with calibrator='explicit'",
            "calibrator='entropy', whose results can be stored",
            "leave it out: explicit ranges are in the ONNX file, which export_onnx can write once for many conversions",
        )
    if parameters.calibrator == "entropy" and parameters.precision != "int8":
        raise ComponentError(
            f"calibrator='entropy' with precision={parameters.precision!r}", "precision='int8'", "leave calibrator out"
        )
