"""Files of object stores and other remote file systems, by address (``s3://…``, ``gs://…``, …), with fsspec.

`open_file`, `read_file`, `write_file`, `create_file`, `remove` and `local_copy` also take local paths. All functions
raise ComponentError if a store cannot be reached or refuses access.
"""

import atexit
import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.storage import staging

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs", "az": "abfs"}
VERSION_KEYS = (
    *("ETag", "etag", "md5Hash"),
    *("LastModified", "last_modified", "updated", "mtime", "modificationTime", "created"),
)

# How to install what reads a scheme; HDFS's own protocol is a library of Hadoop, which pip does not install.
FIXES = {scheme: f"pip install 'tfopt[{extra}]'" for scheme, extra in EXTRAS.items()} | {
    "hdfs": "install Java and Hadoop's client libraries, and set JAVA_HOME, HADOOP_HOME and CLASSPATH (the output of "
    "`hadoop classpath --glob`), or pass webhdfs://HOST:PORT/PATH, which needs neither",
    "webhdfs": "pip install requests",
}
FIXES["arrow_hdfs"] = FIXES["hdfs"]

PATTERN = "*?[\\"  # in paths that TensorFlow or Beam read and write
ANSWER_S = 20.0  # until a store has answered for the first time; libraries retry for minutes

_LOCK = threading.Lock()
_addresses: dict[str, str] = {}  # by local copy


def is_remote(uri: str) -> bool:
    """Return True for an address, False for a local path."""
    return "://" in uri


