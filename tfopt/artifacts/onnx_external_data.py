"""List the external data files of an ONNX model by reading its protobuf fields, without the package onnx.

Reference: onnx/onnx.proto.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.storage.protobuf_messages import read_fields

# For each message the numbers of the fields that may contain tensors; for a tensor its key-value entries.
ENTRY = "entry"
FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: ENTRY},
}


def external_data(file: Path) -> list[Path]:
    """Return the files that hold weights of an ONNX file; none for an empty file, which its runtime reports.

    Raises:
        ComponentError: If such a file does not exist, or is not below the folder of the ONNX file; or if the ONNX file
            cannot be read whole, so that a runtime might find other files in it.
    """
    if not file.stat().st_size:
        return []
    with file.open("rb") as stream:
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        locations = set(_locations(data, "model"))
    except (ValueError, LookupError, RecursionError) as error:
        expected = "an ONNX file without unknown parts: the weights in other files must be known"
        fix = "export it again, or save it again with onnx.save; it may be truncated"
        raise ComponentError(f"{file}: {first_line(error)}", expected, fix) from error
    files = []
    for location in sorted(locations):
        weights = file.parent / location
        if PurePosixPath(location).is_absolute() or ".." in PurePosixPath(location).parts or not weights.is_file():
            received = f"{file}: weights in {location!r}"
            expected = "weights in the file itself, or in files next to it"
            raise ComponentError(received, expected, "put them there, or save the model again as a single file")
        files.append(weights)
    return files


def _locations(data: memoryview, kind: str) -> Iterator[str]:
    for number, value in read_fields(data):
        inner = FIELDS[kind].get(number)
        if isinstance(value, int):
            continue
        if inner == ENTRY:
            entry = {key: text for key, text in read_fields(value) if not isinstance(text, int)}
            if bytes(entry[1]) == b"location":
                yield str(entry[2], "utf-8")
        elif inner:
            yield from _locations(value, inner)
