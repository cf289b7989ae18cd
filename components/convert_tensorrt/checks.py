"""What is refused in the first second, before anything heavy is imported."""

from dataclasses import fields

from tfopt.artifacts import Examples, Model
from tfopt.components.convert_tensorrt.request import Request
from tfopt.conversion import convert as conversion
from tfopt.errors import ComponentError
from tfopt.tensorrt import machine

SOURCES = {"onnx": ("saved_model", "keras", "onnx"), "tf_trt": ("saved_model", "keras")}
# What TF-TRT has not: engines lie in its SavedModel, and are built and tuned by it alone.
NOT_TF_TRT = ("shapes", "calibrator", "calibration_cache", "timing_cache", "sparse", "version_compatible")


def check(model: Model, examples: Examples | None, backend: str, request: Request) -> None:
    """Raise ComponentError where a conversion cannot go well: what was asked for first, then the machine."""
    levels = "which has 8-bit levels in it" if has_levels(model) else None
    own = conversion.check(model, examples, request, SOURCES[backend], needs_none="fp16", ranges=levels)
    _check_wishes(backend, request)
    if own and request.calibrator == "entropy":
        raise ComponentError(
            f"calibrator='entropy' for {model.name}, {levels or 'whose 8-bit ranges were trained'}",
            "a model in floats: ranges are found once",
            "leave calibrator out, or give the model from before it was quantized",
        )
    # It converts no FakeQuant with a range for each channel, and without calibration wants a range for every tensor.
    if own and backend == "tf_trt":
        raise ComponentError(
            f"backend='tf_trt' for {model.name}, whose 8-bit ranges were trained",
            "a model in floats, whose ranges TF-TRT finds itself",
            "pass backend='onnx', which takes trained ranges, or give the model from before it was quantized",
        )
    if backend == "onnx":
        machine.find()


def has_levels(model: Model) -> bool:
    """Whether an ONNX file is quantized: its operators' names are in it as text."""
    return bool(model.format == "onnx" and model.onnx and b"QuantizeLinear" in model.onnx.read_bytes())


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
