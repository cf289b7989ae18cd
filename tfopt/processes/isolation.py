"""Limit what a process that runs a model may write and reach, with Landlock of the Linux kernel, which needs no rights.

A model is a program for its runtime, and some of its operators write files or open connections
(docs/adr/0069-isolation-by-landlock.md). Reading is not limited. A limit holds for the thread that sets it and for the
threads and processes that it starts afterwards, so it comes before the model's runtime starts any.
"""

import contextlib
import ctypes
import functools
import json
import logging
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path

from tfopt.processes.parent_death import PYTHON

log = logging.getLogger(__name__)

# Of linux/landlock.h and linux/prctl.h.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, with the same numbers on all processors
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_BLOCK = 1 << 4, 1 << 5, 1 << 6, 1 << 11
MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_SYM = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
TO_FILES = WRITE_FILE | TRUNCATE
TO_FOLDERS = TO_FILES | REFER | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
BIND_AND_CONNECT_TCP = 3
ABSTRACT_SOCKETS_AND_SIGNALS = 3  # to processes without this limit
# Versions of the interface: renames between folders, truncation, TCP, scopes.
RENAMES, TRUNCATION, TCP, SCOPES = 2, 3, 4, 6

# Files that a process writes without harm; for GPUs the devices, shared memory, and CUDA's cache of programs.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/dri", "/dev/shm")


@dataclass(frozen=True)
class Limits:
    """The rights of a process: to write below these folders; with ``tcp`` to listen and connect."""

    folders: tuple[str, ...]
    tcp: bool = False

    def with_folders(self, *folders: str | Path) -> "Limits":
        """Return these limits with further folders."""
        return Limits((*self.folders, *map(str, folders)), self.tcp)


_of_children: ContextVar[Limits | None] = ContextVar("limits of child processes", default=None)
_is_isolated = False  # in forks as well
_of_step: ContextVar[Limits | None] = ContextVar("limits of the process of a step", default=None)


@contextlib.contextmanager
def limited_children(limits: Limits | None) -> Iterator[None]:
    """Limit the processes that `run_in_child` starts in this context; None: their rights are those of this process."""
    token = _of_children.set(limits)
    try:
        yield
    finally:
        _of_children.reset(token)


def limits_of_children() -> Limits | None:
    """Return the limits of the processes that `run_in_child` starts; None if they have none."""
    return _of_children.get()


@contextlib.contextmanager
def step_process() -> Iterator[None]:
    """Let the component that this process runs limit it: in this context the process does nothing else."""
    token = _of_step.set(Limits(()))
    try:
        yield
    finally:
        _of_step.reset(token)


@contextlib.contextmanager
def written_after_step(*files: str | Path) -> Iterator[None]:
    """Let this process write to the folders of these files, too, after a component has limited it; create them."""
    folders = [Path(file).parent for file in files]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    before = _of_step.get()
    token = _of_step.set(before and before.with_folders(*folders))
    try:
        yield
    finally:
        _of_step.reset(token)


def limits_of_step() -> Limits | None:
    """Return what the process of a step writes besides its outputs; None if this process must not be limited."""
    return _of_step.get()


def is_exposed() -> bool:
    """Return True in the process of a step that may be limited, is not, and must not run models itself."""
    return landlock_version() > 0 and not _is_isolated and None not in (_of_children.get(), _of_step.get())


@functools.cache
def landlock_version() -> int:
    """Return the version of Landlock's interface; 0 if this system cannot limit a process."""
    if sys.platform != "linux":
        return 0
    version = _call(CREATE_RULESET, None, 0, 1)
    return version if version >= RENAMES else 0  # the first one forbids each rename to another folder


def describe() -> str:
    """Return by what models are isolated: ``landlock`` with its version, or ``none``."""
    return f"landlock {landlock_version()}" if landlock_version() else "none"


@functools.cache
def warn_without_isolation() -> None:
    """Log once if this system cannot isolate models."""
    if not landlock_version():
        log.info("this system has no Landlock (Linux 5.19 or newer): models run with all rights of this process")


def isolate(limits: Limits | None) -> None:
    """Limit this thread, and what it starts from now on; without effect for None, and where the system cannot."""
    global _is_isolated
    version = landlock_version()
    if limits is None or not version:
        return
    files = TO_FOLDERS | MAKE_CHAR | MAKE_BLOCK
    if version < TRUNCATION:
        files &= ~TRUNCATE
    tcp = BIND_AND_CONNECT_TCP if version >= TCP and not limits.tcp else 0
    scopes = ABSTRACT_SOCKETS_AND_SIGNALS if version >= SCOPES else 0
    attributes = struct.pack("=QQQ", files, tcp, scopes)  # struct landlock_ruleset_attr
    rules = _call(CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        return
    try:
        for path in (*limits.folders, *DEVICES, *_gpu_paths()):
            _allow(rules, path, files)
        if ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            _is_isolated = _call(RESTRICT_SELF, rules, 0, 0) == 0
    finally:
        os.close(rules)


def limited_command(limits: Limits | None) -> list[str]:
    """Return the first words of a command that runs the other words, a program, with limits; none without limits."""
    if limits is None or not landlock_version():
        return []
    return [*PYTHON, "-m", "tfopt.processes.isolation", json.dumps(asdict(limits))]


def _allow(rules: int, path: str, handled: int) -> None:
    """Add a rule that allows to write to a file, or to everything below a folder."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # nothing to write to
        return
    try:
        allowed = handled & (TO_FOLDERS if Path(path).is_dir() else TO_FILES)
        _call(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", allowed, descriptor), 0)
    finally:
        os.close(descriptor)


def _gpu_paths() -> Iterable[str]:
    devices = [str(device) for device in Path("/dev").glob("nvidia*")]
    if not devices:
        return []
    cache = Path(os.environ.get("CUDA_CACHE_PATH") or f"{os.environ.get('HOME', '')}/.nv")
    with contextlib.suppress(OSError):  # CUDA creates it, which it then may not
        cache.mkdir(exist_ok=True)
    return [*devices, str(cache)]


def _call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call and return its result, -1 for an error."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), *words))


if __name__ == "__main__":
    isolate(Limits(**json.loads(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])
