"""Export of a model to ONNX, as a child process runs it: convert, quantize, verify."""

import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.components.export_onnx.parameters import OnnxConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.int8_overflow import is_range_reduced
from tfopt.conversion.mixes.fastest_mix import minimize_latency
from tfopt.conversion.mixes.mixed_precision import limit_degradation
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.conversion.verification import check_whole_inputs, compare_held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.measurement.parity import Parity, degradation, noise
from tfopt.processes.memory import free_graphs
from tfopt.runtimes import Runtime

if TYPE_CHECKING:
    import onnx


def export(
    model: Model,
    examples: Examples | None,
    target: Path,
    parameters: OnnxConversion,
    sensitivities: SensitivityTable | None = None,
) -> ConversionFacts:
    """Write ``Format-Serving`` to the staging folder ``target``, and return metadata for the model card."""
    import onnx

    from tfopt.conversion.onnx import float16 as onnx_float16  # import TensorFlow, in the child only
    from tfopt.conversion.onnx import int8 as onnx_int8
    from tfopt.conversion.onnx import saved_model_export as onnx_export

    file = target / "Format-Serving" / "model.onnx"
    file.parent.mkdir()
    parent = runtimes.load(model)
    check_whole_inputs(parent, examples, parameters)
    facts: ConversionFacts = {"opset": parameters.opset}
    sampled = None
    with tempfile.TemporaryDirectory(dir=target, prefix=".onnx-") as folder:
        scratch = Path(folder)
        keras_models.place_saved_model(model, scratch / "saved_model")
        converted = onnx_export.convert_saved_model(scratch / "saved_model", parameters.opset)
        if parameters.precision in ("dynamic", "int8", "auto"):
            onnx.save(converted, scratch / "float.onnx")
            if has_trained_ranges(model):
                in_four = parameters.opset == onnx_export.NEWEST  # a lower one is for an older runtime
                facts |= onnx_int8.quantize_trained(scratch / "float.onnx", scratch / "int8.onnx", in_four=in_four)
                converted = onnx.load(scratch / "int8.onnx")
            else:
                facts["float32_bytes"] = converted.ByteSize()
                del converted  # the file has it
                if parameters.precision == "dynamic":
                    converted, quantized = _quantize_dynamically(scratch, parameters)
                else:
                    assert examples
                    converted, sampled, quantized = _quantize(parent, examples, scratch, parameters, sensitivities)
                facts |= quantized
    if parameters.precision == "float16":
        converted = onnx_float16.cast_float16(converted)
    if parameters.precision != "float32":
        onnx_export.check_model(converted)
    onnx.save(converted, file)
    facts["ops"] = dict(sorted(Counter(node.op_type for node in converted.graph.node).items()))
    del converted
    free_graphs()
    with runtimes.load(OnnxModel(target)) as child:
        facts["verified"] = verify(parent, child, examples, sampled, parameters, parameters.precision)
    return {"precision": parameters.precision, **facts}


def _quantize_dynamically(scratch: Path, parameters: OnnxConversion) -> tuple["onnx.ModelProto", ConversionFacts]:
    """Return ``float.onnx`` with weights in 8 bits and ranges that are computed in each call, and metadata."""
    from tfopt.conversion.onnx import dynamic as onnx_dynamic  # imports TensorFlow

    return onnx_dynamic.quantize(scratch / "float.onnx", scratch, **_weight_options(parameters))


def _weight_options(parameters: OnnxConversion) -> dict[str, bool]:
    """Return the arguments of ONNX Runtime's quantizers about weights."""
    return {"per_channel": parameters.per_channel, "reduce_range": is_range_reduced(parameters.reduce_range)}


def _quantize(
    parent: Runtime,
    examples: Examples,
    scratch: Path,
    parameters: OnnxConversion,
    sensitivities: SensitivityTable | None,
) -> tuple["onnx.ModelProto", Batch, ConversionFacts]:
    """Return ``float.onnx`` in 8 bits or a mix, the inputs that it was calibrated on, and metadata for the card."""
    import onnx

    from tfopt.conversion.onnx import int8 as onnx_int8  # imports TensorFlow
    from tfopt.conversion.onnx.quantizer_names import shorten_names

    sampled, calibrated = calibration.sample_inputs(examples, parent.inputs, parameters)
    mixed, limit = parameters.precision == "auto", parameters.max_degradation
    feed = list(split_batches(sampled, parent.inputs, 1))
    options = _weight_options(parameters)
    quantizable = onnx_int8.QuantizableFile(
        scratch / "float.onnx", scratch, feed, lowest="int4" if mixed else "int8", **options
    )

    def compare_form(form: "onnx.ModelProto") -> list[Parity]:
        onnx.save(form, scratch / "form.onnx")
        child = runtimes.load(OnnxModel(scratch / "form.onnx"))
        return compare_held_out(parent, child, examples, sampled, parameters)

    facts: ConversionFacts = {"calibration": calibrated}
    facts |= quantizable.choose_ranges(parameters.calibration, lambda form: noise(compare_form(form)))
    facts |= {"reduce_range": options["reduce_range"], **quantizable.facts}
    if limit is None:
        converted = quantizable.quantize()
    else:
        search = minimize_latency if parameters.minimize == "latency" else partial(limit_degradation, mixed=mixed)
        converted, mix_facts = search(
            quantizable, limit, lambda form: degradation(compare_form(form)), sensitivities=sensitivities
        )
        facts |= mix_facts | quantizable.facts  # with those of the rounding
    shorten_names(converted)
    return converted, sampled, facts
