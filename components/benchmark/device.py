"""Another machine, on which models are measured: client of `device_server`."""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.artifacts.formats import FORMATS
from tfopt.components.benchmark.machine_conditions import OtherCores
from tfopt.components.benchmark.model_process import DeviceError, Machine, ModelProcess, RuntimeConfig, Runtimes
from tfopt.keras_models.model_code import is_trusted
from tfopt.processes.ssh_worker import SshAddress, SshWorker
from tfopt.processes.worker_process import CallFailed, WorkerDied
from tfopt.value_types import JsonObject

SERVER = "tfopt.components.benchmark.device_server"
PART = 4 << 20  # bytes of a file that are sent at once
TAKES_PATH = ("load", "feed", "start_instances")  # methods of `worker.Worker` whose first argument is one

log = logging.getLogger(__name__)


@contextlib.contextmanager
def connect(device: str, models: Sequence[Model], folder: str) -> Iterator[Machine]:
    """Connect with a device while the context is open; the machine is this one if there is none.

    Raises:
        MachineError: If it cannot be reached, or lacks the runtime of the baseline, the first model.
    """
    if not device:
        yield Machine()
        return
    needs = [["numpy", *_runtimes(model)] for model in models]
    packages = list(dict.fromkeys(name for names in needs for name in names))
    log.info("connecting with %s", device)
    with SshWorker(SshAddress.parse(device), SERVER, Path(folder, "device.log"), packages, needs[0]) as worker:
        if worker.missing:
            log.warning("models that need %s cannot be measured on %s", ", ".join(worker.missing), device)
        yield Device(device, worker)


def _runtimes(model: Model) -> list[str]:
    formats = () if model.failure else RuntimeConfig.of(model).formats
    return [FORMATS[format].import_name for format in formats]


class Device(Machine):
    """A machine that is reached by ssh."""

    def __init__(self, address: str, worker: SshWorker) -> None:
        """Store the connection."""
        self._address, self._worker = address, worker
        self._places: dict[str, str] = {}  # paths there, by those here
        if is_trusted():
            self.call("trust")

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of `device_server.DeviceServer`; raise DeviceError if the connection has ended."""
        try:
            return self._worker.call(name, *arguments)
        except WorkerDied as death:
            received = f"{self._address}: the connection ended during the measurement: {death}"
            fix = "run the step again; the models are not copied again"
            raise DeviceError(received, "a connection until the measurement ends", fix) from death

    def missing_packages(self, model: Model) -> list[str]:
        """Return what a model needs and the device lacks, by the names of the imports."""
        return [name for name in _runtimes(model) if name in self._worker.missing]

    def choose_cores(self, count: int) -> list[int]:
        """Choose cores to pin to; fewer if there are not so many."""
        cores: list[int] = self.call("choose_cores", count)
        return cores

    def other_cores(self, own: Sequence[int]) -> OtherCores:
        """Return the cores that models do not run on."""
        return _DeviceCores(self, own)

    def runtimes(
        self, cores: Sequence[int], folder: Path, instances: int = 1
    ) -> contextlib.AbstractContextManager[Runtimes]:
        """Return the processes that models are forked from, which end with the connection."""
        return contextlib.nullcontext(_DeviceRuntimes(self, cores, instances))

    def describe(self, cores: Sequence[int]) -> JsonObject:
        """Return its fingerprint and its load so far."""
        facts: JsonObject = self.call("describe", list(cores))
        return {"device": self._address} | facts

    def place_model(self, model: Model) -> str:
        """Copy the deployed files of a model to the device, unless it has them, and return the path there."""
        if model.uri not in self._places:
            folder = model.path if model.path.is_dir() else model.path.parent
            copied = self._place({str(file.relative_to(folder)): file for file in model.payload()})
            self._places[model.uri] = copied if model.path.is_dir() else f"{copied}/{model.path.name}"
        return self._places[model.uri]

    def place_file(self, path: str) -> str:
        """Return the path of a placed model, or copy a file to the device, unless it has it."""
        if path not in self._places:
            file = Path(path)
            self._places[path] = f"{self._place({file.name: file})}/{file.name}"
        return self._places[path]

    def _place(self, files: Mapping[str, Path]) -> str:
        total = hashlib.sha256()
        for name, file in sorted(files.items()):
            with file.open("rb") as stream:
                total.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
        place: str | None = self.call("find", total.hexdigest())
        if place is None:
            for name, file in files.items():
                log.info("copying %s to %s", file, self._address)
                with file.open("rb") as stream:
                    while part := stream.read(PART):
                        self.call("write", name, part)
            place = str(self.call("finish", total.hexdigest()))
        return place


class _DeviceCores(OtherCores):
    def __init__(self, device: Device, own: Sequence[int]) -> None:
        self._device, self._own = device, list(own)

    def seconds(self) -> tuple[float, float]:
        """Return the seconds that these cores were used, and all their seconds."""
        used, total = self._device.call("other_seconds", self._own)
        return used, total


class _DeviceRuntimes:
    def __init__(self, device: Device, cores: Sequence[int], instances: int) -> None:
        self._device, self._cores, self._instances = device, list(cores), instances

    def process(self, model: Model, log: Path) -> ModelProcess:
        return DeviceProcess(self._device, model, self._cores, self._instances)


class DeviceProcess(ModelProcess):
    """The process of one model on a device."""

    def __init__(self, device: Device, model: Model, cores: list[int], instances: int) -> None:
        """Store the model; `renew` copies it and starts the process."""
        self._device, self._model, self._setup = device, model, (cores, instances)
        self._number: int | None = None
        self._is_running = False

    @property
    def is_running(self) -> bool:
        """True from `renew` to `end`."""
        return self._is_running

    def renew(self) -> None:
        """Start a new process, without a model; raise CallFailed if this is not possible."""
        if self._model.failure:
            raise CallFailed(f"not made: {self._model.failure}")
        if missing := self._device.missing_packages(self._model):
            raise CallFailed(f"not installed on the device: {', '.join(missing)}")
        if self._number is None:
            self._number = int(self._device.call("add", self._device.place_model(self._model), *self._setup))
        self._do("renew")
        self._is_running = True

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of `worker.Worker`; files in its arguments are copied to the device."""
        if name in TAKES_PATH:
            arguments = (self._device.place_file(arguments[0]), *arguments[1:])
        return self._do("call", name, *arguments)

    def end(self) -> None:
        """End the process, if there is one."""
        if self._is_running:
            self._is_running = False
            self._do("end")

    def __exit__(self, *_: object) -> None:
        """Leave the process to the end of the connection."""

    def read_log(self) -> str:
        """Return the output of importing the runtime and of running the model."""
        return str(self._do("read_log"))

    def _do(self, method: str, *arguments: Any) -> Any:
        state, result = self._device.call("do", self._number, method, *arguments)
        if state == "returned":
            return result
        raise (WorkerDied if state == "died" else CallFailed)(result)
