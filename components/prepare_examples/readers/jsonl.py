"""JSON lines reader: one object per line, whose keys are the columns; plain or gzipped."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tfopt.components.prepare_examples.files import open_for_reading, read_lines
from tfopt.components.prepare_examples.parameters import Settings, parse_columns
from tfopt.components.prepare_examples.readers.base import Row, Source, check_label, check_names, check_size
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject


def inspect(source: Source, settings: Settings) -> Source:
    """Determine the columns: the keys of the first object, and the declared ones."""
    file, first = next(((file, line) for file in source.files for line in _lines(file)), (source.root, None))
    if first is None:
        raise ComponentError(f"{source.root}: empty", "JSON lines", "give a file with content")
    number, item, problem = first
    if problem:
        received = f"{file}: line {number}: {problem}"
        expected = "one JSON object per line, with numbers, texts, and lists of them"
        raise ComponentError(received, expected, "write it again (pandas: to_json(file, orient='records', lines=True))")
    columns = list(dict.fromkeys([*item, *parse_columns(settings.columns)]))
    check_names(columns, file)
    check_label(columns, settings.label, file)
    complete = [] if len(item) < len(columns) or None in item.values() else item.values()
    check_size(columns, complete, settings, file, "write the features into the objects")
    return replace(source, columns=tuple(columns))


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the rows, each with its line; raise ComponentError if the file is damaged."""
    name, columns = source.name(file), set(source.columns)
    for number, item, problem in _lines(file):
        if unknown := item.keys() - columns:
            problem = f"key {min(unknown)!r}, which the first object lacks; declare it in columns"
        cells = [item.get(column) for column in source.columns]
        yield Row(name, number, b"" if problem else json.dumps(cells).encode(), problem)


def _lines(file: str) -> Iterator[tuple[int, JsonObject, str]]:
    """Yield each line's number, its object, and its problem or an empty text; skip empty lines."""
    with open_for_reading(file) as stream:
        for number, line in enumerate(read_lines(stream, file), 1):
            if not line.strip():
                continue
            try:
                yield number, _parse(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line), ""
            except (ValueError, RecursionError) as error:
                if isinstance(error, json.JSONDecodeError) and not line.endswith(b"\n"):
                    received = f"{file}: line {number} ends within an object ({error.msg})"
                    raise ComponentError(received, "a complete file of JSON lines", "copy or write it again") from error
                yield number, {}, _reason(error)


def _parse(line: bytes) -> JsonObject:
    item = json.loads(line.strip().decode(), object_pairs_hook=_object)
    if not isinstance(item, dict):
        raise ValueError("no JSON object")
    return {key: _cell(key, value) for key, value in item.items()}


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    item = dict(pairs)
    if len(item) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return item


def _cell(key: str, value: Any, is_nested: bool = False) -> Any:
    if isinstance(value, dict) or (is_nested and isinstance(value, list)):
        raise ValueError(f"{key}: a nested {'object' if isinstance(value, dict) else 'list'}")
    if isinstance(value, list):
        return [_cell(key, item, is_nested=True) for item in value]
    if isinstance(value, str):
        value.encode()  # raises for a surrogate that is no character
    return int(value) if isinstance(value, bool) else value


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg} at column {error.colno}"
    if isinstance(error, UnicodeError):
        return "not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
