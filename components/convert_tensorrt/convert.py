"""The whole conversion, as it runs in a child process: to ONNX, to an engine, and compared twice."""

import tempfile
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, TensorRTModel
from tfopt.artifacts.tensor_spec import TensorSpec, batched
from tfopt.components.convert_tensorrt.request import Request
from tfopt.conversion.verify import verify
from tfopt.data.batches import feature_specs, sample_records
from tfopt.tensorrt import machine, profiles
from tfopt.tensorrt.tag import Tag


def convert(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When the model cannot be converted, or the engine does not answer as its parent does.
    """
    from tfopt.components.convert_tensorrt import onnx_network as network

    _keep_tensorflow_off_the_gpu()
    here = machine.find()
    plan = target / "Format-Serving" / "model.plan"
    plan.parent.mkdir()
    with runtimes.load(model) as parent, tempfile.TemporaryDirectory(dir=target, prefix=".tensorrt-") as scratch:
        network.check_signature(parent, model.uri)
        profile = profile_of(parent, examples, request)
        if examples is None:  # random inputs
            parent.inputs = profiles.sized(parent.inputs, profile)
        facts, sampled = network.prepare(model, examples, parent, Path(scratch, "model.onnx"), request)
        from tfopt.components.convert_tensorrt import engine_builder as building

        facts |= building.build(Path(scratch, "model.onnx"), plan, profile, parent.inputs, sampled, model, request)
        most = profile.largest_batch(batched(parent.inputs))
        Tag.of(here, version_compatible=request.version_compatible, largest_batch=most).write(plan)
        with runtimes.load(TensorRTModel(target)) as child:
            facts["verified"] = verify(parent, child, examples, sampled, request)
    told = {"precision": request.precision, "profile": str(profile), "tag": Tag.beside(plan).__dict__}
    return {**told, **facts}


def profile_of(parent: runtimes.Runtime, examples: Examples | None, request: Request) -> profiles.Profile:
    """The shapes that the engine is built for; see `tfopt.tensorrt.profiles.derive`."""
    given = profiles.read_shapes(request.shapes)
    return profiles.derive(
        parent.inputs,
        given,
        _stored(examples, request),
        usual_batch=request.usual_batch,
        largest_batch=request.largest_batch,
    )


def _keep_tensorflow_off_the_gpu() -> None:
    """The parent is compared with in float32; on a GPU TensorFlow would round to TF32, and take all memory."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")


def _stored(examples: Examples | None, request: Request) -> dict[str, TensorSpec] | None:
    if examples is None:
        return None
    split = request.split if request.split in examples.splits else next(iter(examples.splits))
    drawn = sample_records(examples.split(split), count=1, seed=request.seed)
    return feature_specs(drawn[0]) if drawn else None
