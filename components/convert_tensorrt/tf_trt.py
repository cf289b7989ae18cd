"""TF-TRT, the converter inside TensorFlow, where TensorFlow was built with it: a SavedModel with engines in it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, SavedModel
from tfopt.components.convert_tensorrt.batches import whole_batches
from tfopt.components.convert_tensorrt.request import Request
from tfopt.conversion import calibration
from tfopt.conversion.verify import verify
from tfopt.data.sample_inputs import cut, probe
from tfopt.errors import ComponentError, first_line
from tfopt.keras_models import io as keras_models
from tfopt.tensorrt import profiles

MODES = {"fp32": "FP32", "fp16": "FP16", "int8": "INT8"}


def convert(model: Model, examples: Examples | None, target: Path, request: Request) -> dict[str, Any]:
    """Write ``Format-Serving`` into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When this TensorFlow has no TF-TRT, the model cannot be converted, or it answers otherwise.
    """
    from tfopt.components.convert_tensorrt import convert as converting

    if request.precision == "fp32":
        _compute_in_whole_floats()
    with runtimes.load(model) as parent, tempfile.TemporaryDirectory(dir=target, prefix=".tf-trt-") as scratch:
        profile = converting.profile_of(parent, examples, request)
        if examples is None:  # random inputs
            parent.inputs = profiles.sized(parent.inputs, profile)
        keras_models.place_saved_model(model, Path(scratch, "saved_model"))
        converter = _converter(Path(scratch, "saved_model"), request)
        facts: dict[str, Any] = {}
        sampled, feed = None, None
        if request.precision == "int8" and examples:
            sampled, facts["calibration"] = calibration.sample(examples, parent.inputs, request)
            feed = whole_batches(sampled, parent.inputs, request.usual_batch)
        given, _ = probe(examples, parent.inputs, records=request.largest_batch, seed=request.seed, seen=request.split)

        def shapes() -> Iterator[Any]:  # an engine is built for each
            for size in sorted({1, request.usual_batch, request.largest_batch}):
                yield next(cut(given, parent.inputs, size))

        try:
            converter.convert(calibration_input_fn=(lambda: iter(feed)) if feed else None)
            converter.build(input_fn=shapes)
            converter.save(str(target / "Format-Serving"))
        except Exception as error:  # its exceptions share no base
            raise ComponentError(
                f"TF-TRT failed: {first_line(error)[:300]}",
                "a model that it can convert, and a GPU",
                "see nvidia-smi, or choose backend='onnx'",
            ) from error
        with runtimes.load(SavedModel(target)) as child:
            facts["verified"] = verify(parent, child, examples, sampled, request)
    return {"name": f"tf-trt {request.precision}", "precision": request.precision, "profile": str(profile), **facts}


def _compute_in_whole_floats() -> None:
    """On GPUs since Ampere, TensorFlow and TF-TRT round the factors of products to 10 bits (TF32) unless told."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)  # for this process, which only converts


def _converter(folder: Path, request: Request) -> Any:
    import tensorflow as tf

    workspace = {"max_workspace_size_bytes": request.workspace_mb << 20} if request.workspace_mb else {}
    try:
        return tf.experimental.tensorrt.Converter(
            input_saved_model_dir=str(folder),
            precision_mode=MODES[request.precision],
            use_dynamic_shape=True,
            dynamic_shape_profile_strategy="Range",
            use_calibration=request.precision == "int8",
            **workspace,
        )
    except (RuntimeError, AttributeError) as error:
        raise ComponentError(
            f"backend='tf_trt' with TensorFlow {tf.__version__}: {first_line(error)}",
            "a TensorFlow with TensorRT in it: up to 2.17 with CUDA, or NVIDIA's container",
            "choose backend='onnx', which needs no such TensorFlow",
        ) from error
