"""The parent's side of the models' processes, each with its cores, its threads and its own variables."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.processes.fork_server import Fork
from tfopt.processes.rpc import AskedProcess, Died, Refused
from tfopt.runtimes import environment

# A relative difference that forks of two processes may show where the models are equal: its standard deviation was 0.01
# (30 pairs of processes, 60 forks each).
ANOTHER_ORIGIN = 0.02

# Each of these libraries reads its thread count once, when it is imported.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


@dataclass(frozen=True)
class Origin:
    """What models must have in common to be forked from the same process, and to share the luck of its memory.

    Attributes:
        format: Of the model.
        variables: What `configure_runtime` says of it.
    """

    format: str
    variables: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return what runs this model."""
        return cls(model.format, tuple(sorted(environment.read(model).items())))


class Origins(contextlib.ExitStack):
    """Processes that have imported a runtime and are forked for its models."""

    def __init__(self, cores: Sequence[int], folder: Path) -> None:
        """Start none yet; they will be pinned to these cores and print into this folder."""
        super().__init__()
        self._cores, self._folder = cores, folder
        self._started: dict[Origin, AskedProcess] = {}

    def of(self, model: Model) -> AskedProcess:
        """Return the process for this model's format and variables, which may have to import it first."""
        origin = Origin.of(model)
        if origin not in self._started:
            process = AskedProcess(
                "tfopt.components.benchmark.worker",
                ",".join(map(str, self._cores)),
                origin.format,
                log=self._folder / f"origin{len(self._started)}.log",
                environment=_environment(len(self._cores)) | dict(origin.variables),
            )
            self._started[origin] = self.enter_context(process)
        return self._started[origin]


class ModelProcess:
    """The process of one model, for `worker.Worker`: a new one, with nothing of the last, whenever it is renewed."""

    def __init__(self, model: Model, origins: Origins, log: Path) -> None:
        """Start none yet."""
        self._model, self._origins, self._log = model, origins, log
        self._fork: Fork | None = None

    def renew(self) -> None:
        """Begin anew; nothing is loaded yet.

        Raises:
            Refused: When the runtime could not even be imported.
        """
        self.end()
        self._fork = Fork(self._origins.of(self._model), self._log)

    def ask(self, name: str, *arguments: Any) -> Any:
        """As `Asked.ask`; what a model refuses in three parts is one line of a table."""
        assert self._fork, "renew comes first"
        try:
            return self._fork.ask(name, *arguments)
        except ComponentError as error:
            raise Refused(f"{error.received}; expected {error.expected}") from error

    def end(self) -> None:
        """End the one there is."""
        fork, self._fork = self._fork, None
        if fork:
            fork.__exit__()

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        with contextlib.suppress(Died):  # with its origin, as every fork
            self.end()

    def printed(self) -> str:
        """Everything that importing the runtime and running the model printed."""
        logs = [self._origins.of(self._model).log, self._log]
        return "".join(log.read_text(errors="replace") for log in logs)


def _environment(threads: int) -> dict[str, str]:
    return {
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "0",  # the only place where TensorFlow says what its build leaves unused
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # all models are alive together and must share the memory
    }
