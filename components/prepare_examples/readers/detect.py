"""Which files there are, what they are, and who reads them."""

from collections.abc import Iterator
from types import ModuleType

from tfopt.components.prepare_examples.files import list_files, relative
from tfopt.components.prepare_examples.readers import csv as csv_rows
from tfopt.components.prepare_examples.readers import images as image_rows
from tfopt.components.prepare_examples.readers import npz as npz_rows
from tfopt.components.prepare_examples.readers import tfrecords as record_rows
from tfopt.components.prepare_examples.readers.base import Row, Source, not_a_row
from tfopt.components.prepare_examples.request import Request
from tfopt.errors import ComponentError

READERS: dict[str, ModuleType] = {"csv": csv_rows, "npz": npz_rows, "images": image_rows, "tfrecord": record_rows}
ENDINGS = {
    "csv": (".csv", ".csv.gz"),
    "npz": (".npz",),
    "images": (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
}


def inspect(uri: str, request: Request) -> Source:
    """Take a first look at the data.

    Raises:
        ComponentError: When there are no files, they are of several formats, or the first look finds them unusable.
    """
    files = list_files(uri)
    if not files:
        raise ComponentError(f"{uri}: no files", "a data file or a folder of them", "check the path")
    found = {file: _format(relative(file, uri)) for file in files}
    known = sorted({kind for kind in found.values() if kind})
    if request.format == "auto" and len(known) != 1:
        received = (
            f"files of several formats: {', '.join(known)}" if known else f"no format known for {_first(files, uri)}"
        )
        raise ComponentError(
            f"{uri}: {received}",
            "files of one format: .csv, .csv.gz, .npz, images, or tfrecord in the name",
            f"pass format={known[0]!r} to take only those"
            if known
            else 'pass format="csv", "npz", "images" or "tfrecord"',
        )
    chosen = known[0] if request.format == "auto" else request.format
    if request.sparse and (chosen != "tfrecord" or request.pack):
        raise ComponentError(
            f"sparse={request.sparse[0].name}, and {'pack' if request.pack else f'{chosen} files'}",
            "TFRecords that are not packed, where a record has any number of values",
            "leave one of the two out, or write tf.Examples with positions and values",
        )
    taken = {file: size for file, size in files.items() if found[file] == chosen} or files
    source: Source = READERS[chosen].inspect(uri.rstrip("/"), taken, request)
    return source


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield a file's rows, then how many there were; a damaged file yields what is wrong with it."""
    count = 0
    try:
        for row in READERS[source.format].read(file, source):
            count += 1
            yield row
    except ComponentError as error:
        yield not_a_row(source.name(file), error)
    yield Row(source.name(file), count, end=True)


def _format(name: str) -> str | None:
    lower = name.lower()
    named = next((kind for kind, endings in ENDINGS.items() if lower.endswith(endings)), None)
    return named or ("tfrecord" if "tfrecord" in lower.rpartition("/")[2] else None)


def _first(files: dict[str, int], uri: str) -> str:
    return ", ".join(relative(file, uri) for file in list(files)[:3])
