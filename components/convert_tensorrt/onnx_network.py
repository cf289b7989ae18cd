"""The ONNX file that TensorRT builds, with its precision, compared with its parent on the CPU."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx

from tfopt import keras_models
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.artifacts.model_card import Verification
from tfopt.components.convert_tensorrt import float8_scales, int8_scales
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.convert import is_quantized
from tfopt.conversion.onnx import float16 as onnx_float16
from tfopt.conversion.onnx import int8 as onnx_int8
from tfopt.conversion.onnx import saved_model_export as onnx_export
from tfopt.conversion.onnx.float_part import read_constants
from tfopt.conversion.verification import compare_held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.errors import ComponentError
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.measurement.parity import noise
from tfopt.runtimes import Runtime
from tfopt.runtimes.onnx import OnnxRuntime
from tfopt.runtimes.tensorrt import DTYPES

OPSET = 18


def check_signature(parent: Runtime, uri: str) -> None:
    """Raise ComponentError unless TensorRT supports the dtypes of all inputs and outputs."""
    for name, spec in (parent.inputs | parent.outputs).items():
        if spec.dtype == "string":
            expected = "numeric inputs and outputs; TensorRT supports nothing else"
            raise ComponentError(f"{uri}: {name!r} is a string", expected, "look words up before the model")
        if spec.dtype not in DTYPES.values():
            fix = "export the model with float32 or int32 there, and cast inside it"
            raise ComponentError(f"{uri}: {name!r} is {spec}", f"one of {', '.join(DTYPES.values())}", fix)


def write_network(
    model: Model, examples: Examples | None, parent: Runtime, file: Path, parameters: TensorRTConversion
) -> tuple[ConversionFacts, Batch | None]:
    """Write the ONNX file in the requested precision; return metadata for the model card, and the calibration inputs.

    With the calibrator ``entropy`` the file stays in floats, and TensorRT calibrates on the returned inputs.
    """
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".onnx-") as scratch:
        if model.format == "onnx" and model.onnx:
            network = onnx.load(model.onnx)
            onnx_export.check_model(network)
        else:
            keras_models.place_saved_model(model, Path(scratch, "saved_model"))
            network = onnx_export.convert_saved_model(Path(scratch, "saved_model"), OPSET)
        facts: ConversionFacts = {}
        sampled = None
        if parameters.needs_inputs:
            network, facts, sampled = _quantize(network, model, examples, parent, Path(scratch), parameters)
    if parameters.precision == "fp16":
        network = onnx_float16.cast_float16(network)
    onnx.save(network, file)
    # bfloat16 is compared before the cast: ONNX Runtime has no such kernels on CPUs.
    facts["onnx"] = _verify(examples, parent, file, sampled, parameters)
    if parameters.precision == "bf16":
        network = onnx_float16.cast_bfloat16(network)
        onnx.save(network, file)
    facts["opset"] = network.opset_import[0].version
    return facts, sampled


def _quantize(
    network: onnx.ModelProto,
    model: Model,
    examples: Examples | None,
    parent: Runtime,
    scratch: Path,
    parameters: TensorRTConversion,
) -> tuple[onnx.ModelProto, ConversionFacts, Batch | None]:
    """Return the network with its own, trained or calibrated scales; for ``entropy``, the float network."""
    source, target = scratch / "float.onnx", scratch / "int8.onnx"
    sampled, weights = None, {}
    facts: ConversionFacts = {"ranges": "given"}
    if not is_quantized(model):
        onnx.save(network, source)
    if has_trained_ranges(model):
        facts = onnx_int8.quantize_trained(source, target)
    elif not is_quantized(model):
        assert examples
        sampled, description = calibration.sample_inputs(examples, parent.inputs, parameters)
        facts = {"ranges": parameters.calibrator, "calibration": description}
        if parameters.calibrator == "entropy":
            return network, facts, sampled
        feed = list(split_batches(sampled, parent.inputs, 1))
        quantizable = onnx_int8.QuantizableFile(source, scratch, feed, per_channel=True, **onnx_int8.SYMMETRIC)

        def measure_noise(form: onnx.ModelProto) -> float:
            onnx.save(form, scratch / "form.onnx")
            child = OnnxRuntime(OnnxModel(scratch / "form.onnx"), unfused=True)
            return noise(compare_held_out(parent, child, examples, sampled, parameters))

        facts |= quantizable.choose_ranges(parameters.calibration, measure_noise)
        facts |= {"reduce_range": False, **quantizable.facts}
        onnx.save(quantizable.quantize(), target)
        weights = read_constants(onnx.load(quantizable.prepared).graph)
    if target.exists():
        network = onnx.load(target)
    int8_scales.check_quantized(network, parameters.precision)
    facts |= {"levels": int8_scales.make_symmetric(network)}
    if parameters.precision == "fp8":
        network = float8_scales.cast_float8(network, weights)
    return network, facts, sampled


def _verify(
    examples: Examples | None, parent: Runtime, file: Path, sampled: Batch | None, parameters: TensorRTConversion
) -> Verification:
    """Compare the file with its parent, as float32 if TensorRT applies the precision later."""
    exact = parameters.precision in ("fp32", "tf32", "bf16") or parameters.calibrator == "entropy"
    with (
        OnnxRuntime(OnnxModel(file), unfused=True) as child,  # GPUs do not overflow
        name_comparison("the ONNX file on the CPU, from which no engine was built yet"),
    ):
        return verify(parent, child, examples, sampled, parameters, "fp32" if exact else parameters.precision)


@contextlib.contextmanager
def name_comparison(subject: str) -> Iterator[None]:
    """Add to a refusal inside of the block which file was compared with the parent."""
    try:
        yield
    except ComponentError as error:
        raise ComponentError(f"{subject}: {error.received}", error.expected, error.fix) from error