def local_path(path: str | Path) -> Path:
    """Return a local path with ``~`` and ``~USER`` expanded as in a shell, which leaves a name that no user has.

    >>> local_path("~no user/served")
    PosixPath('~no user/served')
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111  (that of pathlib raises an error for such a name)


def join(uri: str, name: str) -> str:
    """Return the address or path of a name below another one."""
    return f"{uri.rstrip('/')}/{name}"


def check_scheme(uri: str) -> None:
    """Raise ComponentError if a path is empty, or an address has a scheme that fsspec does not know."""
    if not uri.strip():
        raise ComponentError("an empty path", "a path, or an address such as s3://BUCKET/FOLDER", "name a folder")
    if not is_remote(uri):
        return
    from fsspec import get_filesystem_class

    scheme = uri.partition("://")[0]
    _refuse_web(uri)
    try:
        get_filesystem_class(scheme)
    except ImportError:  # the machine that runs the step may have the package
        pass
    except ValueError as error:
        expected = "a local path, or an address such as s3://BUCKET/FOLDER"
        raise ComponentError(uri, expected, nearest(scheme, EXTRAS)) from error


def check_characters(path: str, refused: str = PATTERN) -> None:
    """Raise ComponentError for a local path that TensorFlow and Beam would take for a pattern, or with a zero byte."""
    if is_remote(path):
        return
    absolute = str(Path.cwd() / path)  # the working folder can have such a name too
    special = [character for character in (*refused, "\0") if character in absolute]
    if special:
        received = f"{absolute!r}: {' '.join(map(repr, special))} in a path"
        expected = "a path without *, ?, [ and \\, which TensorFlow takes for a pattern, and without zero bytes"
        raise ComponentError(received, expected, "rename the folder, or pass a link to it with a plain name")


def list_remote_files(uri: str) -> dict[str, int]:
    """Return the files at or below an address, sorted, with their sizes in bytes; empty if there are none."""
    return {file: int(facts["size"] or 0) for file, facts in _list(uri).items()}


def list_names(uri: str) -> list[str]:
    """Return the names of files and folders directly below an address, sorted; empty if there are none."""
    if not is_remote(uri):
        folder = local_path(uri)
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    with _connected(uri) as store:
        store.invalidate_cache()
        try:
            paths = store.ls(store._strip_protocol(uri), detail=False)
        except FileNotFoundError:
            return []
    return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)


def check_exists(uri: str) -> None:
    """Raise ComponentError if there is no file at or below an address."""
    if not _list(uri):
        raise ComponentError(f"{uri}: no such file or folder", "an address with content", "check it")


def content_digest(uri: str) -> str | None:
    """Return a digest of names, sizes and versions of the files at an address; None if the store has no versions.

    The version of a file is its checksum (ETag) or, in stores without one, its modification time.
    """
    with contextlib.suppress(ComponentError):  # unknown scheme or no credentials: reading reports the error
        rows = []
        for file, facts in _list(uri).items():
            version = next((str(facts[key]) for key in VERSION_KEYS if facts.get(key)), None)
            rows.append((file, facts["size"], version))
        if rows and all(version for _, _, version in rows):
            return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    return None


def local_copy(uri: str) -> str:
    """Return a local path with the same content; an address is copied once per process and version of its content.

    Raises:
        ComponentError: If there is nothing at the address.
    """
    if not is_remote(uri):
        return uri
    version = content_digest(uri) or uuid.uuid4().hex
    with _LOCK:
        digest = hashlib.sha256(f"{uri} {version}".encode()).hexdigest()
        target = _cache() / digest[:16] / uri.rstrip("/").rpartition("/")[2]
        if not target.exists():
            check_exists(uri)
            partial = Path(tempfile.mkdtemp(dir=_cache())) / target.name
            download(uri, partial)
            partial.parent.rename(target.parent)
        _addresses[str(target)] = uri
    return str(target)


def address_of(path: str) -> str | None:
    """Return the address that was copied to a local path; None for other paths."""
    return _addresses.get(path)


def download(uri: str, target: Path) -> None:
    """Copy the file at an address, or all files below it, to a local path."""
    names = {file: target / file.removeprefix(uri.rstrip("/")).lstrip("/") for file in _list(uri)}
    for path in names.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    with _connected(uri) as store:
        store.get([store._strip_protocol(file) for file in names], [str(path) for path in names.values()])


def upload(source: Path, uri: str) -> None:
    """Copy a local file to an address, or the files of a folder below it; those in subfolders first.

    The file that makes a folder loadable (``saved_model.pb``, the model card) is not in a subfolder, so readers that do
    not wait for the end of the copy find it last.
    """
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    with _connected(uri) as store:
        for last in (False, True):
            group = [path for path in files if (path.parent == source) == last]
            names = [uri if path == source else join(uri, path.relative_to(source).as_posix()) for path in group]
            if group:
                store.put([str(path) for path in group], [store._strip_protocol(name) for name in names])


@contextlib.contextmanager
def open_file(uri: str, mode: str = "rb") -> Iterator[IO[bytes]]:
    """Open a file to read (``rb``) or write (``wb``) its bytes; raise ComponentError if the store has no such file."""
    if not is_remote(uri):
        if mode == "wb":
            Path(uri).parent.mkdir(parents=True, exist_ok=True)
        with Path(uri).open(mode) as local:
            yield cast("IO[bytes]", local)
        return
    with _connected(uri) as store:
        stream = store.open(store._strip_protocol(uri), mode)
    with stream:
        yield stream


def read_file(uri: str) -> bytes | None:
    """Return the content of the file at an address; None if there is no file."""
    if not is_remote(uri):
        file = local_path(uri)
        return file.read_bytes() if file.is_file() else None
    with _connected(uri) as store:
        store.invalidate_cache()
        try:
            return cast("bytes", store.cat_file(store._strip_protocol(uri)))
        except FileNotFoundError:
            return None


def write_file(uri: str, content: bytes) -> None:
    """Write the file at an address; an existing file is replaced."""
    if not is_remote(uri):
        staging.replace_file(local_path(uri), content)
        return
    with _connected(uri) as store:
        store.pipe_file(store._strip_protocol(uri), content)


def create_file(uri: str, content: bytes) -> bool:
    """Write a new file at an address by a conditional write of the store; return False if there is a file already.

    Some stores ignore the condition: see `check_conditional_writes`.
    """
    if not is_remote(uri):
        return staging.create_file(local_path(uri), content)
    with _connected(uri) as store:
        try:
            store.pipe_file(store._strip_protocol(uri), content, mode="create")
        except FileExistsError:
            return False
    return True


def check_conditional_writes(uri: str) -> None:
    """Raise ComponentError unless the store itself writes a file, tried below an address, only if there is none."""
    from fsspec import AbstractFileSystem

    with _connected(uri) as store:
        # fsspec's own asks for the file before it writes it: a process that writes in between goes unnoticed.
        supported = getattr(store.pipe_file, "__func__", None) is not AbstractFileSystem.pipe_file
    if not supported or _overwrites(join(uri, f".probe-{uuid.uuid4().hex}")):
        received = f"{uri}: the store has no conditional writes, so concurrent pushes could overwrite each other"
        expected = "a store that writes a file only if there is none, as S3, Google Cloud Storage and Azure do"
        raise ComponentError(received, expected, "use such a store, or mount this one and pass its path")


def _overwrites(probe: str) -> bool:
    """Return True if a conditional write replaces a file at an address, or fails for another reason than the file."""
    write_file(probe, b"")
    try:
        return create_file(probe, b"")
    except ComponentError:
        return True
    finally:
        remove(probe)


def remove(uri: str) -> None:
    """Delete the file at an address, or all files below it; it is no error if there are none."""
    if not is_remote(uri):
        path = Path(uri)
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return
    _remove_files(uri, list(_list(uri)))


def _remove_files(uri: str, files: list[str]) -> None:
    with _connected(uri) as store, contextlib.suppress(FileNotFoundError):
        paths = [store._strip_protocol(file) for file in files]
        if store.async_impl and paths:
            store.rm(paths)  # object stores delete many files with one request
        else:
            for path in paths:  # the `rm` of WebHDFS takes no list
                with contextlib.suppress(FileNotFoundError):
                    store.rm_file(path)


def move(uri: str, target: str) -> None:
    """Move the file or folder at an address to another one; it is no error if there is none.

    A local path is renamed. In a store, which has no renames, all files are copied before the first one is removed, so
    that a move that was killed is completed by another one. Files that another process moves meanwhile are skipped, and
    files that it writes there meanwhile stay.
    """
    if not is_remote(uri):
        path = Path(uri)
        if path.exists():
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.rename(target)
        return
    files = list(_list(uri))
    with _connected(uri) as store:
        for file in files:
            moved = target.rstrip("/") + file.removeprefix(uri.rstrip("/"))
            with contextlib.suppress(FileNotFoundError):
                store.cp_file(store._strip_protocol(file), store._strip_protocol(moved))
    _remove_files(uri, files)


def _list(uri: str) -> dict[str, dict[str, Any]]:
    """Return what the store knows about each file at or below an address, by its address."""
    with _connected(uri) as store:
        store.invalidate_cache()  # other processes write there too
        root = store._strip_protocol(uri).rstrip("/")
        listed = store.find(root, detail=True)
    below = {uri.rstrip("/") + name.rstrip("/").removeprefix(root): facts for name, facts in sorted(listed.items())}
    return {file: facts for file, facts in below.items() if facts.get("type") != "directory"}


@contextlib.contextmanager
def _connected(uri: str) -> Iterator[Any]:
    """Yield fsspec's file system for an address; raise its errors as ComponentError."""
    import fsspec

    scheme = uri.partition("://")[0]
    _refuse_web(uri)
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs the traceback of an error that is raised anyway
    try:
        _check_answer("/".join(uri.split("/")[:3]))
        yield fsspec.core.url_to_fs(uri, **_options(scheme))[0]
    except ComponentError:
        raise
    except FileNotFoundError as error:
        raise ComponentError(f"{uri}: no such file or folder", "an address with content", "check it") from error
    except Exception as error:
        # The second text is pyarrow's, of libjvm and libhdfs.
        if isinstance(error, ImportError) or re.match("(Unable|Prior attempt) to load lib", str(error)):
            what = "package that reads" if isinstance(error, ImportError) else "libraries that read"
            fix = FIXES.get(scheme, f"install the package for {scheme}")
            raise ComponentError(f"{uri}: {first_line(error)}", f"the {what} {scheme}://", fix) from error
        received = f"{uri}: {first_line(error)}"
        expected = "an address that fsspec can read or write (s3, gs, abfs, hdfs, …)"
        raise ComponentError(received, expected, "check it, your credentials and the network") from error


