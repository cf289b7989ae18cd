"""Export of a model to OpenVINO, as a child process runs it: convert, quantize, verify."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model, OpenVINOModel
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.verification import check_whole_inputs, draw_held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.measurement.comparison_budget import ComparisonBudget
from tfopt.measurement.parity import compare, noise
from tfopt.saved_models.state import check_stateless

BATCH = 32


def export(model: Model, examples: Examples | None, target: Path, parameters: OpenVINOConversion) -> ConversionFacts:
    """Write ``Format-Serving`` to the staging folder ``target``, and return metadata for the model card."""
    from tfopt.components.export_openvino import openvino_graph  # imports OpenVINO, only in the child process
    from tfopt.components.export_openvino.einsums import replace_einsums
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
        if parameters.precision == "int8" or openvino_graph.FAKE_QUANTIZE in openvino_graph.count_ops(converted):
            replace_einsums(converted)
            openvino_graph.keep_reduced_axes(converted)
            openvino_graph.split_rows_before_products(converted)
        if parameters.precision == "int8" and examples and not trained:
            sampled, facts["calibration"] = calibration.sample_inputs(examples, parent.inputs, parameters)
            facts["float32_bytes"] = _written_size(converted, openvino.save_model)
            converted, quantization_facts = _quantize(converted, parent, examples, sampled, parameters)
            facts |= quantization_facts
        if parameters.precision == "int8":
            facts |= {"computed_in": "int8 and float32", "layers_in_8_bits": openvino_graph.int8_layers(converted)}
        # In float16, only float32 weights in its range are stored in 16 bits.
        openvino.save_model(converted, file, compress_to_fp16=parameters.precision == "float16")
        facts["ops"] = openvino_graph.count_ops(converted)
        with runtimes.load(OpenVINOModel(target)) as child:
            facts["verified"] = verify(parent, child, examples, sampled, parameters, parameters.precision)
    return {"precision": parameters.precision, **facts}


def _written_size(converted: Any, save: Callable[..., None]) -> int:
    """Return the size of the files of a model, as they are written."""
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        save(converted, Path(folder, "model.xml"), compress_to_fp16=False)
        return sum(file.stat().st_size for file in Path(folder).iterdir())


def _quantize(
    converted: Any, parent: runtimes.Runtime, examples: Examples, sampled: Batch, parameters: OpenVINOConversion
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

    quantized, settings, method, facts = quantization.quantize(converted, feed, parameters, measure_error)
    if parameters.max_degradation is None:
        return quantized, facts
    controlled, control_facts = quantization.quantize_within_limit(
        *(converted, quantized, feed, list(split_batches(held_out, parent.inputs, 1)), parent),
        limit=parameters.max_degradation,
        settings=settings,
        method=method,
    )
    return controlled, facts | control_facts
