"""Request/response worker process on another machine. The library is copied there once.

The program ``ssh`` connects: keys, known hosts, jump hosts and short names are those of the user's configuration. A
connection that is silent for 15 seconds is lost. The worker ends with its connection.
"""

import contextlib
import hashlib
import io
import json
import pickle
import re
import shlex
import shutil
import socket
import subprocess
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, TypedDict

import tfopt
from tfopt.errors import ComponentError, MachineError
from tfopt.processes import ssh_bootstrap
from tfopt.processes.exit_status import last_lines
from tfopt.processes.worker_process import WorkerProcess

ADDRESS = re.compile(r"(ssh://(?:[\w.+-]+@)?(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d{1,5})?)(/.+)?", re.ASCII)
OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlPath=none")
ANSWER_S = 60.0  # for the first answer, after which only lost connections end a call
LOADER = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
PYTHONS = ((3, 11), (3, 13))  # the first and the last one that the library supports
LARGEST_ANSWER = 1 << 30
# Classes in answers. Others are refused: unpickling runs code, and the other machine may not run any on this one.
ANSWERED = {
    "tfopt.artifacts.tensor_spec": ("ParsedFeature", "RecordSpec", "TensorSpec"),
    "tfopt.errors": ("AttemptError", "ComponentError", "ExamplesError", "MachineError"),
    "numpy": ("dtype", "ndarray"),
    "numpy.core.multiarray": ("_reconstruct",),
    "numpy._core.multiarray": ("_reconstruct",),
    "numpy._core.numeric": ("_frombuffer",),
    "numpy.core.numeric": ("_frombuffer",),
}


class _Greeting(TypedDict):
    python: list[int]
    program: str
    missing: list[str]
    has_library: bool


