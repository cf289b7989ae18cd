"""List and open files, on this machine or at any address that fsspec supports (``gs://``, ``s3://``, …)."""

import contextlib
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, AnyStr, cast

from tfopt.errors import ComponentError
from tfopt.storage import remote_files
from tfopt.storage.remote_files import is_remote, list_remote_files

MAX_LINE = 1 << 28


def list_files(uri: str) -> dict[str, int]:
    """Return the bytes of every file at or below an address, sorted, without hidden ones (``.name``, ``_name``)."""
    if is_remote(uri):
        sizes = list_remote_files(uri)
    else:
        files = [Path(uri)] if Path(uri).is_file() else Path(uri).rglob("*")
        sizes = {str(file): file.stat().st_size for file in sorted(files, key=str) if file.is_file()}
    names = {file: "" if file == uri else relative_name(file, uri) for file in sizes}
    return {file: size for file, size in sizes.items() if not re.search(r"(^|/)[._]", names[file])}


def relative_name(file: str, root: str) -> str:
    """Return the name of a file relative to the root of the data.

    >>> relative_name("/data/cats/1.png", "/data/"), relative_name("/data/a.csv", "/data/a.csv")
    ('cats/1.png', 'a.csv')
    """
    inside = file.removeprefix(root.rstrip("/") + "/")
    return inside if inside != file else file.rpartition("/")[2]


@contextlib.contextmanager
def open_for_reading(uri: str) -> Iterator[IO[bytes]]:
    """Open a file, unpacked if named ``.gz``; raise ComponentError if it is truncated, is no gzip, or is unreadable."""
    try:
        with (
            remote_files.open_file(uri) as stream,
            gzip.open(stream) if uri.endswith(".gz") else contextlib.nullcontext(stream) as plain,
        ):
            yield cast("IO[bytes]", plain)
    except (EOFError, zlib.error, OSError) as error:
        received = f"{uri}: {error or 'it ends too early'}"
        raise ComponentError(received, "a complete, readable file", "copy or write it again") from error


def read_lines(stream: IO[AnyStr], uri: str) -> Iterator[AnyStr]:
    """Yield the lines of a file; raise ComponentError for one that would take gigabytes of memory."""
    while line := stream.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            received, expected = f"{uri}: a line of more than {MAX_LINE} bytes", "a row in each line"
            raise ComponentError(received, expected, "write it again with line breaks")
        yield line


@contextlib.contextmanager
def open_gzip(uri: str, level: int) -> Iterator[IO[bytes]]:
    """Open a new gzip file to write, without a time in it: equal data are equal files."""
    with (
        remote_files.open_file(uri, "wb") as stream,
        gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=stream, mtime=0) as compressed,
    ):
        yield cast("IO[bytes]", compressed)
