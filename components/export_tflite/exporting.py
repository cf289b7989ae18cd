"""The whole export, as it runs in a child process: calibrate, convert, verify."""

from pathlib import Path
from typing import Any

from tfopt import calibration, keras_models, runtimes
from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.components.export_tflite.request import Request
from tfopt.errors import ComponentError
from tfopt.examples import Batch
from tfopt.probes import cut
from tfopt.trained_ranges import has_trained_ranges
from tfopt.verification import verify

ADVICE = {
    "float32": "pass a larger tolerance if this is known to be harmless",
    "float16": "choose float32; values may be out of float16's range",
    "dynamic": "choose float16 or float32",
    "int8": "calibrate on more and more typical examples, or choose int16x8, dynamic or float16",
    "int16x8": "calibrate on more and more typical examples, or choose dynamic or float16",
}


def export(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be converted, or the file does not answer as its parent does.
    """
    from tfopt.components.export_tflite import conversion, flatbuffer  # TensorFlow, in the child alone

    serving = target / "Format-Serving"
    keras_models.place_saved_model(model, serving)
    parent = runtimes.load(model)
    sampled, feed, facts = None, None, {}
    trained = has_trained_ranges(model)
    if request.precision in conversion.INTEGER and examples and not trained:
        sampled, facts["calibration"] = calibration.sample(
            examples, parent.inputs, count=request.calibration_count, split=request.split, seed=request.seed
        )
        feed = list(cut(sampled, parent.inputs, 1))
    content = conversion.convert(serving, request, feed)
    facts["ops"] = flatbuffer.describe(content)
    (serving / "tflite").write_bytes(content)
    facts["verified"] = _verify(parent, TFLiteModel(target), examples, sampled, facts["ops"], request)
    name = f"tflite {request.precision}" + (" integer io" if request.integer_io else "")
    return {"name": name, "precision": request.precision, "ranges": "trained" if trained else None, **facts}


def _verify(
    parent: runtimes.Runtime,
    child: TFLiteModel,
    examples: Examples | None,
    sampled: Batch | None,
    ops: dict[str, Any],
    request: Request,
) -> dict[str, Any]:
    if ops["flex"]:
        return {"run": False, "reason": f"needs TensorFlow's Flex delegate for {', '.join(ops['flex'])}"}
    floats = sorted(name for name, dtype in ops["io"].items() if "FLOAT" in dtype)
    if request.integer_io and floats:
        raise ComponentError(
            f"{', '.join(floats)}: float in the converted file",
            "integer inputs and outputs",
            "leave integer_io out: an op beside them has no integer kernel",
        )
    with runtimes.load(child) as loaded:
        return verify(
            parent,
            loaded,
            examples,
            sampled,
            precision=request.precision,
            tolerance=request.tolerance,
            split=request.split,
            seed=request.seed,
            advice=ADVICE[request.precision],
        )
