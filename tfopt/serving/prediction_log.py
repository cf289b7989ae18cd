"""The messages of TensorFlow Serving's warm-up requests, without its package, which requires the whole of TensorFlow.

Source: ``prediction_log.proto``, ``predict.proto`` and ``model.proto`` of ``tensorflow_serving/apis``, without the
fields that a request does not need. The encoding is the same, so TensorFlow Serving reads these messages as its own.
"""

from functools import cache
from typing import Any

from tfopt.storage.protobuf_messages import message_classes

MESSAGES = {
    "ModelSpec": "string name = 1; string signature_name = 3",
    "PredictRequest": "ModelSpec model_spec = 1; map<string, .tensorflow.TensorProto> inputs = 2",
    "PredictLog": "PredictRequest request = 1",
    "PredictionLog": "PredictLog predict_log = 6",
}


def prediction_log() -> Any:
    """Return an empty ``PredictionLog``."""
    return _messages()["PredictionLog"]()


def predict_request() -> Any:
    """Return an empty ``PredictRequest``."""
    return _messages()["PredictRequest"]()


@cache
def _messages() -> dict[str, Any]:
    """Return the message classes by name."""
    from tensorflow.core.framework import tensor_pb2  # registers TensorProto in the default pool

    return message_classes("tfopt.serving", MESSAGES, imports=[tensor_pb2.DESCRIPTOR])
