"""Warm-up requests, which TensorFlow Serving runs before a version serves: ``assets.extra/tf_serving_warmup_requests``.

Source: tensorflow.org/tfx/serving/saved_model_warmup; a TFRecord of PredictionLog.
"""

from pathlib import Path
from typing import Any

from tfopt.examples import Batch
from tfopt.graph.comparison import DEFAULT

FILE = Path("assets.extra", "tf_serving_warmup_requests")
MOST = 1000  # requests that TensorFlow Serving reads


def write_requests(folder: Path, batches: dict[int, Batch]) -> Any:
    """Write a request for each batch, and return their batch sizes, or why there is none."""
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError:
        return "none: tensorflow_serving.apis is not installed (pip install tensorflow-serving-api)"
    import tensorflow as tf

    file = folder / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for batch in list(batches.values())[:MOST]:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = DEFAULT
            for name, array in batch.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())
    return {"batch_sizes": list(batches)}
