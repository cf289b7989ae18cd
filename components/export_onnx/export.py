"""Export of a model to ONNX, as a child process runs it: convert, quantize, verify."""

import gc
import tempfile
from collections import Counter
from pathlib import Path

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.components.export_onnx.parameters import OnnxConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.int8_overflow import is_range_reduced
from tfopt.conversion.verification import draw_held_out, measure_noise, verify
from tfopt.data.sample_inputs import split_batches
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.processes.memory import trim_heap


def export(model: Model, examples: Examples | None, target: Path, parameters: OnnxConversion) -> ConversionFacts:
    """Write ``Format-Serving`` to the staging folder ``target``, and return metadata for the model card."""
    import onnx

    from tfopt.conversion import onnx_export, onnx_float16, onnx_int8  # import TensorFlow, in the child only

    file = target / "Format-Serving" / "model.onnx"
    file.parent.mkdir()
    parent = runtimes.load(model)
    facts: ConversionFacts = {"opset": parameters.opset}
    sampled = None
    with tempfile.TemporaryDirectory(dir=target, prefix=".onnx-") as folder:
        scratch = Path(folder)
        keras_models.place_saved_model(model, scratch / "saved_model")
        converted = onnx_export.convert_saved_model(scratch / "saved_model", parameters.opset)
        if parameters.precision == "int8":
            onnx.save(converted, scratch / "float.onnx")
            if has_trained_ranges(model):
                facts |= onnx_int8.quantize_trained(scratch / "float.onnx", scratch / "int8.onnx")
            else:
                assert examples
                sampled, facts["calibration"] = calibration.sample_inputs(examples, parent.inputs, parameters)
                held_out, _ = draw_held_out(examples, parent, sampled, parameters)
                facts |= onnx_int8.quantize(
                    scratch / "float.onnx",
                    scratch / "int8.onnx",
                    list(split_batches(sampled, parent.inputs, 1)),
                    lambda form: measure_noise(parent, runtimes.load(OnnxModel(form)), held_out),
                    method=parameters.calibration,
                    per_channel=parameters.per_channel,
                    reduced=is_range_reduced(parameters.reduce_range),
                )
            converted = onnx.load(scratch / "int8.onnx")
    if parameters.precision == "float16":
        converted = onnx_float16.cast_float16(converted)
    onnx_export.check_model(converted)
    onnx.save(converted, file)
    facts["ops"] = dict(sorted(Counter(node.op_type for node in converted.graph.node).items()))
    del converted
    gc.collect()  # the converter's graphs are cycles, with dozens of copies of the weights
    trim_heap()
    with runtimes.load(OnnxModel(target)) as child:
        facts["verified"] = verify(parent, child, examples, sampled, parameters, parameters.precision)
    return {"precision": parameters.precision, **facts}
