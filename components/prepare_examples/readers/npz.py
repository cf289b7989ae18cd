"""NPZ reader: arrays of equal length; each array is a feature, each index a row."""

import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.prepare_examples.files import open_for_reading
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.data import tf_example
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.formatting import data_size

MAX_UNPACKED = 1 << 30  # bytes that every file may unpack to
MAX_RATIO = 50  # of unpacked to packed size beyond that
# What zipfile and NumPy raise for archives and headers that no program writes.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError, UnicodeError),
)
TYPES = {"b": "int64", "i": "int64", "u": "int64", "f": "float32", "U": "string", "S": "string"}


def inspect(source: Source, settings: Settings) -> Source:
    """Read the names, shapes and dtypes of the first file's arrays from their headers."""
    file = next(iter(source.files))
    arrays = _headers(file)
    label = settings.label
    if label not in arrays:
        raise ComponentError(f"{file}: no array {label!r}", "the name of an array", nearest(label, arrays))
    shapes = {name: shape[1:] or (1,) for name, (shape, _) in arrays.items()}
    if shapes[label] != (1,):
        received = f"{file}: label {label!r} has shape {arrays[label][0]}"
        raise ComponentError(received, "one value a row", "save the index of the class (argmax) as the label")
    if len(arrays) == 1:
        received = f"{file}: only the label, {label!r}"
        raise ComponentError(received, "at least one more array", "save the features next to it")
    if pack := settings.packed_feature:
        pack.check(label, sum(int(np.prod(shapes[name])) for name in shapes if name != label), file)
    return replace(source, columns=tuple(arrays), shapes=shapes)


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the rows, numbered from 1; raise ComponentError if the file is damaged or its arrays differ."""
    shapes = {name: shape[1:] or (1,) for name, (shape, _) in _headers(file).items()}
    if shapes != source.shapes:
        received = f"{file}: arrays {shapes}"
        raise ComponentError(received, f"the first file's: {source.shapes}", "give the files the same arrays")
    try:
        with open_for_reading(file) as stream, np.load(stream) as loaded:
            arrays = {name: loaded[name] for name in source.columns}
    except DAMAGE as error:
        raise _damaged(file, error) from error
    types = {name: TYPES[array.dtype.kind] for name, array in arrays.items()}
    for index in range(len(arrays[source.label])):
        try:
            row = {name: _values(array[index], types[name]) for name, array in arrays.items()}
            yield Row(source.name(file), index + 1, tf_example.serialize(row, types))
        except ValueError as error:  # an unsigned integer beyond int64
            yield Row(source.name(file), index + 1, problem=str(error))


def _values(item: NDArray[Any], dtype: str) -> tf_example.Values:
    flat = np.ravel(item)
    if dtype == "string":
        return [text.encode() if isinstance(text, str) else text for text in flat.tolist()]
    if dtype == "float32":
        with np.errstate(over="ignore"):  # becomes infinite, which rejects the row
            return flat.astype(np.float32)
    return [int(value) for value in flat]


def _headers(file: str) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    arrays = {}
    try:
        with open_for_reading(file) as stream, zipfile.ZipFile(stream) as archive:
            limit = MAX_UNPACKED + MAX_RATIO * stream.seek(0, os.SEEK_END)
            _check_size(sum(member.file_size for member in archive.infolist()), limit, file)
            for member in archive.namelist():
                with archive.open(member) as array:
                    arrays[member.removesuffix(".npy")] = _header(array)
    except DAMAGE as error:
        raise _damaged(file, error) from error
    for name, (shape, dtype) in arrays.items():
        if dtype.kind not in TYPES or not shape:
            received = f"{file}: array {name!r} of {dtype}{list(shape)}"
            fix = "save it as an array of numbers or text whose first dimension is the rows"
            raise ComponentError(received, "numbers or text, one entry a row", fix)
    sizes = (math.prod(shape) * dtype.itemsize for shape, dtype in arrays.values())
    _check_size(sum(sizes), limit, file)
    lengths = {name: shape[0] for name, (shape, _) in arrays.items()}
    if len(set(lengths.values())) > 1:
        received = f"{file}: arrays of {', '.join(f'{name}: {n}' for name, n in lengths.items())} rows"
        expected = "arrays of the same length"
        raise ComponentError(received, expected, "save one file per set of rows (x and y of train, x and y of test)")
    return arrays


def _check_size(declared: int, limit: int, file: str) -> None:
    """Raise ComponentError if arrays are too large for the size of their file."""
    if declared > limit:
        expected = f"at most {data_size(limit)} for a file of this size: 1 GiB, and {MAX_RATIO} times the size"
        fix = "save it without compression, by numpy.savez, or as several files; if you did not make it, do not read it"
        raise ComponentError(f"{file}: {data_size(declared)} of arrays", expected, fix)


def _header(array: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(array)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = reader(array)
    return shape, dtype


def _damaged(file: str, error: Exception) -> ComponentError:
    return ComponentError(
        f"{file}: {first_line(error)[:200]}", "a complete NPZ file", "write it again with numpy.savez"
    )
