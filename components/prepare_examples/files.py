"""Listing, opening and removing files, on this machine or at any address that Beam knows (``gs://``, ``s3://``, …)."""

import contextlib
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from tfopt.artifacts.storage import files_at, is_remote
from tfopt.errors import ComponentError


def list_files(uri: str) -> dict[str, int]:
    """Every file at or below an address with its bytes, sorted; hidden files (``.name``, ``_name``) are left out."""
    found = files_at(uri) if is_remote(uri) else dict(sorted(_local_files(Path(uri))))
    return {file: size for file, size in found.items() if file == uri or not _is_hidden(relative(file, uri))}


def relative(file: str, root: str) -> str:
    """A file's name as seen from the data: the same wherever the data lie.

    >>> relative("/data/cats/1.png", "/data/"), relative("/data/a.csv", "/data/a.csv")
    ('cats/1.png', 'a.csv')
    """
    inside = file.removeprefix(root.rstrip("/") + "/")
    return inside if inside != file else file.rpartition("/")[2]


@contextlib.contextmanager
def reading(uri: str) -> Iterator[IO[bytes]]:
    """Open a file to read, unzipped where its name ends in ``.gz``.

    Raises:
        ComponentError: When it is cut off, is not gzip though it says so, or cannot be read.
    """
    try:
        with (
            _open(uri) as stream,
            gzip.open(stream) if uri.endswith(".gz") else contextlib.nullcontext(stream) as plain,
        ):
            yield cast("IO[bytes]", plain)
    except (EOFError, zlib.error, OSError) as error:
        raise ComponentError(
            f"{uri}: {error or 'it ends too early'}", "a whole, readable file", "copy or write it again"
        ) from error


@contextlib.contextmanager
def writing(uri: str) -> Iterator[IO[bytes]]:
    """Open a new file to write, gzip where its name ends in ``.gz``; no time inside, so equal data are equal files."""
    with _create(uri) as stream:
        if uri.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=stream, mtime=0) as packed:
                yield cast("IO[bytes]", packed)
        else:
            yield stream


def remove(uris: Iterable[str]) -> None:
    """Delete those files that exist."""
    for uri in uris:
        if not is_remote(uri):
            Path(uri).unlink(missing_ok=True)
        elif _filesystems().exists(uri):
            _filesystems().delete([uri])


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _local_files(path: Path) -> Iterator[tuple[str, int]]:
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            yield str(file), file.stat().st_size


def _open(uri: str) -> IO[bytes]:
    if not is_remote(uri):
        return Path(uri).open("rb")
    return cast("IO[bytes]", _filesystems().open(uri, compression_type=_as_it_is()))


def _create(uri: str) -> IO[bytes]:
    if is_remote(uri):
        return cast("IO[bytes]", _filesystems().create(uri, compression_type=_as_it_is()))
    Path(uri).parent.mkdir(parents=True, exist_ok=True)
    return Path(uri).open("wb")


def _filesystems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def _as_it_is() -> Any:
    # Beam's own unzipping takes a truncated file for a short one.
    from apache_beam.io.filesystem import CompressionTypes

    return CompressionTypes.UNCOMPRESSED
