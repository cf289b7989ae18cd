"""Parquet reader: columns of numbers, texts, and lists of them; rows are read in small batches, one group at a time."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet, types

from tfopt.components.prepare_examples.files import open_for_reading
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import Row, Source, check_label, check_names, check_size
from tfopt.error_messages import machine_error
from tfopt.errors import ComponentError

MAX_EXPANSION = 1000  # bytes or values of a row group per compressed byte, if it has more than the two limits below
MIN_UNPACKED = 64 << 20  # bytes of pages, in which equal texts are stored once
MIN_EXPANDED = 256 << 20  # bytes of values
MAX_LIST_VALUES = 1 << 26  # of a row group: all may be in one row; more are read if the file has a byte for PER_BYTE
PER_BYTE = 32
MAX_ROWS = 1024  # of a batch
MAX_BATCH = 256 << 20  # bytes of a batch, on average
MAX_VALUES = 1 << 22  # of the lists of a batch, on average
DELTA = "DELTA_BYTE_ARRAY"  # an encoding in which a text consists of the beginning of the one before, and an end
Types = dict[str, str | None]  # None for a column without values
LIST = "list of "
# For each kind of values, the type of the feature and the names of Arrow's types.
KINDS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "null": (None, ("null",)),
    "truth": ("int64", ("boolean",)),
    "integer": ("int64", ("integer",)),
    "single": ("float32", ("float16", "float32")),
    "double": ("float32", ("float64",)),
    "text": ("string", ("string", "large_string", "string_view")),
    "bytes": ("string", ("binary", "large_binary", "fixed_size_binary")),
    "time": ("string", ("date", "timestamp")),
}
CONVERTERS: dict[str, Callable[[Any], Any]] = {  # to JSON types
    "truth": int,
    "single": lambda number: float(str(np.float32(number))),  # 0.1 instead of 0.10000000149011612, as in a CSV
    "time": lambda moment: moment.isoformat(),
    "bytes": lambda content: content.decode("utf-8", "surrogateescape"),
}


def inspect(source: Source, settings: Settings) -> Source:
    """Read the schema of the first file."""
    root, files = source.root, source.files
    partitions = [folder for file in files for folder in source.name(file).split("/")[:-1] if "=" in folder]
    if partitions:
        received = f"{root}: a column in the name of folder {partitions[0]}"
        raise ComponentError(received, "files that contain all columns", "write the data without partitions")
    file = next(iter(files))
    types = _types(file)
    index = next((column for column in types if re.fullmatch(r"__index_level_\d+__", column)), None)
    if index:
        raise ComponentError(f"{file}: column {index!r}, an index of pandas", "data", "write it with index=False")
    check_label(list(types), settings.label, file)
    first_row = next((cells for file in files for cells in islice(_rows(file), 1)), ())
    check_size(list(types), () if None in first_row else first_row, settings, file, "write the features into the file")
    stored = {name: dtype.removeprefix(LIST) for name, dtype in types.items() if dtype}
    return replace(source, columns=tuple(types), types=stored)


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the rows, numbered from 1; raise ComponentError if the file is damaged or has other columns or types."""
    types, first, name = _types(file), _types(next(iter(source.files))), source.name(file)
    if types.keys() != set(source.columns):
        expected = f"the first file's: {', '.join(source.columns)[:200]}"
        raise ComponentError(f"{file}: columns {', '.join(types)[:200]}", expected, "give the files the same columns")
    for column, dtype in types.items():
        _check_type(file, column, dtype, first[column], source.declared.get(column))
    order = [list(types).index(column) for column in source.columns]
    for number, cells in enumerate(_rows(file), 1):
        yield Row(name, number, json.dumps([cells[index] for index in order]).encode())


def _check_type(file: str, column: str, dtype: str | None, first: str | None, declared: str | None) -> None:
    if not dtype:
        return
    if declared and ("string" in dtype) != (declared == "string"):
        received = f"{file}: column {column!r} is {dtype}"
        raise ComponentError(received, f"{declared}, as declared", "declare another type, or convert it")
    if not first or dtype == first or (declared and (LIST in dtype) == (LIST in first)):
        return
    is_number = {dtype, first} == {"int64", "float32"}
    fix = f"declare it: columns={[f'{column}:float32']}" if is_number else "write it with one type in all files"
    raise ComponentError(f"{file}: column {column!r} is {dtype}", f"{first}, as in the first file", fix)


def _types(file: str) -> Types:
    with _opened(file) as table:
        check_names(table.schema_arrow.names, file)
        return {field.name: _type(file, field.name, field.type) for field in table.schema_arrow}


def _type(file: str, name: str, dtype: Any) -> str | None:
    kind = _kind(dtype)
    if not kind:
        fix = "convert it to a number or text, or write a file without it"
        raise ComponentError(f"{file}: column {name!r} is {dtype}", "numbers, texts, dates, or lists of them", fix)
    stored = KINDS[kind][0]
    return f"{LIST}{stored}" if stored and _is_list(dtype) else stored