def _options(scheme: str) -> dict[str, Any]:
    """Return limits of the time to wait for an answer, next to what the user's configuration of fsspec has."""
    if EXTRAS.get(scheme) != "s3":
        return {}
    import fsspec

    limits = {"connect_timeout": ANSWER_S / 4, "read_timeout": 3 * ANSWER_S, "retries": {"max_attempts": 2}}
    return {"config_kwargs": limits | fsspec.config.conf.get(scheme, {}).get("config_kwargs", {})}


@cache
def _check_answer(address: str) -> None:
    """Raise ComponentError if a store gives no answer, which can be a refusal, within `ANSWER_S` seconds."""
    import fsspec

    def ask() -> None:
        with contextlib.suppress(Exception):  # the request that follows reports it
            store, root = fsspec.core.url_to_fs(address, **_options(address.partition("://")[0]))
            store.exists(root)

    request = threading.Thread(target=ask, daemon=True)
    request.start()
    request.join(ANSWER_S)
    if request.is_alive():
        fix = "check the address, the network and its proxy"
        raise ComponentError(f"{address}: no answer in {ANSWER_S:g} s", "an object store that can be reached", fix)


def _refuse_web(uri: str) -> None:
    """Raise ComponentError for a web address: a web server has no list of the files below one."""
    if uri.startswith(("http://", "https://")):
        expected = "a local path, or an address in an object store such as s3://BUCKET/FOLDER"
        raise ComponentError(uri, expected, "download it, and pass its path")


@cache
def _cache() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tfopt-fetched-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
