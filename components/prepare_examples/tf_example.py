"""tf.Example without TensorFlow: the same wire format, from message types in a separate descriptor pool.

Importing TensorFlow would cost every worker several seconds. The separate pool avoids conflicts with its messages.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIELDS = {"string": "bytes_list", "float32": "float_list", "int64": "int64_list"}
KINDS = {field: dtype for dtype, field in FIELDS.items()}
Values = NDArray[Any] | list[Any]


def serialize(features: Mapping[str, Values], types: Mapping[str, str]) -> bytes:
    """Serialize an Example; equal features give equal bytes.

    Raises:
        ValueError: If an integer is not an int64.
    """
    message = _message()()
    for name, values in features.items():
        items = values.tolist() if isinstance(values, np.ndarray) else values
        getattr(message.features.feature[name], FIELDS[types[name]]).value.extend(items)
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def parse(record: bytes) -> tuple[dict[str, Values], dict[str, str]]:
    """Parse an Example and return values and types by name, without empty features.

    Raises:
        ValueError: If the bytes are not an Example.
    """
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
    """Return the message class of tensorflow.Example."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="tf_example.proto", package="tensorflow", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, kind in (
        ("BytesList", kinds.TYPE_BYTES),
        ("FloatList", kinds.TYPE_FLOAT),
        ("Int64List", kinds.TYPE_INT64),
    ):
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=kinds.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (field, name) in enumerate(
        zip(FIELDS.values(), ("BytesList", "FloatList", "Int64List"), strict=True), 1
    ):
        _add(feature, field, number, f".tensorflow.{name}").oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    _add(entry, "value", 2, ".tensorflow.Feature")
    _add(features, "feature", 1, ".tensorflow.Features.FeatureEntry").label = kinds.LABEL_REPEATED
    _add(file.message_type.add(name="Example"), "features", 1, ".tensorflow.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def _add(message: Any, name: str, number: int, of: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Kinds

    return message.field.add(
        name=name, number=number, type=Kinds.TYPE_MESSAGE, label=Kinds.LABEL_OPTIONAL, type_name=of
    )
