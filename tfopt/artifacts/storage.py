"""Artifacts at addresses (``gs://…``, ``s3://…``), for the components that Beam spreads over machines."""

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
    """Whether it is an address rather than a path."""
    return "://" in uri


def files_at(uri: str) -> dict[str, int]:
    """Every file below an address, or the one that it names, sorted, with its size in bytes.

    Raises:
        ComponentError: When the address cannot be listed.
    """
    try:
        return _matched(f"{uri.rstrip('/')}/**") or _matched(uri.rstrip("/"))
    except Exception as error:
        raise ComponentError(
            f"{uri}: {error}",
            "an address that Beam can list",
            "check it, your credentials, and that Beam's extra for it is installed",
        ) from error


def state_at(uri: str) -> str | None:
    """A digest of what lies at an address: names, sizes and times of change; None where they cannot be told."""
    with contextlib.suppress(Exception):  # no such scheme for Beam, no credentials: whoever reads it will tell
        found = _listed(f"{uri.rstrip('/')}/**") or _listed(uri.rstrip("/"))
        if found and all(file.last_updated_in_seconds for file in found):
            facts = [[file.path, file.size_in_bytes, file.last_updated_in_seconds] for file in found]
            return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return None


def fetched(uri: str) -> str:
    """Return a local path with the same content: a path as it is, an address copied once per process."""
    if not is_remote(uri):
        return uri
    with _LOCK:
        target = _cache() / hashlib.sha256(uri.encode()).hexdigest()[:16] / uri.rstrip("/").rpartition("/")[2]
        if not target.exists():
            partial = Path(tempfile.mkdtemp(dir=_cache())) / target.name
            inside = files_at(uri)
            for file in inside:
                _copy(file, partial / file.removeprefix(uri.rstrip("/")).lstrip("/"))
            if not inside:
                _copy(uri, partial)  # for the error it raises
            target.parent.mkdir(exist_ok=True)
            partial.rename(target)
    return str(target)


def send(folder: Path, uri: str) -> None:
    """Copy the files of a local folder to an address."""
    for file in (found for found in sorted(folder.rglob("*")) if found.is_file()):
        place = f"{uri.rstrip('/')}/{file.relative_to(folder).as_posix()}"
        with file.open("rb") as source, _file_systems().create(place, compression_type="uncompressed") as target:
            shutil.copyfileobj(source, target)


def _matched(pattern: str) -> dict[str, int]:
    return {file.path: file.size_in_bytes for file in _listed(pattern)}


def _listed(pattern: str) -> list[Any]:
    found = _file_systems().match([pattern])
    return sorted((file for result in found for file in result.metadata_list), key=lambda file: file.path)


def _copy(uri: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Beam would unzip what ends in .gz
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
