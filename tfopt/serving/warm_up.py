"""Warm-up requests, which TensorFlow Serving runs before a version serves: ``assets.extra/tf_serving_warmup_requests``.

Source: tensorflow.org/tfx/serving/saved_model_warmup; a TFRecord of PredictionLog.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import cut, probe
from tfopt.graph.comparison import DEFAULT

FILE = Path("assets.extra", "tf_serving_warmup_requests")
MOST = 1000  # requests that TensorFlow Serving reads


def record(model: Model, layout: str, folder: Path, examples: Examples | None, count: int) -> str:
    """Record requests of one example each, unless the model brings its own; return what was done, or why nothing.

    Args:
        model: What is served; loaded for its signature.
        layout: Only TensorFlow Serving reads such a file, and only in the folder of a SavedModel.
        folder: The version folder.
        examples: Where the requests come from; the split that the model was not trained on, where there is one.
        count: At most how many; more where the model fixes a larger batch.

    Raises:
        ComponentError: When the examples do not fit the model.
    """
    if layout != "tf_serving" or model.format != "saved_model":
        return f"none: {model.format} as {layout} has no such file"
    if (folder / FILE).exists():
        return "the model's own"
    if examples is None or not count:
        return "none: no examples to record them from" if count else "none: not asked for"
    with runtimes.load(model) as runtime:
        given, source = probe(examples, runtime.inputs, records=count)
        written = write_requests(folder, list(cut(given, runtime.inputs, 1)))
    return written or f"{sum(1 for _ in read_requests(folder))} requests from {source}"


def write_requests(folder: Path, batches: Iterable[Batch]) -> str:
    """Write a request for each batch; return nothing, or why there is none."""
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        return "none: tensorflow_serving.apis is not installed (pip install tensorflow-serving-api)"
    import tensorflow as tf

    file = folder / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for batch in list(batches)[:MOST]:
            log = prediction_log_pb2.PredictLog(request=request(batch))
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())
    return ""


def read_requests(folder: Path) -> Iterator[Batch]:
    """Yield the inputs of each request of a version folder that has the file."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    for written in tf.data.TFRecordDataset(str(folder / FILE)).as_numpy_iterator():
        asked = prediction_log_pb2.PredictionLog.FromString(written).predict_log.request
        yield {name: tf.make_ndarray(tensor) for name, tensor in asked.inputs.items()}


def request(batch: Batch, model: str = "") -> Any:
    """A ``PredictRequest`` of ``serving_default``."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = model, DEFAULT
    for name, array in batch.items():
        made.inputs[name].CopyFrom(tf.make_tensor_proto(array))
    return made
