"""Parquet reader: columns of numbers, texts, and lists of them; rows are read in small batches, one group at a time."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, Any

import numpy as np

from tfopt.components.prepare_examples.files import open_for_reading
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.readers.columns import check_label, check_names, check_size
from tfopt.components.prepare_examples.readers.parquet_pages import is_list_of_texts, rows_per_batch
from tfopt.errors import ComponentError

MAX_EXPANSION = 1000  # bytes of values per byte of a file, in more than MIN_EXPANDED bytes of values
MIN_EXPANDED = 256 << 20
Types = dict[str, str | None]  # None for a column without values
LIST = "list of "


def inspect(root: str, files: dict[str, int], settings: Settings) -> Source:
    """Read the schema of the first file.

    Raises:
        ComponentError: If a column's type is not supported, a column is an index of pandas, the label is missing, or
            columns are in folder names.
    """
    source = Source("parquet", root, files, settings.label)
    partitions = [folder for file in files for folder in source.name(file).split("/")[:-1] if "=" in folder]
    if partitions:
        raise ComponentError(
            f"{root}: a column in the name of folder {partitions[0]}",
            "files that contain all columns",
            "write the data without partitions",
        )
    file = next(iter(files))
    types = _types(file)
    index = next((column for column in types if re.fullmatch(r"__index_level_\d+__", column)), None)
    if index:
        raise ComponentError(f"{file}: column {index!r}, an index of pandas", "data", "write it with index=False")
    check_label(list(types), settings.label, file)
    first_row = next((cells for file in files for cells in islice(_rows(file), 1)), ())
    check_size(list(types), () if None in first_row else first_row, settings, file, "write the features into the file")
    stored = {name: dtype.removeprefix(LIST) for name, dtype in types.items() if dtype}
    return Source("parquet", root, files, settings.label, tuple(types), types=stored)


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the rows, numbered from 1.

    Raises:
        ComponentError: If the file is damaged, or its schema differs from the first file's or the declared types.
    """
    types, first, name = _types(file), _types(next(iter(source.files))), source.name(file)
    if types.keys() != set(source.columns):
        raise ComponentError(
            f"{file}: columns {', '.join(types)[:200]}",
            f"the first file's: {', '.join(source.columns)[:200]}",
            "give the files the same columns",
        )
    for column, dtype in types.items():
        _check_type(file, column, dtype, first[column], source.declared.get(column))
    order = [list(types).index(column) for column in source.columns]
    for number, cells in enumerate(_rows(file), 1):
        yield Row(name, number, json.dumps([cells[index] for index in order]).encode())


def _check_type(file: str, column: str, dtype: str | None, first: str | None, declared: str | None) -> None:
    if not dtype:
        return
    if declared and ("string" in dtype) != (declared == "string"):
        raise ComponentError(
            f"{file}: column {column!r} is {dtype}", f"{declared}, as declared", "declare another type, or convert it"
        )
    if not first or dtype == first or (declared and (LIST in dtype) == (LIST in first)):
        return
    is_number = {dtype, first} == {"int64", "float32"}
    raise ComponentError(
        f"{file}: column {column!r} is {dtype}",
        f"{first}, as in the first file",
        f"declare it: columns={[f'{column}:float32']}" if is_number else "write it with one type in all files",
    )


def _types(file: str) -> Types:
    with _opened(file) as (_, table):
        check_names(table.schema_arrow.names, file)
        return {field.name: _type(file, field.name, field.type) for field in table.schema_arrow}


def _type(file: str, name: str, dtype: Any) -> str | None:
    from pyarrow import types

    value = _value_type(dtype)
    prefix = LIST if _is_list(dtype) else ""
    if types.is_null(value):
        return None
    if types.is_boolean(value) or types.is_integer(value):
        return f"{prefix}int64"
    if types.is_floating(value):
        return f"{prefix}float32"
    if _is_text(value) or _is_bytes(value):
        return f"{prefix}string"
    raise ComponentError(
        f"{file}: column {name!r} is {dtype}",
        "numbers, texts, or lists of them",
        "convert it to a number or text, or write a file without it",
    )


def _rows(file: str) -> Iterator[tuple[Any, ...]]:
    with _opened(file) as (stream, table):
        converters = [_converter(field.type) for field in table.schema_arrow]
        for group in range(table.num_row_groups):
            rows = rows_per_batch(file, stream, table.metadata, group)
            size = 0
            for batch in table.iter_batches(rows, row_groups=[group], use_threads=False):
                batch.validate(full=True)
                size += sum(map(_expanded_size, batch.columns))
                _check_expansion(file, size, table.metadata.row_group(group))
                columns = [column.to_pylist() for column in batch.columns]
                converted = zip(columns, converters, strict=True)
                yield from zip(
                    *(map(convert, cells) if convert else cells for cells, convert in converted), strict=True
                )


def _converter(dtype: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a cell to JSON types; None if it has such a type."""
    from pyarrow import types

    value = _value_type(dtype)
    if types.is_boolean(value):
        return _each(int)
    if types.is_float16(value) or types.is_float32(value):
        return _each(lambda number: float(str(np.float32(number))))  # 0.1 instead of 0.10000000149011612, as in a CSV
    return _each(lambda content: content.decode("utf-8", "surrogateescape")) if _is_bytes(value) else None


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert_cell(cell: Any) -> Any:
        if isinstance(cell, list):
            return [convert_cell(value) for value in cell]
        return None if cell is None else convert(cell)

    return convert_cell


def _value_type(dtype: Any) -> Any:
    """Return the type of the values of a list or of a dictionary-encoded column."""
    from pyarrow import types

    dtype = dtype.value_type if _is_list(dtype) else dtype
    return dtype.value_type if types.is_dictionary(dtype) else dtype


def _is_list(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype))


def _is_text(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype))


def _is_bytes(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype))


@contextlib.contextmanager
def _opened(file: str) -> Iterator[tuple[IO[bytes], Any]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with open_for_reading(file) as stream:
            metadata = parquet.read_metadata(stream)
            schemas = [metadata.schema.column(index) for index in range(metadata.num_columns)]
            # Texts of lists stay in their dictionary until it is known how large they are.
            options = {"read_dictionary": [schema.path for schema in schemas if is_list_of_texts(schema)]}
            with parquet.ParquetFile(stream, metadata=metadata, page_checksum_verification=True, **options) as table:
                yield stream, table
    except pa.ArrowException as error:
        raise ComponentError(f"{file}: {error}", "a complete Parquet file", "copy or write it again") from error


def _expanded_size(column: Any) -> int:
    """Return the bytes of the values of a column, without its dictionary."""
    from pyarrow import compute, types

    values = column.flatten() if _is_list(column.type) else column
    if not types.is_dictionary(values.type):
        return int(column.nbytes)
    if not (_is_text(values.type.value_type) or _is_bytes(values.type.value_type)):
        return len(values) * 8
    return compute.sum(compute.binary_length(values.dictionary).take(values.indices)).as_py() or 0


def _check_expansion(file: str, size: int, group: Any) -> None:
    """Refuse kilobytes of a dictionary, or of texts with equal beginnings, that become gigabytes of values."""
    packed = sum(group.column(index).total_compressed_size for index in range(group.num_columns))
    if size > max(MIN_EXPANDED, MAX_EXPANSION * packed):
        raise ComponentError(
            f"{file}: {packed} compressed bytes of a row group become more than {size >> 20} MiB of values",
            f"at most {MIN_EXPANDED >> 20} MiB, or {MAX_EXPANSION} times the compressed bytes",
            "write smaller row groups, or another format if the values are really so large",
        )
