"""The ONNX file that TensorRT builds: its precision written into it, and its answers compared with the parent's."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.components.convert_tensorrt import int8_scales as levels
from tfopt.components.convert_tensorrt.checks import has_levels
from tfopt.components.convert_tensorrt.request import Request
from tfopt.conversion import calibration
from tfopt.conversion import onnx_export as onnx_conversion
from tfopt.conversion import onnx_float16 as onnx_precision
from tfopt.conversion import onnx_int8 as onnx_quantization
from tfopt.conversion import onnx_qat as onnx_trained
from tfopt.conversion.verify import verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import cut
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.runtimes import Runtime
from tfopt.runtimes.tensorrt import DTYPES

OPSET = 18


def check_signature(parent: Runtime, uri: str) -> None:
    """Raise ComponentError unless TensorRT has every type of the inputs and outputs."""
    for name, spec in (parent.inputs | parent.outputs).items():
        if spec.dtype == "string":
            raise ComponentError(
                f"{uri}: {name!r} is text",
                "numbers in and out, which is all that TensorRT has",
                "look words up before the model, or choose export_onnx, which takes text",
            )
        if spec.dtype not in DTYPES.values():
            raise ComponentError(
                f"{uri}: {name!r} is {spec}",
                f"one of {', '.join(DTYPES.values())}",
                "cast it inside the model, to float32 or int32",
            )


def prepare(
    model: Model, examples: Examples | None, parent: Runtime, file: Path, request: Request
) -> tuple[dict[str, Any], Batch | None]:
    """Write the ONNX file in the precision asked for; return what the card says of it, and what it was calibrated on.

    With the calibrator ``entropy`` the file stays in floats, and what is returned is to calibrate on.

    Raises:
        ComponentError: When the model cannot be converted, or the file does not answer as the parent does.
    """
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".onnx-") as scratch:
        network = _network(model, Path(scratch))
        facts: dict[str, Any] = {}
        sampled = None
        if request.precision == "int8":
            network, told, sampled = _whole_numbers(network, model, examples, parent, Path(scratch), request)
            facts = told
    # What is computed on the CPU is compared before the cast to bfloat16, which ONNX Runtime has no kernels for there.
    if request.precision == "fp16":
        network = onnx_precision.half(network)
    onnx.save(network, file)
    facts["onnx"] = _verified(model, examples, parent, file, sampled, request)
    if request.precision == "bf16":
        network = onnx_precision.bfloat(network)
        onnx.save(network, file)
    facts["opset"] = network.opset_import[0].version
    return facts, sampled


def _network(model: Model, scratch: Path) -> onnx.ModelProto:
    if model.format == "onnx" and model.onnx:
        network = onnx.load(model.onnx)
        onnx_conversion.check(network)
        return network
    keras_models.place_saved_model(model, scratch / "saved_model")
    return onnx_conversion.convert(scratch / "saved_model", OPSET)


def _whole_numbers(
    network: onnx.ModelProto, model: Model, examples: Examples | None, parent: Runtime, scratch: Path, request: Request
) -> tuple[onnx.ModelProto, dict[str, Any], Batch | None]:
    """The levels that are there, that were trained, or that are found on the examples; entropy finds them later."""
    source, target = scratch / "float.onnx", scratch / "int8.onnx"
    sampled = None
    facts: dict[str, Any] = {"ranges": "given"}
    if not has_levels(model):
        onnx.save(network, source)
    if has_trained_ranges(model):
        facts = onnx_trained.quantize(source, target)
    elif not has_levels(model):
        assert examples
        sampled, found = calibration.sample(examples, parent.inputs, request)
        facts = {"ranges": request.calibrator, "calibration": found}
        if request.calibrator == "entropy":
            return network, facts, sampled
        feed = list(cut(sampled, parent.inputs, 1))
        facts |= onnx_quantization.quantize(source, target, feed, per_channel=True, symmetric=True)
    if target.exists():
        network = onnx.load(target)
    levels.check(network)
    return network, facts | {"levels": levels.symmetric(network)}, sampled


def _verified(
    model: Model, examples: Examples | None, parent: Runtime, file: Path, sampled: Batch | None, request: Request
) -> dict[str, Any]:
    """Compare the file with its parent, both on the CPU; in floats where the precision is TensorRT's doing."""
    exact = request.precision in ("fp32", "tf32", "bf16") or request.calibrator == "entropy"
    asked = replace(request, precision="fp32" if exact else request.precision)
    with runtimes.load(OnnxModel(file)) as child:
        return verify(parent, child, examples, sampled, asked)
