"""Build classes of protobuf messages at run time, from the fields that are needed, without a package that has them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

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
