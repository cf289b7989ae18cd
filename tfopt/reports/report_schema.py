"""Load and write the JSON of reports as frozen dataclasses.

To add a report: declare a frozen dataclass with one field for each JSON key and ``schema_version: ClassVar[int] = 1``,
and name it as the ``schema`` of the artifact type in `tfopt.artifacts.reports`. Then ``artifact.write(report)`` writes
it, and ``artifact.load()`` reads it.
A comment next to a field says what its key means.
A field without a default is always written. A field with a default is left out of the JSON when it has that value.
Field types are dataclasses, ``list[…]``, ``tuple[…, ...]``, ``dict[str, …]``, ``… | None``, ``Literal``, ``Any`` and
the plain JSON types. Increase ``schema_version`` when a key is removed or changes its meaning. A new key with a
default needs no new version.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject, JsonValue

VERSION_KEY = "schema_version"
AGAIN = "pass the output of the step that writes it, or run that step again"


class VersionedReport(Protocol):
    """A dataclass of a whole report, with the version of its JSON keys."""

    schema_version: ClassVar[int]


T = TypeVar("T", bound=VersionedReport)


def load(report_type: type[T], file: Path) -> T:
    """Read a report from its JSON file.

    Raises:
        ComponentError: If the file is missing, is not JSON, has another version, or does not fit the class.
    """
    return parse(report_type, read(file), str(file))


def read(file: Path) -> dict[str, Any]:
    """Read the content of a report without converting it.

    Raises:
        ComponentError: If the file is missing, is not JSON, or is no JSON object.
    """
    if not file.is_file():  # a device has no end
        raise ComponentError(f"{file}: {'not a file' if file.exists() else 'no such file'}", "a JSON report", AGAIN)
    try:
        return decode(file.read_bytes(), str(file))
    except OSError as error:
        raise ComponentError(f"{file}: {error}", "a JSON report", AGAIN) from error


def decode(text: bytes | str, source: str) -> dict[str, Any]:
    """Decode a JSON object.

    Raises:
        ComponentError: If the text is something else; the message names ``source``.
    """
    try:
        content = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ComponentError(f"{source}: {first_line(error)[:200]}", "a JSON report", AGAIN) from error
    if not isinstance(content, dict):
        raise ComponentError(f"{source}: {type(content).__name__}", "a JSON object", AGAIN)
    return content


def parse(report_type: type[T], content: JsonObject, source: str) -> T:
    """Convert JSON content to a report; content without a version has version 1, and unknown keys are ignored.

    Raises:
        ComponentError: If the content has another version or does not fit the class; the message names ``source``.
    """
    fix = "run the step that writes it again, with this version of tfopt"
    version = content.get(VERSION_KEY, 1) if isinstance(content, dict) else 1
    if version != report_type.schema_version or isinstance(version, bool):
        expected = f"{VERSION_KEY} {report_type.schema_version} of {report_type.__name__}"
        raise ComponentError(f"{source}: {VERSION_KEY} {repr(version)[:60]}", expected, fix)
    try:
        report: T = _from_json(report_type, content, report_type.__name__)
    except (TypeError, ValueError) as error:
        raise ComponentError(f"{source}: {error}", f"the keys and types of {report_type.__name__}", fix) from error
    return report


def parse_record(report_type: type[T], text: bytes, source: str) -> T:
    """Parse a file of a destination, which no step writes again; errors as `parse`."""
    with record_errors(report_type):
        return parse(report_type, decode(text, source), source)


@contextlib.contextmanager
def record_errors(report_type: type) -> Iterator[None]:
    """Say in errors how to fix a damaged file of a destination."""
    try:
        yield
    except ComponentError as error:
        fix = "remove the file, or move it elsewhere, then repeat the command"
        raise ComponentError(error.received, f"the {report_type.__name__} that tfopt wrote", fix) from error


def dump(report: VersionedReport) -> JsonObject:
    """Return the JSON content of a report, its version first."""
    return {VERSION_KEY: report.schema_version, **_to_json(report)}


def _reject_constant(constant: str) -> None:
    """Raise ValueError for NaN and infinities, which JSON does not have and reports never contain."""
    raise ValueError(f"{constant} is not valid JSON")


def _from_json(expected: Any, value: Any, place: str) -> Any:
    """Convert one JSON value to the annotated type, or raise TypeError with its place in the report."""
    if type(value) is expected:
        return value  # most values, and the checks below take five times as long
    origin, arguments = _parts(expected)
    if (
        expected in (Any, object, JsonValue)
        or (expected is NoneType and value is None)
        or (origin is Literal and value in arguments)
    ):
        return value
    if origin in (Union, UnionType):
        return _from_union(expected, value, place)
    if is_dataclass(expected) and isinstance(value, dict):
        return _from_object(expected, value, place)
    if origin is dict and isinstance(value, dict):
        if {*map(type, value.values())} == {arguments[1]}:
            return value
        return {key: _from_json(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    if origin in (list, tuple) and isinstance(value, list):
        return origin(_from_json(arguments[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    accepted = (int, float) if expected is float else expected
    if isinstance(expected, type) and isinstance(value, accepted) and (expected is bool or not isinstance(value, bool)):
        return value
    raise TypeError(f"{place} is {json.dumps(value)[:60]}, not {getattr(expected, '__name__', expected)}")


def _from_object(expected: Any, value: JsonObject, place: str) -> Any:
    converted = {}
    for name, kind, is_required in _fields(expected):
        if name in value:
            converted[name] = _from_json(kind, value[name], f"{place}.{name}")
        elif is_required:
            raise TypeError(f"{place} has no {name!r}")
    return expected(**converted)


@cache
def _parts(expected: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(expected), get_args(expected)


@cache
def _fields(expected: Any) -> list[tuple[str, Any, bool]]:
    """Return the name and type of each field, and True if it has no default."""
    hints = get_type_hints(expected)
    return [(field.name, hints[field.name], _default(field) is MISSING) for field in fields(expected)]


def _from_union(expected: Any, value: Any, place: str) -> Any:
    arguments = _parts(expected)[1]
    members = [member for member in arguments if (member is NoneType) == (value is None)]
    for member in members[:-1]:
        try:
            return _from_json(member, value, place)
        except TypeError:
            continue
    return _from_json(members[-1] if members else arguments[0], value, place)


def _to_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        items = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: _to_json(item) for field, item in items if item != _default(field)}
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, list | tuple) else value


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
