"""The ONNX file that TensorRT builds, with its precision, compared with its parent on the CPU."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.artifacts.model_card import Verification
from tfopt.components.convert_tensorrt import float8_scales, float16_scales, int8_scales
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.convert import is_quantized
from tfopt.conversion.mixes.mixed_precision import limit_degradation
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.conversion.onnx import float16 as onnx_float16
from tfopt.conversion.onnx import int8 as onnx_int8
from tfopt.conversion.onnx import saved_model_export as onnx_export
from tfopt.conversion.onnx.float_part import read_constants
from tfopt.conversion.verification import compare_held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.errors import ComponentError
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.measurement.parity import Parity, degradation, noise
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
    model: Model,
    examples: Examples | None,
    parent: Runtime,
    file: Path,
    parameters: TensorRTConversion,
    sensitivities: SensitivityTable | None = None,
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
            network, facts, sampled = _quantize(
                network, model, examples, parent, Path(scratch), parameters, sensitivities
            )
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
    sensitivities: SensitivityTable | None,
) -> tuple[onnx.ModelProto, ConversionFacts, Batch | None]:
    """Return the network with its own, trained or calibrated scales; for ``entropy``, the float network."""
    source, target = scratch / "float.onnx", scratch / "int8.onnx"
    sampled, weights = None, {}
    facts: ConversionFacts = {"ranges": "given"}
    if not is_quantized(model):
        onnx.save(network, source)
    if has_trained_ranges(model):
        facts = onnx_int8.quantize_trained(source, target)
        network = onnx.load(target)
    elif not is_quantized(model):
        assert examples
        sampled, description = calibration.sample_inputs(examples, parent.inputs, parameters)
        facts = {"ranges": parameters.calibrator, "calibration": description}
        if parameters.calibrator == "entropy":
            return network, facts, sampled
        feed = list(split_batches(sampled, parent.inputs, 1))
        quantizable = onnx_int8.QuantizableFile(source, scratch, feed, per_channel=True, **onnx_int8.SYMMETRIC)

        def compare_form(form: onnx.ModelProto) -> list[Parity]:
            onnx.save(form, scratch / "form.onnx")
            child = OnnxRuntime(OnnxModel(scratch / "form.onnx"), unfused=True)
            return compare_held_out(parent, child, examples, sampled, parameters)

        def measure_degradation(form: onnx.ModelProto) -> float:
            copy = onnx.ModelProto()
            copy.CopyFrom(form)
            return degradation(compare_form(_cast(copy, parameters.precision, {})[0]))

        facts |= quantizable.choose_ranges(parameters.calibration, lambda form: noise(compare_form(form)))
        facts |= {"reduce_range": False, **quantizable.facts}
        network, mix_facts = _limit_degradation(quantizable, parameters, measure_degradation, sensitivities)
        facts |= mix_facts
        weights = read_constants(onnx.load(quantizable.prepared).graph)
    if parameters.precision != "auto":  # a mix may have no layer in int8
        int8_scales.check_quantized(network, parameters.precision)
    network, levels = _cast(network, parameters.precision, weights)
    return network, facts | {"levels": levels}, sampled


def _cast(
    network: onnx.ModelProto, precision: str, weights: dict[str, NDArray[np.float32]]
) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Return a quantized network with the levels and types that TensorRT reads, and the numbers of changed levels."""
    levels = int8_scales.make_symmetric(network)
    if precision == "fp8":
        network = float8_scales.cast_float8(network, weights)
    if precision == "auto":
        network = float16_scales.cast_between_layers(network)
    return network, levels


def _limit_degradation(
    quantizable: onnx_int8.QuantizableFile,
    parameters: TensorRTConversion,
    measure: Callable[[onnx.ModelProto], float],
    sensitivities: SensitivityTable | None,
) -> tuple[onnx.ModelProto, ConversionFacts]:
    """Return the form with as many layers in int8 as max_degradation allows, and metadata for the model card."""
    if parameters.max_degradation is None:
        return quantizable.quantize(), {}
    is_mix = parameters.precision == "auto"
    form, facts = limit_degradation(
        quantizable, parameters.max_degradation, measure, mixed=is_mix, sensitivities=sensitivities
    )
    if is_mix:  # the search knows float32 only, and the others are cast afterwards
        facts["raised"] = dict.fromkeys(facts["raised"], "float16")
    for attempt in facts["tried"]:
        del attempt["bytes"]  # of a file in float32, not of an engine
    return form, facts


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
