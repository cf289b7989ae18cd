"""The whole export, as it runs in a child process: convert, quantize, verify."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tfopt import calibration, keras_models, runtimes
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.components.export_onnx.request import Request
from tfopt.overflow import needs_reduced_range
from tfopt.probes import cut
from tfopt.trained_ranges import has_trained_ranges
from tfopt.verification import verify


def export(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be converted, or the file does not answer as its parent does.
    """
    import onnx

    from tfopt import onnx_conversion, onnx_precision, onnx_quantization, onnx_trained  # TensorFlow, in the child alone

    file = target / "Format-Serving" / "model.onnx"
    file.parent.mkdir()
    parent = runtimes.load(model)
    facts: dict[str, Any] = {"opset": request.opset}
    sampled = None
    with tempfile.TemporaryDirectory(dir=target, prefix=".onnx-") as scratch:
        keras_models.place_saved_model(model, Path(scratch, "saved_model"))
        converted = onnx_conversion.convert(Path(scratch, "saved_model"), request.opset)
        if request.precision == "int8" and has_trained_ranges(model):
            onnx.save(converted, Path(scratch, "float.onnx"))
            facts |= onnx_trained.quantize(Path(scratch, "float.onnx"), Path(scratch, "int8.onnx"))
            converted = onnx.load(Path(scratch, "int8.onnx"))
        elif request.precision == "int8" and examples:
            sampled, facts["calibration"] = calibration.sample(examples, parent.inputs, request)
            feed = list(cut(sampled, parent.inputs, 1))
            onnx.save(converted, Path(scratch, "float.onnx"))
            facts |= onnx_quantization.quantize(
                Path(scratch, "float.onnx"),
                Path(scratch, "int8.onnx"),
                feed,
                per_channel=request.per_channel,
                reduced=needs_reduced_range() if request.reduce_range == "auto" else request.reduce_range == "on",
            )
            converted = onnx.load(Path(scratch, "int8.onnx"))
    if request.precision == "float16":
        converted = onnx_precision.half(converted)
    onnx_conversion.check(converted)
    onnx.save(converted, file)
    facts["ops"] = dict(sorted(Counter(node.op_type for node in converted.graph.node).items()))
    with runtimes.load(OnnxModel(target)) as child:
        facts["verified"] = verify(parent, child, examples, sampled, request)
    return {"precision": request.precision, **facts}
