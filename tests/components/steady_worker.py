"""A worker process for tests of `profile_training`: the cache setting determines the time of a step. No TensorFlow."""

import os
import sys
from multiprocessing.connection import Connection
from typing import Any

from tfopt.processes.worker_process import serve_calls

STEP_S = {"auto": 0.02, "memory": 0.01}  # by cache setting, independent of the batch size


class SteadyWorker:
    """A training with a known speed."""

    def build(self, variant: Any) -> dict[str, Any]:
        """Store the settings; raise if the cache is off."""
        if variant.cache == "off":
            raise ValueError("no such training")
        self._variant, self._turns = variant, 0
        return {}

    def burst(self, part: str, seconds: float) -> float:
        """Return the seconds of a step; with a cache on disk the process exits in its third turn."""
        assert (part, seconds) == ("real", 0.125)
        self._turns += 1
        if self._variant.cache == "disk" and self._turns == 3:
            os._exit(1)
        return STEP_S.get(self._variant.cache, 0.02)

    def memory(self) -> dict[str, int]:
        """Return the peak memory in bytes."""
        return {"process": 1000}


if __name__ == "__main__":
    serve_calls(Connection(int(sys.argv[1])), SteadyWorker())
