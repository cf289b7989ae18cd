"""Server on the machine that models are measured on: it starts their processes, and keeps their files in a cache.

It ends, with all processes that it started, when the connection ends, also during a call.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import tfopt
from tfopt.artifacts import Model
from tfopt.components.benchmark.model_process import Machine, ModelProcess, RuntimeProcesses
from tfopt.keras_models.model_code import TRUST
from tfopt.processes.startup import speed_up_imports
from tfopt.processes.worker_process import CallFailed, WorkerDied, serve_calls
from tfopt.storage.staging import new_folder_path, remove_abandoned, remove_folder
from tfopt.value_types import JsonObject

CACHE_BYTES = 4 << 30
IDLE_S = 600.0  # without a call the client is gone, although its connection was not closed


class DeviceServer(contextlib.ExitStack):
    """The calls of `device.Device`."""

    def __init__(self, cache: Path, folder: Path) -> None:
        """Store the folder of copied files, and that of temporary ones."""
        super().__init__()
        self._machine, self._cache, self._folder = Machine(), cache, folder
        self._received = folder / "received"
        self._used = {Path(tfopt.__file__).parents[1].name}  # folders in the cache that this connection needs
        self._runtimes: dict[tuple[int, ...], RuntimeProcesses] = {}
        self._processes: list[ModelProcess] = []

    def trust(self) -> None:
        """Let models run code of their own."""
        os.environ[TRUST] = "1"

    def choose_cores(self, count: int) -> list[int]:
        """Choose cores to pin to; fewer if there are not so many."""
        return self._machine.choose_cores(count)

    def other_seconds(self, cores: list[int]) -> tuple[float, float]:
        """Return the seconds that all cores but these were used, and all their seconds."""
        return self._machine.other_cores(cores).seconds()

    def describe(self, cores: list[int]) -> JsonObject:
        """Return the fingerprint of the machine and its load so far."""
        return self._machine.describe(cores)

    def find(self, digest: str) -> str | None:
        """Return the folder of copied files; None if it is not in the cache."""
        place = self._cache / digest
        if not place.is_dir():
            return None
        os.utime(place)
        self._used.add(digest)
        return str(place)

    def write(self, name: str, part: bytes) -> None:
        """Add to a file of the folder that is being copied."""
        file = self._received / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as stream:
            stream.write(part)

    def finish(self, digest: str) -> str:
        """Move the received folder into the cache and return its path; remove what was not used for a long time."""
        self._used.add(digest)
        _remove_oldest(self._cache, CACHE_BYTES - _size(self._received), self._used)
        place = self._cache / digest
        if place.is_dir():  # another connection was faster
            shutil.rmtree(self._received)
        else:
            self._received.rename(place)
        return str(place)

    def add(self, uri: str, cores: list[int], instances: int) -> int:
        """Add the process of a model, which `do` starts, and return its number."""
        key = (instances, *cores)
        if key not in self._runtimes:
            folder = self._folder / f"runtimes{len(self._runtimes)}"
            folder.mkdir()
            self._runtimes[key] = self.enter_context(RuntimeProcesses(cores, folder, instances))
        number = len(self._processes)
        self._processes.append(self._runtimes[key].process(Model(uri), self._folder / f"{number}.log"))
        return number

    def do(self, number: int, method: str, *arguments: Any) -> tuple[str, Any]:
        """Call a method of a model's process; return how it ended, and its result or the reason of its failure."""
        try:
            return "returned", getattr(self._processes[number], method)(*arguments)
        except WorkerDied as death:
            return "died", str(death)
        except CallFailed as failure:
            return "failed", str(failure)


class StandardStreams(Connection):
    """The connection of this process: calls on its standard input, answers on another descriptor."""

    def __init__(self, answers: int) -> None:
        """Store the descriptor of the answers."""
        super().__init__(0, writable=False)
        self._answers = Connection(answers, readable=False)

    def recv(self) -> Any:
        """Return the next call. Without one, `end_with_connection` ends this process."""
        with contextlib.suppress(EOFError):
            if self.poll(IDLE_S):
                return super().recv()
            os.kill(os.getpid(), signal.SIGTERM)
        while True:
            signal.pause()

    def send(self, obj: Any) -> None:
        """Send an answer."""
        self._answers.send(obj)


def end_with_connection() -> None:
    """Raise SystemExit in the main thread, once, when the standard input is closed."""

    def end(*_: object) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        sys.exit(1)

    def watch() -> None:
        poll = select.poll()
        poll.register(0, select.POLLRDHUP)
        poll.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    threading.Thread(target=watch, daemon=True).start()


def _remove_oldest(cache: Path, limit: int, used: set[str]) -> None:
    """Remove the folders that were used first, until the rest has at most so many bytes."""
    folders = [folder for folder in cache.iterdir() if not folder.name.startswith(".")]
    total = 0
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True):
        total += _size(folder)
        if total > limit and folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main(answers: int, cache: Path) -> None:
    """Serve calls until the connection ends."""
    speed_up_imports()
    end_with_connection()
    remove_abandoned(cache)
    folder = new_folder_path(cache)
    folder.mkdir(parents=True)
    try:
        with DeviceServer(cache, folder) as server:
            serve_calls(StandardStreams(answers), server)
    finally:
        remove_folder(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
