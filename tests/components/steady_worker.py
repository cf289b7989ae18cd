"""Stands in for a training in a process of `profile_training`, without TensorFlow: a setting says what a step takes."""

import os
import sys
from multiprocessing.connection import Connection
from typing import Any

from tfopt.processes.rpc import answer

STEP_S = {"auto": 0.02, "memory": 0.01}  # by the cache; whatever is in a batch


class Steady:
    """A training whose speed is known."""

    def build(self, setup: Any) -> dict[str, Any]:
        """Be ready, unless the cache is off."""
        if setup.cache == "off":
            raise ValueError("no such training")
        self._setup, self._turns = setup, 0
        return {}

    def burst(self, what: str, seconds: float) -> float:
        """Seconds of a step; with a cache on disk the process dies in its third turn."""
        assert (what, seconds) == ("real", 0.125)
        self._turns += 1
        if self._setup.cache == "disk" and self._turns == 3:
            os._exit(1)
        return STEP_S.get(self._setup.cache, 0.02)

    def memory(self) -> dict[str, int]:
        """Bytes."""
        return {"process": 1000}


if __name__ == "__main__":
    answer(Connection(int(sys.argv[1])), Steady())
