"""Detection of the data format from file names, and reading with the reader of that format."""

import fnmatch
import importlib
from collections.abc import Iterator, Sequence

from tfopt.components.prepare_examples.files import list_files, relative_name
from tfopt.components.prepare_examples.parameters import Settings, parse_columns
from tfopt.components.prepare_examples.readers.base import TABLES, Row, Source
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

READERS = {  # imported when they are used: pyarrow and Pillow would make each command of `tfopt` start later
    "csv": "tfopt.components.prepare_examples.readers.csv",
    "tsv": "tfopt.components.prepare_examples.readers.csv",
    "jsonl": "tfopt.components.prepare_examples.readers.jsonl",
    "parquet": "tfopt.components.prepare_examples.readers.parquet",
    "npz": "tfopt.components.prepare_examples.readers.npz",
    "images": "tfopt.components.prepare_examples.readers.images",
    "tfrecord": "tfopt.components.prepare_examples.readers.tfrecords",
}
ENDINGS = {
    "csv": (".csv", ".csv.gz"),
    "tsv": (".tsv", ".tsv.gz"),
    "jsonl": (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"),
    "parquet": (".parquet",),
    "npz": (".npz",),
    "images": (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
}


def inspect_source(uri: str, settings: Settings) -> Source:
    """List the data files, detect their format, and inspect them with its reader.

    Raises:
        ComponentError: If there are no files, they have several formats, or the reader cannot use them.
    """
    files = list_files(uri)
    if not files:
        raise ComponentError(f"{uri}: no files", "a data file or a folder of them", "check the path")
    files = _selected(files, uri, settings.files)
    formats = {file: _format(relative_name(file, uri)) for file in files}
    format = _common_format(uri, formats) if settings.format == "auto" else settings.format
    if settings.sparse and (format != "tfrecord" or settings.pack):
        raise ComponentError(
            f"sparse={settings.sparse_features[0].name}, and {'pack' if settings.pack else f'{format} files'}",
            "TFRecords that are not packed, where a record has any number of values",
            "leave one of the two out, or write tf.Examples with positions and values",
        )
    if format not in TABLES and (settings.columns or settings.missing != "omit"):
        received = f"columns={list(settings.columns)}" if settings.columns else f"missing={settings.missing!r}"
        expected = f"a table: {', '.join(TABLES)}"
        raise ComponentError(f"{received}, and {format} files", expected, f"leave {received.split('=')[0]} out")
    selected = {file: size for file, size in files.items() if formats[file] == format} or files
    declared = {name: column.dtype for name, column in parse_columns(settings.columns).items()}
    listed = Source(format, uri.rstrip("/"), selected, settings.label, declared=declared)
    source: Source = importlib.import_module(READERS[format]).inspect(listed, settings)
    unknown = [name for name in source.declared if name not in source.columns]
    if unknown and format in TABLES:
        fix = nearest(unknown[0], source.columns)
        raise ComponentError(f"columns: {source.root} has no column {unknown[0]!r}", "names of columns", fix)
    return source


def read_rows(file: str, source: Source) -> Iterator[Row]:
    """Yield the rows of a file, or a row with its damage, then a row with the number of rows."""
    count = 0
    try:
        for row in importlib.import_module(READERS[source.format]).read(file, source):
            count += 1
            yield row
    except ComponentError as error:
        yield Row(source.name(file), 0, damage=(error.received, error.expected, error.fix))
    yield Row(source.name(file), count, end=True)


def _selected(files: dict[str, int], uri: str, patterns: Sequence[str]) -> dict[str, int]:
    names = {file: relative_name(file, uri) for file in files}
    matching: set[str] = set()
    for pattern in patterns:
        matches = {file for file, name in names.items() if name == pattern or fnmatch.fnmatchcase(name, pattern)}
        if not matches:
            received = f"files: no file {pattern!r} in {uri}"
            raise ComponentError(received, "names or patterns of files", nearest(pattern, names.values()))
        matching |= matches
    return {file: size for file, size in files.items() if file in matching or not patterns}


def _format(name: str) -> str | None:
    lower = name.lower()
    by_ending = next((format for format, endings in ENDINGS.items() if lower.endswith(endings)), None)
    return by_ending or ("tfrecord" if "tfrecord" in lower.rpartition("/")[2] else None)


def _common_format(uri: str, formats: dict[str, str | None]) -> str:
    """Return the format of the files, without files of unknown formats."""
    detected = sorted({format for format in formats.values() if format})
    if len(detected) == 1:
        return detected[0]
    first = ", ".join(relative_name(file, uri) for file in list(formats)[:3])
    received = f"files of several formats: {', '.join(detected)}" if detected else f"no format known for {first}"
    raise ComponentError(
        f"{uri}: {received}",
        "files of one format: .csv, .tsv, .jsonl, .ndjson (also .gz), .parquet, .npz, images, or tfrecord in the name",
        f"pass format={detected[0]!r} to use only those" if detected else f"pass format, one of {', '.join(READERS)}",
    )
