"""A model in a process of its own, which is set up as the model asks: what its environment holds is read only once."""

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
from tfopt.processes.rpc import AskedProcess, Refused, answer
from tfopt.runtimes import Arrays, Runtime
from tfopt.runtimes.environment import in_words


class Elsewhere(Runtime):
    """The parent's side: what it is asked, its process is asked."""

    def __init__(self, model: Model, variables: Mapping[str, str], *, signature: str, threads: int | None) -> None:
        """Start the process and load the model there; see `tfopt.runtimes.load`."""
        self._variables = variables
        folder = tempfile.TemporaryDirectory(prefix="tfopt-")
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # this process may have models on the same GPU
        log = Path(folder.name, "log")
        self._process = AskedProcess(__name__, model.uri, log=log, environment=shared | dict(variables))
        self._end = weakref.finalize(self, _end, self._process, folder)
        try:
            self.inputs, self.outputs = self._ask("load", model.uri, signature, threads)
        except BaseException:
            self.close()
            raise

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run it there."""
        found: dict[str, NDArray[Any]] = self._ask("call", dict(arrays))
        return found

    def close(self) -> None:
        """End the process; it ends as well when nobody has this runtime any more."""
        self._end()

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return self._process.ask(name, *arguments)
        except Refused as error:
            raise ComponentError(
                f"in a process with {in_words(self._variables)}: {error}",
                "a model that can be loaded and run with its own settings",
                "give it other settings by configure_runtime, or leave it as it was",
            ) from error


def _end(process: AskedProcess, folder: "tempfile.TemporaryDirectory[str]") -> None:
    process.__exit__()
    folder.cleanup()


class Worker:
    """The process's side."""

    def load(
        self, uri: str, signature: str, threads: int | None
    ) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
        """Load the model; return its inputs and outputs."""
        from tfopt import runtimes

        self._runtime = runtimes.load(Model(uri), signature=signature, threads=threads)
        return self._runtime.inputs, self._runtime.outputs

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run it on inputs that were checked."""
        return self._runtime.call(arrays)


if __name__ == "__main__":
    answer(Connection(int(sys.argv[1])), Worker())
