"""Read and write artifacts at remote addresses (``gs://…``, ``s3://…``) with Beam's file systems."""

import atexit
import contextlib
import hashlib
import json
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

from tfopt.errors import ComponentError

_LOCK = threading.Lock()


def is_remote(uri: str) -> bool:
    """Return True for an address, False for a local path."""
    return "://" in uri


def list_remote_files(uri: str) -> dict[str, int]:
    """Return the files at or below an address, sorted, with their sizes in bytes.

    Raises:
        ComponentError: If the address cannot be listed.
    """
    try:
        return _matched(f"{uri.rstrip('/')}/**") or _matched(uri.rstrip("/"))
    except Exception as error:
        raise ComponentError(
            f"{uri}: {error}",
            "an address that Beam can list",
            "check it, your credentials, and that Beam's extra for it is installed",
        ) from error


def content_digest(uri: str) -> str | None:
    """Return a digest of names, sizes and modification times at an address; None if they are not available."""
    with contextlib.suppress(Exception):  # unknown scheme or no credentials: reading reports the error
        files = _listed(f"{uri.rstrip('/')}/**") or _listed(uri.rstrip("/"))
        if files and all(file.last_updated_in_seconds for file in files):
            facts = [[file.path, file.size_in_bytes, file.last_updated_in_seconds] for file in files]
            return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return None


def local_copy(uri: str, version: str = "") -> str:
    """Return a local path with the same content; an address is copied once per process and version of its content."""
    if not is_remote(uri):
        return uri
    with _LOCK:
        target = (
            _cache() / hashlib.sha256(f"{uri}{version}".encode()).hexdigest()[:16] / uri.rstrip("/").rpartition("/")[2]
        )
        if not target.exists():
            partial = Path(tempfile.mkdtemp(dir=_cache())) / target.name
            files = list_remote_files(uri)
            for file in files:
                _copy(file, partial / file.removeprefix(uri.rstrip("/")).lstrip("/"))
            if not files:
                _copy(uri, partial)  # raises the error
            target.parent.mkdir(exist_ok=True)
            partial.rename(target)
    return str(target)


def upload(folder: Path, uri: str) -> None:
    """Copy the files of a local folder to an address."""
    for file in (path for path in sorted(folder.rglob("*")) if path.is_file()):
        address = f"{uri.rstrip('/')}/{file.relative_to(folder).as_posix()}"
        with file.open("rb") as source, _file_systems().create(address, compression_type="uncompressed") as target:
            shutil.copyfileobj(source, target)


def _matched(pattern: str) -> dict[str, int]:
    return {file.path: file.size_in_bytes for file in _listed(pattern)}


def _listed(pattern: str) -> list[Any]:
    results = _file_systems().match([pattern])
    return sorted((file for result in results for file in result.metadata_list), key=lambda file: file.path)


def _copy(uri: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Beam would decompress files whose names end in .gz
        with _file_systems().open(uri, compression_type="uncompressed") as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    except FileNotFoundError as error:
        raise ComponentError(f"{uri}: no such file or folder", "an address with content", "check it") from error


@cache
def _cache() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tfopt-fetched-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file_systems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems
