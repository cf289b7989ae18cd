"""Rename complete outputs to their paths: all of them or none, also if the process is killed between two renames.

A journal next to the first path names all of them and what was renamed there. Its removal, after the last rename,
commits. The journal of a killed process shows which outputs have to be removed before the component runs again.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from tfopt.errors import ComponentError
from tfopt.storage import remote_files, staging

NAME_IN_USE = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # errors of renaming to an existing name


def place(outputs: Mapping[Path, Path]) -> None:
    """Rename staged files or folders (the keys) to their paths, which do not exist or are empty folders.

    Raises:
        ComponentError: If there is something at one of the paths by now. None of the outputs is then placed.
    """
    for staged in outputs:
        staging.sync_tree(staged)
    with _journal(outputs) if len(outputs) > 1 else contextlib.nullcontext():
        placed: list[Path] = []
        try:
            for staged, target in outputs.items():
                _rename(staged, target)
                placed.append(target)
        except BaseException:
            for target in reversed(placed):
                _discard(target)
            raise


def remove_interrupted(target: Path) -> None:
    """Remove what a killed process had renamed to this path, and to others with it, before it renamed the last one.

    Content that differs from what the process renamed there stays. The name ``*`` stands for all of a folder.
    """
    name = target.name if target.name == "*" else glob.escape(target.name)
    for path in target.parent.glob(f".{name}.commit-*"):
        try:
            with _lock(path) as journal:
                _roll_back(json.loads(journal.read()))
        except BlockingIOError:  # its process is running
            continue
        except FileNotFoundError:  # a link to the journal of a process that has committed
            path.unlink(missing_ok=True)


def upload(staged: Path, address: str) -> None:
    """Copy a staged output to an address; as long as that lasts, a file next to it names this process."""
    remote_files.write_file(_uploading(address), staging.new_path(Path()).name.encode())
    remote_files.upload(staged, address)
    remote_files.remove(_uploading(address))


def remove_interrupted_upload(address: str) -> None:
    """Remove what a process of this machine, which was killed, had copied to an address."""
    owner = remote_files.read_file(_uploading(address))
    if owner is not None and staging.has_ended(owner.decode(errors="replace")):
        remove_upload(address)


def remove_upload(address: str) -> None:
    """Remove an output at an address, and then the file that names the process which copies it."""
    remote_files.remove(address)
    remote_files.remove(_uploading(address))


def _uploading(address: str) -> str:
    return f"{address.rstrip('/')}.uploading"


def _rename(staged: Path, target: Path) -> None:
    try:
        staged.rename(target)
    except OSError as error:
        if error.errno not in NAME_IN_USE:
            raise
        raise ComponentError(
            f"{target} exists: another process wrote it meanwhile",
            "an output that only one process writes",
            "name another folder for one of them",
        ) from error
    staging.sync(target.parent)


@contextlib.contextmanager
def _journal(outputs: Mapping[Path, Path]) -> Iterator[None]:
    """Keep a journal next to the first path, and a link to it next to each other one, as long as the block runs."""
    token = uuid.uuid4().hex
    content = {"token": token, "outputs": {str(target): _fingerprint(staged) for staged, target in outputs.items()}}
    first, *others = (_journal_of(target, token) for target in outputs.values())
    partial = staging.new_path(first.parent, next(iter(outputs.values())).name)  # found by the rerun
    with partial.open("x") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # released when this process and its forks have ended
        stream.write(json.dumps(content))
        stream.flush()
        os.fsync(stream.fileno())
        partial.rename(first)
        try:
            for link in others:
                link.symlink_to(first)
            for folder in {link.parent for link in (first, *others)}:
                staging.sync(folder)
            yield
        finally:
            for link in (first, *others):  # the first one is the commit
                link.unlink(missing_ok=True)


def _journal_of(target: Path, token: str) -> Path:
    return target.with_name(f".{target.name}.commit-{token}")


@contextlib.contextmanager
def _lock(journal: Path) -> Iterator[IO[str]]:
    """Open and lock a journal.

    Raises:
        BlockingIOError: If its process is running, or the file system has no locks.
    """
    with journal.open("r+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BlockingIOError from error
        yield stream


def _roll_back(content: Mapping[str, Any]) -> None:
    """Remove the outputs of a journal, then the links to it, then the journal: a killed removal can be repeated."""
    fingerprints = {Path(name): fingerprint for name, fingerprint in content["outputs"].items()}
    for target, fingerprint in fingerprints.items():
        with contextlib.suppress(FileNotFoundError):
            if _fingerprint(target) == fingerprint:
                _discard(target)
    for target in reversed(fingerprints):
        _journal_of(target, content["token"]).unlink(missing_ok=True)


def _discard(target: Path) -> None:
    """Remove a file or folder; readers never see a part of it."""
    hidden = staging.new_path(target.parent, target.name)
    target.rename(hidden)
    shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()


def _fingerprint(path: Path) -> str:
    """Return a digest of names, inodes, sizes and times below a path, which a rename does not change."""
    facts = [
        (str(file.relative_to(path)), (status := file.lstat()).st_ino, status.st_size, status.st_mtime_ns)
        for file in (path, *sorted(path.rglob("*")))
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
