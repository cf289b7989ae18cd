"""Rename complete outputs to their paths: all of them or none, also if the process is killed between two renames.

A journal next to each path names all of them and what was renamed there. The removal of the first one, after the last
rename, commits. The journals of a killed process show which outputs have to be removed before the component runs again.
Other users may write such files into a shared folder; theirs are ignored.
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
from dataclasses import asdict, dataclass
from pathlib import Path

from tfopt.errors import ComponentError
from tfopt.storage import remote_files, staging
from tfopt.storage.folder_lock import try_lock
from tfopt.storage.owned_files import opened_own

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
                staging.sync(target.parent)
        except BaseException:
            for target in reversed(placed):
                _discard(target)
            raise


def remove_interrupted(target: Path) -> None:
    """Remove what a killed process had renamed to this path, and to others with it, before it renamed the last one.

    Content that differs from what the process renamed there stays, and so does everything without a journal of this
    user next to it. The name ``*`` stands for all of a folder.
    """
    name = target.name if target.name == "*" else glob.escape(target.name)
    for path in target.parent.glob(f".{name}.commit-*"):
        with _locked(path) as journal:
            if journal:
                _roll_back(journal)
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
        received = f"{target} exists: another process wrote it meanwhile"
        expected = "an output that only one process writes"
        raise ComponentError(received, expected, "name another folder for one of them") from error


@contextlib.contextmanager
def _journal(outputs: Mapping[Path, Path]) -> Iterator[None]:
    """Keep a journal next to each path, all with the same content, as long as the block runs."""
    fingerprints = {str(target): _fingerprint(staged) for staged, target in outputs.items()}
    journal = _Journal(uuid.uuid4().hex, staging.new_path(Path()).name, fingerprints)
    paths = [journal.path(target) for target in outputs.values()]
    with contextlib.ExitStack() as locks:
        try:
            for path, target in zip(paths, outputs.values(), strict=True):
                partial = staging.new_path(path.parent, target.name)  # found by the rerun
                stream = locks.enter_context(partial.open("x"))  # released when this process and its forks have ended
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(stream, fcntl.LOCK_EX)
                stream.write(json.dumps(asdict(journal)))
                stream.flush()
                staging.sync(partial)
                partial.rename(path)
            for folder in {path.parent for path in paths}:
                staging.sync(folder)
            yield
        finally:
            for path in paths:  # the first one is the commit
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Journal:
    """Outputs that are renamed together."""

    token: str
    process: str  # a name from `staging.new_path`: says without locks whether its process runs
    outputs: dict[str, str]  # fingerprints by path; the journal of the first one is removed first

    def path(self, target: Path) -> Path:
        """Return the path of the journal next to an output."""
        return target.with_name(f".{target.name}.commit-{self.token}")


def _read(descriptor: int) -> _Journal | None:
    """Read a journal; None if it was not written here."""
    try:
        content = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        outputs = {str(name): str(fingerprint) for name, fingerprint in content["outputs"].items()}
        return _Journal(str(content["token"]), str(content["process"]), outputs) if outputs else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[_Journal | None]:
    """Open, lock and read a journal; yield None if it is not one of this user, or its process is running."""
    with contextlib.ExitStack() as stack:
        journal = None
        with contextlib.suppress(OSError):  # another user's, a link, or removed meanwhile
            descriptor = stack.enter_context(opened_own(path, os.O_RDWR))
            journal, is_free = _read(descriptor), try_lock(descriptor)
        if journal and is_free is None:  # a file system without locks
            is_free = staging.has_ended(journal.process)
        yield journal if journal and is_free else None


def _roll_back(journal: _Journal) -> None:
    """Remove the outputs of a journal, then the journals: a killed removal can be repeated.

    Without the first journal the process had committed. An output without a journal next to it that says the same, of
    this user, stays: a journal removes nothing but what lies next to it.
    """
    targets = [Path(name) for name in journal.outputs]
    if not _is_next_to(journal, targets[0]):
        return
    targets = [target for target in targets if _is_next_to(journal, target)]
    for target in targets:
        with contextlib.suppress(FileNotFoundError):
            if _fingerprint(target) == journal.outputs[str(target)]:
                _discard(target)
    for target in reversed(targets):
        journal.path(target).unlink(missing_ok=True)


def _is_next_to(journal: _Journal, target: Path) -> bool:
    # ValueError: a path that cannot be one, such as "/", or with NUL
    with contextlib.suppress(OSError, ValueError), opened_own(journal.path(target)) as descriptor:
        return _read(descriptor) == journal
    return False


def _discard(target: Path) -> None:
    """Remove a file or folder; readers never see a part of it."""
    hidden = staging.new_folder_path(target.parent, target.name)
    hidden.parent.mkdir()
    target.rename(hidden)
    shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()
    hidden.parent.rmdir()


def _fingerprint(path: Path) -> str:
    """Return a digest of names, inodes, sizes and times below a path, which a rename does not change."""
    facts = [
        (str(file.relative_to(path)), (status := file.lstat()).st_ino, status.st_size, status.st_mtime_ns)
        for file in (path, *sorted(path.rglob("*")))
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
