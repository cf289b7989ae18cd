"""The parent's side of one model's process: with its cores, its threads and its own variables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.asked import AskedProcess, Refused
from tfopt.errors import ComponentError
from tfopt.serving import environment

# Each of these libraries reads its thread count once, when it is imported.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


class ModelProcess(AskedProcess):
    """A fresh process for one model, pinned to some cores, for `worker.Worker`."""

    def __init__(self, model: Model, *, cores: Sequence[int], log: Path) -> None:
        """Start it; nothing is loaded yet."""
        super().__init__(
            "tfopt.components.benchmark.worker",
            ",".join(map(str, cores)),
            model.uri,  # only to be seen in a list of processes
            log=log,
            environment=_environment(len(cores)) | environment.read(model),
        )

    def ask(self, name: str, *arguments: Any) -> Any:
        """As `AskedProcess.ask`; what a model refuses in three parts is one line of a table."""
        try:
            return super().ask(name, *arguments)
        except ComponentError as error:
            raise Refused(f"{error.received}; expected {error.expected}") from error


def _environment(threads: int) -> dict[str, str]:
    return {
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "0",  # the only place where TensorFlow says what its build leaves unused
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # all models are alive together and must share the memory
    }
