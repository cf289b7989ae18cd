"""A server that is not ours, on this machine for as long as it is asked."""

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tfopt.errors import ComponentError
from tfopt.processes import parent_death as ending
from tfopt.processes.subprocess_call import last_lines


@contextlib.contextmanager
def started(*command: str, missing: Callable[[], str | None], until: float) -> Iterator[None]:
    """Start a server, wait until it serves the model, and stop it at the end.

    Args:
        command: The program and what it is given.
        missing: Asks it, and returns why it does not serve the model yet; None when it does.
        until: When, by `time.monotonic`, it must.

    Raises:
        ComponentError: With its last lines, when it ends or does not serve the model in time.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            ending.bound(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while (said := missing()) is not None:
                if process.poll() is not None or time.monotonic() > until:
                    raise ComponentError(
                        f"{Path(command[0]).name} does not serve it: {said}\n"
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
    """A port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])
