"""Protobuf messages without the package that has their classes.

Classes are built at run time, from the fields that are needed. One field of a large file is read from the wire format
(protobuf's documentation, "Encoding").
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

Buffer = TypeVar("Buffer", bytes, memoryview)
VARINT, FIXED_64, DELIMITED, FIXED_32 = 0, 1, 2, 5  # the wire types
MAX_NUMBER = 2**29 - 1  # of a field; protobuf drops further bits and reads another field
FIELD = re.compile(
    r"(?P<repeated>repeated )?(?:map<string, (?P<of>[.\w]+)>|(?P<type>[.\w]+)) (?P<name>\w+) = (?P<number>\d+)"
)


def message_classes(
    package: str,
    messages: Mapping[str, str],
    *,
    enums: Mapping[str, Sequence[str]] | None = None,
    oneofs: Mapping[str, str] | None = None,
    imports: Sequence[Any] = (),
) -> dict[str, Any]:
    r"""Return message classes by name, with proto3 semantics.

    >>> classes = message_classes("example", {"Point": "repeated int64 at = 1; string name = 3"})
    >>> classes["Point"](at=[1, 2], name="a").SerializeToString()
    b'\n\x02\x01\x02\x1a\x01a'

    Args:
        package: Their protobuf package.
        messages: For each message its fields, written as in a ``.proto`` file and separated by semicolons. A type is a
            scalar, a message or enum of the package, ``map<string, TYPE>``, or ``.PACKAGE.NAME`` of an imported file.
        enums: For each enum its values, numbered from 0.
        oneofs: For a message whose fields exclude each other, the name of the choice.
        imports: Descriptors of other files of the default pool. Without them the messages get a pool of their own, so
            that they cannot conflict with those of another package.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"tfopt/{package}.proto", package=package, syntax="proto3")
    file.dependency.extend(each.name for each in imports)
    for name, values in (enums or {}).items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        choice = (oneofs or {}).get(name)
        if choice:
            message.oneof_decl.add(name=choice)
        for field in fields.split("; "):
            added = _add_field(message, field, package, enums or {})
            if choice:
                added.oneof_index = 0
    pool = descriptor_pool.Default() if imports else descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: Any, text: str, package: str, enums: Mapping[str, Any]) -> Any:
    match = FIELD.fullmatch(text)
    assert match, text
    field = message.field.add(name=match["name"], number=int(match["number"]))
    type_name, repeated = match["type"], bool(match["repeated"])
    if match["of"]:  # a map is a repeated message of keys and values
        entry = message.nested_type.add(name=f"{match['name'].capitalize()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "string key = 1", package, enums)
        _add_field(entry, f"{match['of']} value = 2", package, enums)
        type_name, repeated = f"{message.name}.{entry.name}", True
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    scalar = f"TYPE_{type_name.upper()}"
    if hasattr(field, scalar):
        field.type = getattr(field, scalar)
    else:
        field.type = field.TYPE_ENUM if type_name in enums else field.TYPE_MESSAGE
        field.type_name = type_name if type_name.startswith(".") else f".{package}.{type_name}"
    return field


def read_varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    r"""Return a number that is stored in seven bits a byte, and the offset after it.

    >>> read_varint(b"\x96\x01", 0)
    (150, 2)
    """
    value = shift = 0
    while data[offset] & 0x80:
        value |= (data[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
    return value | data[offset] << shift, offset + 1


def read_fields(data: Buffer) -> Iterator[tuple[int, int | Buffer]]:
    """Yield the numbers and values of a message's varint and length-delimited fields; others are skipped.

    Raises:
        ValueError: If the message is damaged.
        IndexError: If it is truncated.
    """
    offset = 0
    while offset < len(data):
        key, offset = read_varint(data, offset)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= MAX_NUMBER:
            raise ValueError(f"field number {number}")
        if wire_type == VARINT:
            value, offset = read_varint(data, offset)
            yield number, value
        elif wire_type == DELIMITED:
            size, offset = read_varint(data, offset)
            if offset + size > len(data):
                raise ValueError("a field that ends after its message")
            yield number, data[offset : offset + size]
            offset += size
        elif wire_type in (FIXED_64, FIXED_32):
            offset += 8 if wire_type == FIXED_64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
