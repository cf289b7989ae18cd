"""A server process on this machine for the duration of a test."""

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tfopt.errors import ComponentError
from tfopt.processes.exit_status import last_lines
from tfopt.processes.parent_death import bound_command


@contextlib.contextmanager
def start_server(*command: str, not_ready: Callable[[], str | None], deadline: float) -> Iterator[None]:
    """Start a server, wait until it serves the model, and stop it at the end.

    Until the deadline, by `time.monotonic`, ``not_ready`` must return None, and before the reason why it does not serve
    the model yet.

    Raises:
        ComponentError: If it ends or does not serve the model in time, with its last lines.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            bound_command(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while (reason := not_ready()) is not None:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ComponentError(
                        f"{Path(command[0]).name} does not serve it: {reason}\n"
                        f"{last_lines(Path('/proc/self/fd', str(log.fileno())))}",
                        "a version that becomes available",
                        "see its last lines above",
                    )
                time.sleep(0.1)
            yield
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])
