"""Conversion of a model to TensorRT, as a child process runs it: to ONNX, to an engine, and compared twice."""

import tempfile
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, TensorRTModel
from tfopt.artifacts.tensor_spec import batched_tensors
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.conversion.verification import verify
from tfopt.data.batches import sample_records
from tfopt.data.feature_schema import feature_specs
from tfopt.tensorrt import machine, profiles
from tfopt.tensorrt.tag import CompatibilityTag
from tfopt.training.compute.device_memory import hide_gpus


def convert(
    model: Model,
    examples: Examples | None,
    target: Path,
    parameters: TensorRTConversion,
    sensitivities: SensitivityTable | None = None,
) -> ConversionFacts:
    """Write ``Format-Serving`` to the staging folder ``target``, and return metadata for the model card."""
    from tfopt.components.convert_tensorrt import onnx_network  # imports TensorFlow

    hide_gpus()  # the comparison needs outputs in float32, which TensorFlow would round to TF32 on a GPU
    here = machine.detect_machine()
    plan = target / "Format-Serving" / "model.plan"
    plan.parent.mkdir()
    with runtimes.load(model) as parent, tempfile.TemporaryDirectory(dir=target, prefix=".tensorrt-") as scratch:
        onnx_network.check_signature(parent, model.uri)
        profile = derive_profile(parent, examples, parameters)
        if examples is None:  # random inputs need sizes
            parent.inputs = profiles.with_usual_sizes(parent.inputs, profile)
        file = Path(scratch, "model.onnx")
        facts, sampled = onnx_network.write_network(model, examples, parent, file, parameters, sensitivities)
        from tfopt.components.convert_tensorrt import engine_builder  # imports TensorRT

        facts |= engine_builder.build(file, plan, profile, parent.inputs, sampled, model, parameters)
        largest = profile.largest_batch(batched_tensors(parent.inputs))
        CompatibilityTag(
            **here.__dict__, version_compatible=parameters.version_compatible, largest_batch=largest
        ).write(plan)
        with runtimes.load(TensorRTModel(target)) as child, onnx_network.name_comparison("the engine"):
            facts["verified"] = verify(parent, child, examples, sampled, parameters, parameters.precision)
    tag = CompatibilityTag.read(plan)
    return {"precision": parameters.precision, "profile": str(profile), "tag": tag.__dict__, **facts}


def derive_profile(
    parent: runtimes.Runtime, examples: Examples | None, parameters: TensorRTConversion
) -> profiles.Profile:
    """Derive the shapes to build the engine for; see `tfopt.tensorrt.profiles.derive_profile`."""
    stored = None
    if examples:
        split = parameters.split if parameters.split in examples.splits else next(iter(examples.splits))
        records = sample_records(examples.split(split), count=1, seed=parameters.seed)
        stored = feature_specs(records[0]) if records else None
    return profiles.derive_profile(
        parent.inputs,
        profiles.parse_shapes(parameters.shapes),
        stored,
        usual_batch=parameters.usual_batch,
        largest_batch=parameters.largest_batch,
    )
