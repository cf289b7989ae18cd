"""tf.Example without TensorFlow: the same wire format, from message types in a separate descriptor pool.

Importing TensorFlow would cost every worker several seconds. The separate pool avoids conflicts with its messages.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.storage.protobuf_messages import message_classes

FIELDS = {"string": "bytes_list", "float32": "float_list", "int64": "int64_list"}
KINDS = {field: dtype for dtype, field in FIELDS.items()}
MESSAGES = {
    "BytesList": "repeated bytes value = 1",
    "FloatList": "repeated float value = 1",
    "Int64List": "repeated int64 value = 1",
    "Feature": "BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3",
    "Features": "map<string, Feature> feature = 1",
    "Example": "Features features = 1",
}
Values = NDArray[Any] | list[Any]


def serialize(features: Mapping[str, Values], types: Mapping[str, str]) -> bytes:
    """Serialize an Example; equal features give equal bytes. Raise ValueError if an integer is not an int64."""
    message = _message()()
    for name, values in features.items():
        items = values.tolist() if isinstance(values, np.ndarray) else values
        getattr(message.features.feature[name], FIELDS[types[name]]).value.extend(items)
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def parse(record: bytes) -> tuple[dict[str, Values], dict[str, str]]:
    """Return values and types by sorted name, without empty features; raise ValueError if it is not an Example."""
    from google.protobuf.message import DecodeError

    try:
        message = _message().FromString(record)
    except DecodeError as error:
        raise ValueError("not a tf.Example") from error
    features: dict[str, Values] = {}
    types: dict[str, str] = {}
    for name, feature in sorted(message.features.feature.items()):
        field = feature.WhichOneof("kind")
        items = getattr(feature, field).value if field else ()
        if items:
            types[name] = KINDS[field]
            features[name] = list(items) if field == "bytes_list" else np.fromiter(items, types[name], len(items))
    return features, types


@cache
def _message() -> Any:
    return message_classes("tensorflow", MESSAGES, oneofs={"Feature": "kind"})["Example"]
