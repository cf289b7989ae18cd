"""The messages of TensorFlow Serving's warm-up requests, without its package, which requires the whole of TensorFlow.

Source: ``prediction_log.proto``, ``predict.proto`` and ``model.proto`` of ``tensorflow_serving/apis``, without the
fields that a request does not need. The encoding is the same, so TensorFlow Serving reads these messages as its own.
"""

from functools import cache
from typing import Any

FIELDS: dict[str, dict[str, tuple[int, Any]]] = {  # number and type of each field
    "ModelSpec": {"name": (1, str), "signature_name": (3, str)},
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, dict)},
    "PredictLog": {"request": (1, "PredictRequest")},
    "PredictionLog": {"predict_log": (6, "PredictLog")},
}
PACKAGE = "tfopt.serving"


def prediction_log() -> Any:
    """Return an empty ``PredictionLog``."""
    return _messages()["PredictionLog"]()


def predict_request() -> Any:
    """Return an empty ``PredictRequest``."""
    return _messages()["PredictRequest"]()


@cache
def _messages() -> dict[str, Any]:
    """Return the message classes by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from tensorflow.core.framework import tensor_pb2  # registers TensorProto in the default pool

    tensor = tensor_pb2.TensorProto.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(name="tfopt/prediction_log.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append(tensor.file.name)
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            if kind is dict:  # a map from names to tensors is a repeated message of this form
                entry = message.nested_type.add(name="InputsEntry")
                entry.options.map_entry = True
                _add_field(entry, "key", 1)
                _add_field(entry, "value", 2, f".{tensor.full_name}")
                _add_field(message, field, number, f".{PACKAGE}.{name}.InputsEntry", repeated=True)
            else:
                _add_field(message, field, number, "" if kind is str else f".{PACKAGE}.{kind}")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS}


def _add_field(message: Any, name: str, number: int, type_name: str = "", *, repeated: bool = False) -> None:
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    field.type = field.TYPE_MESSAGE if type_name else field.TYPE_STRING
    if type_name:
        field.type_name = type_name
