"""Worker process of `SubprocessRuntime`: it loads a model and runs it."""

import sys
from multiprocessing.connection import Connection
from typing import Any

from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.processes.startup import speed_up_imports
from tfopt.processes.worker_process import serve_calls
from tfopt.runtimes.runtime import Arrays


class Worker:
    """A model in this process, for the calls of another one."""

    def load(
        self, uri: str, signature: str, threads: int | None
    ) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
        """Load the model and return its inputs and outputs."""
        self._runtime = runtimes.load(Model(uri), signature=signature, threads=threads)
        return self._runtime.inputs, self._runtime.outputs

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model on checked inputs."""
        return self._runtime.call(arrays)


if __name__ == "__main__":
    speed_up_imports()
    serve_calls(Connection(int(sys.argv[1])), Worker())