def _rows(file: str) -> Iterator[tuple[Any, ...]]:
    with _opened(file) as table:
        converters = [_converter(field.type) for field in table.schema_arrow]
        for group in range(table.num_row_groups):
            rows, size = _rows_per_batch(file, table.metadata, group), 0
            for batch in table.iter_batches(rows, row_groups=[group], use_threads=False):
                batch.validate(full=True)
                expanded = sum(map(_expanded_size, batch.columns))
                size += expanded
                _check_expansion(file, size, table.metadata.row_group(group))
                step = max(1, min(rows, MAX_BATCH * batch.num_rows // max(1, expanded)))
                for start in range(0, batch.num_rows, step):
                    yield from _converted(batch.slice(start, step), converters)


def _converted(batch: Any, converters: list[Callable[[Any], Any] | None]) -> Iterator[tuple[Any, ...]]:
    decoded = [column.dictionary_decode() if types.is_dictionary(column.type) else column for column in batch.columns]
    columns = zip([column.to_pylist() for column in decoded], converters, strict=True)
    yield from zip(*(map(convert, cells) if convert else cells for cells, convert in columns), strict=True)


def _rows_per_batch(file: str, metadata: Any, group: int) -> int:
    """Return how many rows of a row group can be in memory at once, by the sizes in the file's footer."""
    rows, columns = metadata.row_group(group).num_rows, range(metadata.num_columns)
    chunks = [(metadata.row_group(group).column(index), metadata.schema.column(index)) for index in columns]
    packed = _packed_size(metadata.row_group(group))
    sizes = [max(chunk.total_uncompressed_size, chunk.num_values * schema.length) for chunk, schema in chunks]
    in_lists = sum(chunk.num_values for chunk, schema in chunks if schema.max_repetition_level)
    limits = (
        (in_lists, MAX_LIST_VALUES, PER_BYTE, "values of lists"),
        (max(sum(sizes), sum(chunk.num_values for chunk, _ in chunks)), MIN_UNPACKED, MAX_EXPANSION, "bytes or values"),
    )
    for size, limit, ratio, what in limits:
        if size > max(limit, ratio * packed):
            received = f"{file}: row group {group}: {packed} compressed bytes unpack to {size} {what}"
            fix = "write it with smaller row groups, such as those that the writer has by default"
            raise ComponentError(received, f"at most {limit}, or {ratio} times the compressed bytes", fix)
    limited = [MAX_BATCH * rows // max(1, sum(sizes)), MAX_VALUES * rows // max(1, in_lists)]
    for (chunk, schema), size in zip(chunks, sizes, strict=True):
        if DELTA in chunk.encodings and schema.max_repetition_level:
            received = f"{file}: column {schema.path}: a list of texts with encoding {DELTA}"
            expected = "an encoding whose values can be measured before they are in memory"
            raise ComponentError(received, expected, "write it with dictionaries, or with plain encoding")
        if DELTA in chunk.encodings:
            limited.append(MAX_BATCH // max(1, size))  # each text may be as long as all ends together
    return int(max(1, min(MAX_ROWS, *limited)))


def _converter(dtype: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a cell to JSON types; None if it has such a type."""
    convert = CONVERTERS.get(_kind(dtype))
    if convert is None:
        return None

    def convert_cell(cell: Any) -> Any:
        if isinstance(cell, list):
            return [convert_cell(value) for value in cell]
        return None if cell is None else convert(cell)

    return convert_cell


def _kind(dtype: Any) -> str:
    """Return the kind of the values of a column, of its lists or its dictionary; empty if it is not supported."""
    value = dtype.value_type if _is_list(dtype) else dtype
    value = value.value_type if types.is_dictionary(value) else value
    tests = ((kind, getattr(types, f"is_{name}")) for kind, (_, names) in KINDS.items() for name in names)
    return next((kind for kind, test in tests if test(value)), "")


def _is_list(dtype: Any) -> bool:
    return bool(types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype))


@contextlib.contextmanager
def _opened(file: str) -> Iterator[Any]:
    try:
        with open_for_reading(file) as stream:
            metadata = parquet.read_metadata(stream)
            # Texts stay in their dictionary until it is known how large they are.
            options = {"read_dictionary": _dictionary_columns(metadata), "page_checksum_verification": True}
            with parquet.ParquetFile(stream, metadata=metadata, **options) as table:
                yield table
    except pa.ArrowException as error:
        damaged = ComponentError(f"{file}: {error}", "a complete Parquet file", "copy or write it again")
        raise machine_error(error) or damaged from error


def _dictionary_columns(metadata: Any) -> list[str]:
    """Return the columns of texts that Arrow can read as dictionaries: those without one of the delta encodings."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = []
    for index in range(metadata.num_columns):
        schema = metadata.schema.column(index)
        encodings = {encoding for group in groups for encoding in group.column(index).encodings}
        if schema.physical_type == "BYTE_ARRAY" and not any(encoding.startswith("DELTA") for encoding in encodings):
            columns.append(schema.path)
    return columns


def _expanded_size(column: Any) -> int:
    """Return the bytes of the values of a column, without its dictionary."""
    values = column.flatten() if _is_list(column.type) else column
    if not types.is_dictionary(values.type):
        return int(column.nbytes)
    if _kind(values.type) not in ("text", "bytes"):
        return len(values) * 8
    return compute.sum(compute.binary_length(values.dictionary).take(values.indices)).as_py() or 0


def _check_expansion(file: str, size: int, group: Any) -> None:
    """Refuse kilobytes of a dictionary, or of texts with equal beginnings, that become gigabytes of values."""
    packed = _packed_size(group)
    if size > max(MIN_EXPANDED, MAX_EXPANSION * packed):
        raise ComponentError(
            f"{file}: {packed} compressed bytes of a row group become more than {size >> 20} MiB of values",
            f"at most {MIN_EXPANDED >> 20} MiB, or {MAX_EXPANSION} times the compressed bytes",
            "write smaller row groups, or another format if the values are really so large",
        )


def _packed_size(group: Any) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))