@dataclass(frozen=True)
class SshAddress:
    """A machine, and the Python program there."""

    destination: str  # as ssh takes it
    python: str = "python3"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``ssh://[USER@]HOST[:PORT][/PATH/OF/PYTHON]``.

        >>> SshAddress.parse("ssh://pi@board:2222/home/pi/venv/bin/python")
        SshAddress(destination='ssh://pi@board:2222', python='/home/pi/venv/bin/python')

        Raises:
            ComponentError: If the text is no such address.
        """
        match = ADDRESS.fullmatch(text)
        if not match:
            expected = "ssh://[USER@]HOST[:PORT][/PATH/OF/PYTHON]"
            raise ComponentError(f"device={text!r}", expected, "write it like ssh://pi@board.local")
        return cls(match[1], match[2] or "python3")


class SshWorker(WorkerProcess):
    """A worker in a new Python process of another machine."""

    def __init__(
        self, address: SshAddress, module: str, log: Path, packages: Sequence[str], needed: Sequence[str]
    ) -> None:
        """Run a module there, which calls `serve_calls` with the arguments that `ssh_bootstrap.main` describes.

        ``missing`` are then those of the packages, by the names of their imports, that this Python lacks. Without one
        of ``needed`` nothing starts.

        Raises:
            MachineError: If the machine cannot be reached, or its Python is too old or lacks a needed package.
        """
        program = shutil.which("ssh")
        if not program:
            raise MachineError(f"{address.destination}: no ssh here", "the program ssh", "install openssh-client")
        script = Path(ssh_bootstrap.__file__).read_bytes()
        sources = library_sources(module)
        words = [address.python, "-c", LOADER, str(len(script)), _digest(sources), module, *packages]
        options = [word for option in OPTIONS for word in ("-o", option)]
        self._address, self.log = address, log
        ours, theirs = socket.socketpair()
        with theirs:
            self._start([program, "-T", *options, address.destination, shlex.join(words)], log, channel=theirs.fileno())
        try:
            self.missing = self._greet(ours, script, sources, needed)
        except BaseException:
            self.kill()
            ours.close()
            raise
        super(WorkerProcess, self).__init__(_CheckedConnection(ours.detach()), log)

    def __exit__(self, *_: object) -> None:
        """Close the connection, by which the worker ends."""
        self._pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        self.kill()

    def _greet(
        self, channel: socket.socket, script: bytes, sources: dict[str, Path], needed: Sequence[str]
    ) -> list[str]:
        """Start the worker and return which packages it lacks."""
        greeting: _Greeting | None = None
        with contextlib.suppress(OSError):  # of a closed connection, or without an answer in time
            channel.settimeout(ANSWER_S)
            channel.sendall(script)
            greeting = _read_greeting(channel)
        if greeting is None:
            raise self._refuse_connection()
        self._check_python(greeting, needed)
        archive = b"" if greeting["has_library"] else _pack(sources)
        channel.settimeout(None)
        channel.sendall(len(archive).to_bytes(8, "big") + archive)
        return greeting["missing"]

    def _refuse_connection(self) -> MachineError:
        destination, python = self._address.destination, self._address.python
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)  # a closed connection is that of a process that ends
        code, output = self._process.poll(), last_lines(self.log)
        if code in (126, 127):
            expected = f"a Python program there, {python}"
            fix = "install Python there, or name the program: ssh://[USER@]HOST[:PORT]/PATH/OF/PYTHON"
            return MachineError(f"{destination}: {output}", expected, fix)
        what = output or (f"no answer in {ANSWER_S:g} seconds" if code is None else f"ssh ended with status {code}")
        expected = "a machine that ssh can log in to without a password, as the user's configuration of ssh describes"
        fix = f"find out by this command why it fails: ssh -o BatchMode=yes {destination} true"
        return MachineError(f"{destination}: {what}", expected, fix)

    def _check_python(self, greeting: _Greeting, needed: Sequence[str]) -> None:
        first, last = (".".join(map(str, version)) for version in PYTHONS)
        python, program = ".".join(map(str, greeting["python"])), greeting["program"]
        received = f"{self._address.destination}: Python {python} ({program})"
        expected = f"Python {first} to {last} with {', '.join(needed)}"
        another = "or name a Python that has them: ssh://[USER@]HOST[:PORT]/PATH/OF/PYTHON"
        if not PYTHONS[0] <= tuple(greeting["python"][:2]) <= PYTHONS[1]:
            raise MachineError(received, expected, f"install such a Python there, {another}")
        if missing := [name for name in needed if name in greeting["missing"]]:
            packages = " ".join(name.replace("_", "-") for name in needed)
            fix = f"run there: {shlex.quote(program)} -m pip install {packages}; {another}"
            raise MachineError(f"{received} without {', '.join(missing)}", expected, fix)


class _CheckedConnection(Connection):
    """Receives values of harmless types only."""

    def recv(self) -> Any:
        return _CheckedUnpickler(io.BytesIO(self.recv_bytes(LARGEST_ANSWER))).load()


class _CheckedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in ANSWERED.get(module, ()):
            raise MachineError(f"an answer with {module}.{name}", "arrays, numbers and texts", "check that machine")
        return super().find_class(module, name)


def library_sources(module: str) -> dict[str, Path]:
    """Return the files of the library by their paths in it: all but components and pipelines, and the module's package.

    A source checkout has links to the components, which an installation does not have.
    """
    library = Path(tfopt.__file__).parent
    package = library.joinpath(*module.split(".")[1:-1])
    others = (library / "components", library / "pipelines")
    files = [file for file in library.rglob("*.py") if not any(file.is_relative_to(other) for other in others)]
    files += [package.parent / "__init__.py", *package.glob("*.py")]
    return {str(Path("tfopt", file.relative_to(library))): file for file in sorted(files)}


def _digest(sources: dict[str, Path]) -> str:
    total = hashlib.sha256()
    for name, file in sources.items():
        total.update(f"{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _pack(sources: dict[str, Path]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as stream:
        for name, file in sources.items():
            stream.write(file, name)
    return archive.getvalue()


def _read_greeting(channel: socket.socket) -> _Greeting | None:
    """Return the first line after the mark; None if the connection ends before."""
    deadline, received = time.monotonic() + ANSWER_S, b""
    while time.monotonic() < deadline and len(received) < 1 << 20:
        _, mark, line = received.partition(ssh_bootstrap.MARK)
        if mark and line.endswith(b"\n"):
            greeting: _Greeting = json.loads(line)
            return greeting
        if not (part := channel.recv(1 << 16)):
            break
        received += part
    return None
