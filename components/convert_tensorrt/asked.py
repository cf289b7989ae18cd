"""What is refused in the first second, before anything heavy is imported."""

from dataclasses import fields

from tfopt.artifacts import Examples, Model
from tfopt.components.convert_tensorrt.request import Request
from tfopt.errors import ComponentError
from tfopt.tensorrt import machine
from tfopt.trained_ranges import has_trained_ranges

SOURCES = {"onnx": ("saved_model", "keras", "onnx"), "tf_trt": ("saved_model", "keras")}
# What TF-TRT has not: engines lie in its SavedModel, and are built and tuned by it alone.
NOT_TF_TRT = ("shapes", "calibrator", "calibration_cache", "timing_cache", "sparse", "version_compatible")


def check(model: Model, examples: Examples | None, backend: str, request: Request) -> None:
    """Raise ComponentError where a conversion cannot go well: what was asked for first, then the machine."""
    _check_model(model, backend)
    _check_wishes(backend, request)
    _check_int8(model, examples, request)
    if backend == "onnx":
        machine.find()


def has_levels(model: Model) -> bool:
    """Whether an ONNX file is quantized: its operators' names are in it as text."""
    return bool(model.format == "onnx" and model.onnx and b"QuantizeLinear" in model.onnx.read_bytes())


def _check_model(model: Model, backend: str) -> None:
    if model.format not in SOURCES[backend]:
        raise ComponentError(
            f"{model.uri}: a {model.format} model" + (" with backend='tf_trt'" if backend == "tf_trt" else ""),
            "a SavedModel, a Keras or an ONNX model" if backend == "onnx" else "a SavedModel or a Keras model",
            "give the model it was converted from",
        )


def _check_wishes(backend: str, request: Request) -> None:
    if request.usual_batch > request.largest_batch:
        raise ComponentError(
            f"usual_batch={request.usual_batch} with largest_batch={request.largest_batch}",
            "a usual batch of at most the largest",
            "pass a larger largest_batch",
        )
    if request.calibration_cache and request.calibrator != "entropy":
        raise ComponentError(
            "calibration_cache with calibrator='explicit'",
            "calibrator='entropy', whose results are kept",
            "leave it out: explicit ranges lie in the ONNX file, which export_onnx can write once for many conversions",
        )
    if request.calibrator == "entropy" and request.precision != "int8":
        raise ComponentError(
            f"calibrator='entropy' with precision={request.precision!r}", "precision='int8'", "leave calibrator out"
        )
    if backend == "tf_trt":
        defaults = {field.name: field.default for field in fields(Request)}
        other = [name for name in NOT_TF_TRT if getattr(request, name) != defaults[name]]
        if request.precision in ("bf16", "tf32"):
            other.insert(0, f"precision={request.precision!r}")
        if other:
            raise ComponentError(
                f"{', '.join(other)} with backend='tf_trt'",
                "what TF-TRT has too",
                "leave it out, or pass backend='onnx'",
            )


def _check_int8(model: Model, examples: Examples | None, request: Request) -> None:
    own = "trained ranges" if has_trained_ranges(model) else "8-bit levels in it" if has_levels(model) else None
    if own and request.precision != "int8":
        raise ComponentError(
            f"precision={request.precision!r} for {model.name}, a model with {own}",
            "precision='int8', which takes them",
            "pass precision='int8', or give the model from before it was quantized",
        )
    if own and request.calibrator == "entropy":
        raise ComponentError(
            f"calibrator='entropy' for {model.name}, a model with {own}",
            "a model in floats: ranges are found once",
            "leave calibrator out, or give the model from before it was quantized",
        )
    if request.precision == "int8" and examples is None and not own:
        raise ComponentError(
            "precision='int8' without examples",
            "examples to calibrate on, or a model that has its ranges (from quantize, or an int8 ONNX file)",
            "pass examples=PATH, or precision='fp16', which needs none",
        )
    if request.precision == "int8" and examples and not own:
        examples.split(request.split)
