"""Run a model in a process with its own environment variables, which TensorFlow reads once at import."""

import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.keras_models.model_code import is_trusted
from tfopt.processes.isolation import Limits
from tfopt.processes.preloaded_processes import start_worker
from tfopt.processes.worker_process import CallFailed, WorkerClient
from tfopt.runtimes.environment import format_variables
from tfopt.runtimes.runtime import Arrays, Runtime

WORKER = "tfopt.runtimes.subprocess_worker"


class SubprocessRuntime(Runtime):
    """A model in another process: the parent's side of `subprocess_worker`."""

    def __init__(self, model: Model, variables: Mapping[str, str], *, signature: str, threads: int | None) -> None:
        """Start the process and load the model there; see `tfopt.runtimes.load`."""
        self._variables = variables
        folder = tempfile.TemporaryDirectory(prefix="tfopt-")
        own = Path(folder.name, "tmp")
        own.mkdir()
        # This process may have models on the same GPU. Its outputs are compared (`parity.without_tensor_float_32`), and
        # its speed is not measured.
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "NVIDIA_TF32_OVERRIDE": "0", "TMPDIR": str(own)}
        limits = None if is_trusted() else Limits((str(own),))
        log = Path(folder.name, "log")
        self._process = start_worker(WORKER, log=log, environment=shared | dict(variables), limits=limits)
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
            received = f"in a process with {format_variables(self._variables)}: {error}"
            expected = "a model that can be loaded and run with its environment variables"
            fix = "configure it again with configure_runtime, or use the model from before"
            raise ComponentError(received, expected, fix) from error


def _stop(process: WorkerClient, folder: "tempfile.TemporaryDirectory[str]") -> None:
    process.__exit__()
    folder.cleanup()
