"""Client of the measuring processes, each with its cores, its number of threads and its environment variables."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from tfopt.artifacts import Model
from tfopt.components.benchmark.machine_conditions import MachineLoad, OtherCores, choose_cores
from tfopt.errors import AttemptError, ComponentError
from tfopt.keras_models.model_code import is_trusted
from tfopt.measurement.machine_fingerprint import fingerprint
from tfopt.processes.fork_server import ForkedWorker, late_variables
from tfopt.processes.isolation import Limits
from tfopt.processes.worker_process import CallFailed, WorkerDied, WorkerProcess
from tfopt.runtimes import environment
from tfopt.value_types import JsonObject

# Relative difference that forks of two processes may show for equal models: its standard deviation was 0.01 (30 pairs
# of processes, 60 forks each).
RUNTIME_DIFFERENCE = 0.02

# Each of these libraries reads its thread count once, when it is imported.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


@dataclass(frozen=True)
class RuntimeConfig:
    """The runtimes and environment of a model. Models with equal ones are forked from the same process."""

    formats: tuple[str, ...]  # format of the model, and that of its preprocessing if it has one
    variables: tuple[tuple[str, str], ...]  # environment variables of the model that the import of the runtime may read

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the runtime configuration of a model."""
        preprocessing = model.preprocessing
        formats = (model.format, *([Model(preprocessing).format] if preprocessing else []))
        variables = environment.read_variables(model)
        return cls(formats, tuple(sorted(variables.items() - late_variables(variables).items())))


class Runtimes(Protocol):
    """Starts processes of models."""

    def process(self, model: Model, log: Path) -> "ModelProcess":
        """Return the process of a model, which `ModelProcess.renew` starts."""
        ...


class RuntimeProcesses(contextlib.ExitStack):
    """The processes that models are forked from, one for each runtime configuration."""

    def __init__(self, cores: Sequence[int], folder: Path, instances: int = 1) -> None:
        """Store the cores that the processes are pinned to, the folder of their logs, and the instances of a model."""
        super().__init__()
        self._cores, self._folder, self._instances = cores, folder, instances
        self.temporary = folder / "tmp"  # of the models
        self.temporary.mkdir(exist_ok=True)
        self._started: dict[RuntimeConfig, WorkerProcess] = {}

    def of(self, model: Model) -> WorkerProcess:
        """Return the process of a model's runtime configuration; start it if there is none."""
        config = RuntimeConfig.of(model)
        if config not in self._started:
            process = WorkerProcess(
                "tfopt.components.benchmark.worker",
                ",".join(map(str, self._cores)),
                ",".join(config.formats),
                log=self._folder / f"runtime{len(self._started)}.log",
                environment=_environment(len(self._cores) // self._instances) | dict(config.variables),
            )
            self._started[config] = self.enter_context(process)
        return self._started[config]

    def process(self, model: Model, log: Path) -> "ModelProcess":
        """Return the process of a model, which `ModelProcess.renew` starts."""
        return ModelProcess(model, self, log)


class DeviceError(AttemptError):
    """The connection with the machine that models are measured on has ended."""


class Machine(contextlib.AbstractContextManager["Machine"]):
    """This machine as the one that models are measured on. Another one is a `device.Device`."""

    def __init__(self) -> None:
        """Begin to measure its load."""
        self._load = MachineLoad()

    def choose_cores(self, count: int) -> list[int]:
        """Choose cores to pin to; fewer if there are not so many."""
        return choose_cores(count)

    def other_cores(self, own: Sequence[int]) -> OtherCores:
        """Return the cores that models do not run on."""
        return OtherCores(own)

    def runtimes(
        self, cores: Sequence[int], folder: Path, instances: int = 1
    ) -> contextlib.AbstractContextManager[Runtimes]:
        """Return the processes that models are forked from."""
        return RuntimeProcesses(cores, folder, instances)

    def describe(self, cores: Sequence[int]) -> JsonObject:
        """Return its fingerprint and its load so far."""
        return fingerprint(cores) | {"load": self._load.facts()}

    def __exit__(self, *_: object) -> None:
        """Leave this machine as it is."""


class ModelProcess(contextlib.AbstractContextManager["ModelProcess"]):
    """The process of one model, which runs `worker.Worker` and can be replaced by a new one."""

    def __init__(self, model: Model, runtimes: RuntimeProcesses, log: Path) -> None:
        """Store the model; `renew` starts the process."""
        self._model, self._runtimes, self._log = model, runtimes, log
        self._fork: ForkedWorker | None = None

    @property
    def is_running(self) -> bool:
        """True from `renew` to `end`."""
        return self._fork is not None

    def renew(self) -> None:
        """Start a new process, without a model.

        Raises:
            CallFailed: If the runtime cannot be imported.
        """
        self.end()
        own = str(self._runtimes.temporary)
        limits = None if is_trusted() else Limits((own,))
        self._fork = ForkedWorker(self._runtimes.of(self._model), self._log, limits)
        self._fork.call("set_variables", late_variables(environment.read_variables(self._model)) | {"TMPDIR": own})

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method as `ForkedWorker.call` does; a three-part error becomes a `CallFailed` with one line."""
        assert self._fork, "renew comes first"
        try:
            return self._fork.call(name, *arguments)
        except ComponentError as error:
            raise CallFailed(f"{error.received}; expected {error.expected}") from error

    def end(self) -> None:
        """End the process, if there is one."""
        fork, self._fork = self._fork, None
        if fork:
            fork.__exit__()

    def __exit__(self, *_: object) -> None:
        """End the process."""
        with contextlib.suppress(WorkerDied):  # the process that it was forked from has ended, and with it this one
            self.end()

    def read_log(self) -> str:
        """Return the output of importing the runtime and of running the model."""
        logs = [self._runtimes.of(self._model).log, self._log]
        return "".join(log.read_text(errors="replace") for log in logs)


def _environment(threads: int) -> dict[str, str]:
    return {
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "0",  # only its log names the instruction sets that its build leaves unused
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # all models are loaded at the same time and share the GPU memory
    }
