"""Warm-up requests, which TensorFlow Serving runs before it serves a version: a TFRecord file of PredictionLog.

Source: tensorflow.org/tfx/serving/saved_model_warmup; ``prediction_log.proto``, ``predict.proto``, ``model.proto`` of
``tensorflow_serving/apis``, whose package requires the whole of TensorFlow. Without the fields that a request does not
need, the encoding is the same.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.storage.protobuf_messages import message_classes

FILE = Path("assets.extra", "tf_serving_warmup_requests")
MAX_REQUESTS = 1000  # TensorFlow Serving reads no more
MESSAGES = {
    "ModelSpec": "string name = 1; string signature_name = 3",
    "PredictRequest": "ModelSpec model_spec = 1; map<string, .tensorflow.TensorProto> inputs = 2",
    "PredictLog": "PredictRequest request = 1",
    "LogMetadata": "ModelSpec model_spec = 1; int64 timestamp_secs = 4",
    "PredictionLog": "LogMetadata log_metadata = 1; bytes classify_log = 2; bytes regress_log = 3; "
    "bytes multi_inference_log = 4; bytes session_run_log = 5; PredictLog predict_log = 6; "
    "bytes predict_streamed_log = 7",
}


def record_requests(model: Model, layout: str, folder: Path, examples: Examples | None, count: int) -> str:
    """Record requests of one example each, unless the model has its own; return what was recorded, or why nothing.

    Only TensorFlow Serving reads them, in the folder of a SavedModel. There are at most ``count`` examples, more if the
    model has a larger fixed batch size, of a split that the model was not trained on if there is one.

    Raises:
        ComponentError: If the examples do not fit the model.
    """
    if layout != "tf_serving" or model.format != "saved_model":
        return f"none: {model.format} as {layout} has no such file"
    if (folder / FILE).exists():
        return "the model's own"
    if examples is None or not count:
        return "none: no examples to record them from" if count else "none: not requested"
    with runtimes.load(model) as runtime:
        inputs, source = draw_inputs(examples, runtime.inputs, records=count)
        write_requests(folder, split_batches(inputs, runtime.inputs, 1), model.signature)
    return f"{sum(1 for _ in read_requests(folder))} requests from {source}"


def write_requests(folder: Path, batches: Iterable[Batch], signature: str = SERVING_DEFAULT) -> None:
    """Write a request for each batch, at most `MAX_REQUESTS`."""
    import tensorflow as tf

    file = folder / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for batch in islice(batches, MAX_REQUESTS):
            log = _classes()["PredictionLog"]()
            log.predict_log.request.CopyFrom(predict_request(batch, signature=signature))
            writer.write(log.SerializeToString())


def read_requests(folder: Path) -> Iterator[Batch]:
    """Yield the inputs of each warm-up request of a version folder."""
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(str(folder / FILE)).as_numpy_iterator():
        yield request_inputs(parse_log(record).predict_log.request)


def parse_log(record: bytes) -> Any:
    """Parse a ``PredictionLog``, also of TensorFlow Serving's request logger."""
    return _classes()["PredictionLog"].FromString(record)


def request_inputs(request: Any) -> Batch:
    """Return the inputs of a ``PredictRequest``."""
    import tensorflow as tf

    return {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}


def predict_request(batch: Batch, model: str = "", signature: str = SERVING_DEFAULT) -> Any:
    """Build a ``PredictRequest`` for a signature of a model."""
    import tensorflow as tf

    request = _classes()["PredictRequest"]()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    for name, array in batch.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
    return request


@cache
def _classes() -> dict[str, Any]:
    from tensorflow.core.framework import tensor_pb2  # registers TensorProto in the default pool

    return message_classes("tfopt.serving", MESSAGES, imports=[tensor_pb2.DESCRIPTOR])
