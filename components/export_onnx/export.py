"""The whole export, as it runs in a child process: convert, quantize, verify."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.components.export_onnx.request import Request
from tfopt.conversion import calibration
from tfopt.conversion.int8_overflow import needs_reduced_range
from tfopt.conversion.verify import verify
from tfopt.data.sample_inputs import cut
from tfopt.keras_models import io as keras_models
from tfopt.keras_models.quantization_aware import has_trained_ranges


def export(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be converted, or the file does not answer as its parent does.
    """
    import onnx

    from tfopt.conversion import onnx_export as onnx_conversion
    from tfopt.conversion import onnx_float16 as onnx_precision
    from tfopt.conversion import onnx_int8 as onnx_quantization
    from tfopt.conversion import onnx_qat as onnx_trained

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
