"""A process to fork, for tests/processes/test_fork_server.py: started with ``python -m tests.forked``."""

import os
import sys
import time

from tfopt.processes.fork_server import answer_by_forks

BEGUN = time.monotonic_ns()  # what all forks have in common


class Worker:
    """What a fork can be asked."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.kept: list[str] = []

    def keep(self, word: str) -> list[str]:
        """Add a word and return all."""
        self.kept.append(word)
        return self.kept

    def origin(self) -> tuple[int, int, int]:
        """This process, the one it was forked from, and when that had imported everything."""
        return os.getpid(), os.getppid(), BEGUN

    def say(self, word: str) -> None:
        """Print it, here and as a library of C would."""
        print(word, flush=True)
        os.write(2, f"{word}!\n".encode())

    def fail(self) -> None:
        """Raise."""
        raise ValueError("cannot do that")

    def leave(self) -> None:
        """End in the middle of a call."""
        sys.exit(3)

    def wait(self, signal: int) -> None:
        """Be ended from outside, or never."""
        os.kill(os.getpid(), signal)
        time.sleep(3600)


if __name__ == "__main__":
    answer_by_forks(int(sys.argv[1]), Worker)
