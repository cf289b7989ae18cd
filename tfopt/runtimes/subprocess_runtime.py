"""Run a model in a process with its own environment variables, which TensorFlow reads once at import."""

import sys
import tempfile
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.processes.preloaded_processes import start_worker
from tfopt.processes.startup import speed_up_imports
from tfopt.processes.worker_process import CallFailed, WorkerClient, serve_calls
from tfopt.runtimes import Arrays, Runtime
from tfopt.runtimes.environment import format_variables


class SubprocessRuntime(Runtime):
    """A model in another process: the parent's side."""

    def __init__(self, model: Model, variables: Mapping[str, str], *, signature: str, threads: int | None) -> None:
        """Start the process and load the model there; see `tfopt.runtimes.load`."""
        self._variables = variables
        folder = tempfile.TemporaryDirectory(prefix="tfopt-")
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # this process may have models on the same GPU
        log = Path(folder.name, "log")
        self._process = start_worker(__name__, log=log, environment=shared | dict(variables))
        self._finalizer = weakref.finalize(self, _stop, self._process, folder)
        try:
            self.inputs, self.outputs = self._call("load", model.uri, signature, threads)
        except BaseException:
            self.close()
            raise

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model in its process."""
        outputs: dict[str, NDArray[Any]] = self._call("call", dict(arrays))
        return outputs

    def close(self) -> None:
        """Stop the process; it is also stopped when the runtime is garbage-collected."""
        self._finalizer()

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return self._process.call(name, *arguments)
        except CallFailed as error:
            raise ComponentError(
                f"in a process with {format_variables(self._variables)}: {error}",
                "a model that can be loaded and run with its environment variables",
                "configure it again with configure_runtime, or use the model from before",
            ) from error


def _stop(process: WorkerClient, folder: "tempfile.TemporaryDirectory[str]") -> None:
    process.__exit__()
    folder.cleanup()


class Worker:
    """A model in another process: the side of that process."""

    def load(
        self, uri: str, signature: str, threads: int | None
    ) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
        """Load the model and return its inputs and outputs."""
        from tfopt import runtimes

        self._runtime = runtimes.load(Model(uri), signature=signature, threads=threads)
        return self._runtime.inputs, self._runtime.outputs

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model on checked inputs."""
        return self._runtime.call(arrays)


if __name__ == "__main__":
    speed_up_imports()
    serve_calls(Connection(int(sys.argv[1])), Worker())
