"""A fork server for tests/processes/test_fork_server.py, started with ``python -m tests.fork_worker``."""

import os
import sys
import time

from tfopt.processes.fork_server import serve_forks

BEGUN = time.monotonic_ns()  # the same in all forks


class Worker:
    """The worker of a fork."""

    def __init__(self) -> None:
        """Start with an empty list."""
        self.words: list[str] = []

    def keep(self, word: str) -> list[str]:
        """Add a word and return all."""
        self.words.append(word)
        return self.words

    def origin(self) -> tuple[int, int, int]:
        """Return the IDs of this process and of the fork server, and the server's start time."""
        return os.getpid(), os.getppid(), BEGUN

    def say(self, word: str) -> None:
        """Print a word from Python and directly to the file descriptor."""
        print(word, flush=True)
        os.write(2, f"{word}!\n".encode())

    def fail(self) -> None:
        """Raise an exception."""
        raise ValueError("cannot do that")

    def leave(self) -> None:
        """Exit during a call."""
        sys.exit(3)

    def wait(self, signal: int) -> None:
        """Send a signal to this process and wait."""
        os.kill(os.getpid(), signal)
        time.sleep(3600)


if __name__ == "__main__":
    serve_forks(int(sys.argv[1]), Worker)
