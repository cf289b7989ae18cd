"""The files beside an ONNX file that hold weights of it, read from its protobuf fields: without the package onnx.

Reference: onnx/onnx.proto; protobuf's "Encoding".
"""

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tfopt.errors import ComponentError

# What may hold a tensor, by the number of the field that does; of a tensor: its entries of a key and a value.
ENTRY = "entry"
FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: ENTRY},
}


def external_data(file: Path) -> list[Path]:
    """The files that hold weights of an ONNX file; none for a damaged one, of which its runtime says so.

    Raises:
        ComponentError: When such a file is not there, or not below the folder of the ONNX file.
    """
    if not file.stat().st_size:
        return []
    with file.open("rb") as stream:
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        places = set(_locations(data, "model"))
    except (ValueError, LookupError):
        places = set()
    found = []
    for place in sorted(places):
        weights = file.parent / place
        if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts or not weights.is_file():
            raise ComponentError(
                f"{file}: weights in {place!r}",
                "weights in the file itself, or in files that lie beside it",
                "put them there, or save the model again with its weights in it",
            )
        found.append(weights)
    return found


def _locations(data: memoryview, kind: str) -> Iterator[str]:
    for number, value in _fields(data):
        inner = FIELDS[kind].get(number)
        if inner == ENTRY:
            entry = dict(_fields(value))
            if bytes(entry[1]) == b"location":
                yield str(entry[2], "utf-8")
        elif inner:
            yield from _locations(value, inner)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a message that have a length, by number; numbers are passed over."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 2:
            size, place = _varint(data, place)
            if place + size > len(data):
                raise ValueError("a field that ends behind its message")
            yield key >> 3, data[place : place + size]
            place += size
        elif kind == 0:
            _, place = _varint(data, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while data[place] & 0x80:
        value |= (data[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1
