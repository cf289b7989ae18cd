"""The whole export, as it runs in a child process: convert, quantize, verify."""

import tempfile
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, OpenVINOModel
from tfopt.components.export_openvino.request import Request
from tfopt.conversion import calibration
from tfopt.conversion.verify import held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import cut
from tfopt.keras_models import io as keras_models
from tfopt.keras_models.quantization_aware import has_trained_ranges


def export(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be converted, or the files do not answer as their parent does.
    """
    from tfopt.components.export_openvino import conversion  # OpenVINO, in the child alone

    file = target / "Format-Serving" / "model.xml"
    file.parent.mkdir()
    trained = has_trained_ranges(model)
    facts: dict[str, Any] = {"computed_in": "float32", "ranges": "trained" if trained else None}
    sampled = None
    with runtimes.load(model) as parent:
        conversion.check_no_text(parent.inputs | parent.outputs)
        converted = _converted(model, target)
        if request.precision == "int8" and examples and not trained:
            sampled, facts["calibration"] = calibration.sample(examples, parent.inputs, request)
            converted, made = _quantized(converted, parent, examples, sampled, request)
            facts |= made
        if request.precision == "int8":
            facts |= {"computed_in": "int8 and float32", "layers_in_8_bits": conversion.layers_in_8_bits(converted)}
        conversion.save(converted, file, halved=request.precision == "float16")
        facts["ops"] = conversion.ops_of(converted)
        with runtimes.load(OpenVINOModel(target)) as child:
            facts["verified"] = verify(parent, child, examples, sampled, request)
    return {"precision": request.precision, **facts}


def _converted(model: Model, target: Path) -> Any:
    from tfopt.components.export_openvino import conversion

    if model.format == "onnx" and model.onnx:
        return conversion.convert(model.onnx)
    with tempfile.TemporaryDirectory(dir=target, prefix=".openvino-") as scratch:
        keras_models.place_saved_model(model, Path(scratch, "saved_model"))
        return conversion.convert(Path(scratch, "saved_model"))


def _quantized(
    converted: Any, parent: runtimes.Runtime, examples: Examples, sampled: Batch, request: Request
) -> tuple[Any, dict[str, Any]]:
    from tfopt.components.export_openvino import accuracy_control as accuracy
    from tfopt.components.export_openvino import quantization

    feed = list(cut(sampled, parent.inputs, 1))
    plain, settings, facts = quantization.quantize(converted, feed, request)
    if request.max_degradation is None:
        return plain, facts
    given, _ = held_out(examples, parent, sampled, request)
    checked = list(cut(given, parent.inputs, 1))
    made, held = accuracy.hold(converted, plain, feed, checked, parent, request.max_degradation, settings)
    return made, facts | held
