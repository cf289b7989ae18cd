"""The whole export, as it runs in a child process: calibrate, convert, verify."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.components.export_tflite.request import Request
from tfopt.conversion import calibration
from tfopt.conversion.verify import held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import cut
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.measurement.parity import compare, degradation


def export(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be converted, or the file does not answer as its parent does.
    """
    from tfopt.components.export_tflite import flatbuffer  # TensorFlow, in the child alone
    from tfopt.components.export_tflite import litert_converter as conversion
    from tfopt.components.export_tflite import quantize as quantizing

    serving = target / "Format-Serving"
    keras_models.place_saved_model(model, serving)
    parent = runtimes.load(model)
    sampled, feed = None, None
    facts: dict[str, Any] = {}
    trained = has_trained_ranges(model)
    calibrated = request.precision in conversion.INTEGER and not trained
    if examples and (calibrated or request.max_degradation is not None):
        sampled, drawn = calibration.sample(examples, parent.inputs, request)
        feed = list(cut(sampled, parent.inputs, 1))
        facts |= {"calibration": drawn} if calibrated else {}
    content, made = quantizing.quantize(
        serving, request, feed, calibrated, _measure(parent, examples, sampled, request)
    )
    facts |= made | {"ops": flatbuffer.describe(content)}
    (serving / "tflite").write_bytes(content)
    facts["verified"] = _verify(parent, TFLiteModel(target), examples, sampled, facts["ops"], request)
    return {"precision": request.precision, "ranges": "trained" if trained else None, **facts}


def _measure(
    parent: runtimes.Runtime, examples: Examples | None, sampled: Batch | None, request: Request
) -> Callable[[bytes], float]:
    """How far a file degrades, on records it was not calibrated on."""

    def degraded(content: bytes) -> float:
        given, _ = held_out(examples, parent, sampled, request)
        with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
            Path(file.name).write_bytes(content)
            with _load(TFLiteModel(file.name), request) as child:
                return degradation(compare(parent, child, cut(given, parent.inputs, 32)).values())

    return degraded


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
    with _load(child, request) as loaded:
        return verify(parent, loaded, examples, sampled, request)


def _load(child: TFLiteModel, request: Request) -> runtimes.Runtime:
    try:
        return runtimes.load(child)
    except ComponentError as error:
        if request.precision == "int4" or request.recipe:
            raise ComponentError(
                f"layers of kinds that LiteRT does not load: {error.received}",
                "kinds that it has for them",
                "choose another for the layer named there, by recipe; of zeros alone, 4 bits have no scale",
            ) from error
        if not request.sparse:
            raise
        raise ComponentError(
            f"a sparse {request.precision} file, which LiteRT converts but does not load: {error.received}",
            "sparse with precision float32 or float16",
            "choose one of these, or leave sparse out",
        ) from error
