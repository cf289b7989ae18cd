"""Export of a model to OpenVINO, as a child process runs it: convert, quantize, verify."""

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model, OpenVINOModel
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.mixes.fastest_mix import minimize_latency
from tfopt.conversion.mixes.mixed_precision import limit_degradation
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.conversion.verification import check_whole_inputs, draw_held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.measurement.comparison_budget import ComparisonBudget
from tfopt.measurement.parity import compare, degradation, noise
from tfopt.saved_models.state import check_stateless

if TYPE_CHECKING:
    from tfopt.components.export_openvino.quantization import Quantization

BATCH = 32


def export(
    model: Model,
    examples: Examples | None,
    target: Path,
    parameters: OpenVINOConversion,
    sensitivities: SensitivityTable | None = None,
) -> ConversionFacts:
    """Write ``Format-Serving`` to the staging folder ``target``, and return metadata for the model card."""
    from tfopt.components.export_openvino import int8_graph, openvino_graph  # import OpenVINO, only in the child
    from tfopt.runtimes.openvino_import import openvino

    file = target / "Format-Serving" / "model.xml"
    file.parent.mkdir()
    trained = has_trained_ranges(model)
    facts: ConversionFacts = {"computed_in": "float32", "ranges": "trained" if trained else None}
    sampled = None
    with runtimes.load(model) as parent:
        openvino_graph.check_no_strings(parent.inputs | parent.outputs)
        check_whole_inputs(parent, examples, parameters)
        if model.format == "onnx" and model.onnx:
            converted = openvino_graph.convert(model.onnx)
        else:
            with tempfile.TemporaryDirectory(dir=target, prefix=".openvino-") as scratch:
                keras_models.place_saved_model(model, Path(scratch, "saved_model"))
                check_stateless(Path(scratch, "saved_model"), "an OpenVINO file")
                converted = openvino_graph.convert(Path(scratch, "saved_model"))
        is_quantized = parameters.precision in ("int8", "auto")
        if is_quantized or openvino_graph.FAKE_QUANTIZE in openvino_graph.count_ops(converted):
            int8_graph.prepare(converted)
        if is_quantized and examples and not trained:
            sampled, facts["calibration"] = calibration.sample_inputs(examples, parent.inputs, parameters)
            facts["float32_bytes"] = openvino_graph.written_size(converted)
            search = parameters, sensitivities
            converted, quantization_facts = _quantize(converted, parent, examples, sampled, *search)
            facts |= quantization_facts
        if is_quantized:
            in_8_bits = openvino_graph.int8_layers(converted)
            facts |= {"computed_in": "int8 and float32" if in_8_bits else "float32", "layers_in_8_bits": in_8_bits}
        # In float16, only float32 weights in its range are stored in 16 bits.
        openvino.save_model(converted, file, compress_to_fp16=parameters.precision == "float16")
        facts["ops"] = openvino_graph.count_ops(converted)
        with runtimes.load(OpenVINOModel(target)) as child:
            facts["verified"] = verify(parent, child, examples, sampled, parameters, parameters.precision)
    return {"precision": parameters.precision, **facts}


def _quantize(
    converted: Any,
    parent: runtimes.Runtime,
    examples: Examples,
    sampled: Batch,
    parameters: OpenVINOConversion,
    sensitivities: SensitivityTable | None,
) -> tuple[Any, ConversionFacts]:
    from tfopt.components.export_openvino import quantization  # imports NNCF
    from tfopt.runtimes.openvino import OpenVINORuntime, compile_model

    feed = list(split_batches(sampled, parent.inputs, 1))
    held_out, _ = draw_held_out(examples, parent, sampled, parameters)
    batches = list(split_batches(held_out, parent.inputs, BATCH))

    def measure_error(form: Any) -> float:
        with OpenVINORuntime(compile_model(form), "an int8 form") as child:
            budget = ComparisonBudget(parent.inputs)
            return noise(compare(parent, child, batches, budget=budget).values())

    form, facts = quantization.quantize(converted, feed, parameters, measure_error)
    if parameters.precision == "auto":
        mix, mix_facts = _find_mix(form, batches, parent, parameters, sensitivities)
        return mix, facts | mix_facts
    if parameters.max_degradation is None:
        return form.quantized, facts
    single = list(split_batches(held_out, parent.inputs, 1))
    controlled, control_facts = quantization.quantize_within_limit(form, single, parent, parameters.max_degradation)
    return controlled, facts | control_facts


def _find_mix(
    form: "Quantization",
    held_out: list[Batch],
    parent: runtimes.Runtime,
    parameters: OpenVINOConversion,
    sensitivities: SensitivityTable | None,
) -> tuple[Any, ConversionFacts]:
    """Return the smallest or fastest mix of precisions that meets the limit, and metadata for the model card."""
    from tfopt.components.export_openvino.mixed_file import MixedFile  # imports NNCF
    from tfopt.components.export_openvino.quantization import CachedRuntime
    from tfopt.runtimes.openvino import OpenVINORuntime, compile_model

    cached_parent = CachedRuntime(parent)

    def measure(mix: Any) -> float:
        with OpenVINORuntime(compile_model(mix), "a mix") as child:
            return degradation(compare(cached_parent, child, held_out).values())

    search = minimize_latency if parameters.minimize == "latency" else partial(limit_degradation, mixed=True)
    assert parameters.max_degradation is not None
    mixed = MixedFile(form.source, form.feed, form.leave_in_float)
    return search(mixed, parameters.max_degradation, measure, sensitivities=sensitivities)
