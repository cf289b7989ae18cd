"""Measuring process of one model: loads the model once, then runs it on the client's calls."""

import contextlib
import functools
import gc
import importlib
import itertools
import os
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.processes.fork_server import serve_forks
from tfopt.processes.memory import peak_memory, trim_heap
from tfopt.processes.startup import speed_up_imports
from tfopt.value_types import JsonObject

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tfopt.data.batches import Batch
    from tfopt.runtimes.runtime import Call


STAT = Path("/proc/stat")


class ModelFacts(TypedDict, total=False):
    """Facts of a process and the model in it, by their names in ``benchmark.json``, complete at the end."""

    import_seconds: float
    runtime_memory_bytes: int
    load_seconds: float
    inputs: dict[str, TensorSpec]  # only in the result of ``load``
    first_call_seconds: float
    peak_memory_bytes: int
    nice: int
    tensorflow: JsonObject


class FirstCall(TypedDict):
    """Seconds of a first call, and names of its outputs that have NaN or infinities."""

    seconds: float
    not_finite: list[str]


class Worker:
    """One model and its inputs. The client calls the public methods by name."""

    def __init__(self, imported: ModelFacts) -> None:
        """Store the facts of the process that imported the runtime, which this one is a fork of."""
        self._imported, self._inherited = imported, peak_memory()

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set environment variables that the import of the runtime did not read."""
        os.environ.update(variables)
        tempfile.tempdir = None  # TMPDIR may have been read

    def load(self, uri: str, signature: str, threads: int) -> ModelFacts:
        """Load the model and return the seconds, the memory and the model's inputs."""
        from tfopt import runtimes  # imports NumPy, which is part of the measured import
        from tfopt.artifacts import Model

        start = time.perf_counter()
        self._runtime = runtimes.load(Model(uri), signature=signature, threads=threads)
        return self._imported | {"load_seconds": time.perf_counter() - start, "inputs": self._runtime.inputs}

    def feed(self, file: str) -> None:
        """Read the records of all calls, an array for each input."""
        with Path(file).open("rb") as stream:  # not over the pipe, whose buffers would count as the model's memory
            self._records: Batch = pickle.load(stream)

    def prepare(self, batch_size: int, warm: float = 0.0) -> FirstCall:
        """Split the records into batches, make a first call and then others for ``warm`` seconds."""
        import numpy as np

        records = max((len(array) for array in self._records.values() if array.ndim), default=1)
        self._batches = [
            {
                name: array[index * batch_size :][:batch_size] if array.ndim else array
                for name, array in self._records.items()
            }
            for index in range(max(1, records // batch_size))
        ]
        start = time.perf_counter()
        outputs = self._runtime.run(self._batches[0])
        seconds = time.perf_counter() - start
        trim_heap()  # all models are in memory at the same time, each with what the optimization of its graph left
        if warm:
            self.burst(warm, 0.0)
        floats = {name: array for name, array in outputs.items() if array.dtype.kind == "f"}
        return {
            "seconds": seconds,
            "not_finite": [name for name, array in floats.items() if not np.isfinite(array).all()],
        }

    def burst(self, seconds: float, unrecorded: float) -> "tuple[NDArray[np.int64], float]":
        """Call the model for some time and return the nanoseconds of each call, and its cores' foreign load.

        The first ``unrecorded`` seconds come on top: another model has used the caches until now, and the threads of
        its pool may still be spinning. A call that is longer than the burst is recorded in any case.
        """
        import numpy as np

        clock, run, batches = time.perf_counter_ns, self._runtime.run_without_limit, itertools.cycle(self._batches)
        durations: list[int] = []
        load, begin = CoreLoad(), clock()
        recording, deadline = begin + int(unrecorded * 1e9), begin + int((unrecorded + seconds) * 1e9)
        gc.disable()
        while (now := clock()) < deadline or not durations:
            batch = next(batches)
            start = clock()
            run(batch)
            end = clock()
            if now >= recording or end >= deadline:
                durations.append(end - start)
        gc.enable()
        return np.array(durations, np.int64), load.foreign_share()

    def start_instances(self, uri: str, signature: str, threads: int, count: int, batch_sizes: list[int]) -> None:
        """Load further instances of the model, and call each once at every batch size."""
        from tfopt import runtimes  # imports NumPy
        from tfopt.artifacts import Model

        self._instances = [self._runtime]
        while len(self._instances) < count:
            self._instances.append(runtimes.load(Model(uri), signature=signature, threads=threads))
        self._sized: dict[int, list[Batch]] = {}
        for batch_size in sorted(batch_sizes):
            self.prepare(batch_size)
            self._sized[batch_size] = self._batches
            for instance in self._instances[1:]:
                instance.run(self._batches[0])

    def open_loop(
        self, arrivals: "NDArray[np.float64]", largest: int, limit: float, most_late: float
    ) -> "tuple[NDArray[np.float64], NDArray[np.float64], float]":
        """Send requests at these times; return their latencies, the generator's delays, and the cores' foreign load.

        Waiting requests share a call of up to ``largest``; it has the smallest measured batch size that holds them. The
        load ends early as in `send_batches`.
        """
        from tfopt.serving.load_generator import send_batches  # imports NumPy

        sized = {size: batches for size, batches in self._sized.items() if size <= largest}

        def answer(run: "Call", numbers: list[int]) -> None:
            batches = sized[min(size for size in sized if size >= len(numbers))]
            run(batches[numbers[0] % len(batches)])

        clients = [functools.partial(answer, instance.run_without_limit) for instance in self._instances]
        load = CoreLoad()
        gc.disable()
        result = send_batches(clients, arrivals, max(sized), limit, most_late)
        gc.enable()
        return result.latencies, result.delays, load.foreign_share()

    def facts(self) -> ModelFacts:
        """Return peak memory, priority, and the configuration of TensorFlow if it was imported.

        The peak is the sum of the peak of the import and of what this process used on top. Code that ran in both counts
        twice, which was 5 % with TensorFlow.
        """
        peak = self._imported["runtime_memory_bytes"] + peak_memory() - self._inherited
        facts: ModelFacts = {"peak_memory_bytes": peak, "nice": os.getpriority(os.PRIO_PROCESS, 0)}
        if "tensorflow" in sys.modules:
            facts["tensorflow"] = _tensorflow()
        return facts


def main(descriptor: int, cores: list[int], formats: list[str]) -> None:
    """Import the runtimes of some formats and fork a process for each model, until the client closes the pipe."""
    os.sched_setaffinity(0, cores)  # both before any library starts its threads, which inherit them
    _raise_priority()
    serve_forks(descriptor, functools.partial(Worker, _import_runtimes(formats)))


def _import_runtimes(formats: list[str]) -> ModelFacts:
    start = time.perf_counter()
    for format in formats:
        if format in FORMATS:
            with contextlib.suppress(ImportError):  # the runtime's error names the missing package
                importlib.import_module(FORMATS[format].module)
    seconds = time.perf_counter() - start
    for format in formats:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"tfopt.runtimes.{format}")
    return {"import_seconds": seconds, "runtime_memory_bytes": peak_memory()}


def _raise_priority() -> None:
    """Give this process the highest priority on its cores, where this is permitted.

    Without it, other processes interrupt calls that are longer than the scheduler's time slice, and not shorter ones:
    on a busy machine the ratio between them can be wrong by a factor.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        Path("/proc/self/autogroup").write_text("-20")  # this process is alone in its session


class CoreLoad:
    """The load of this process's cores by others, from construction on."""

    def __init__(self) -> None:
        """Read the counters."""
        self._cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        self._start = self._counters()

    def foreign_share(self) -> float:
        """Return the share of the cores' time that others had them, or the host of a virtual machine took.

        Others had a core while a thread of this process was ready and waited, and this process did not use the core. A
        wait alone is not enough: TensorFlow's threads wait for each other, for nearly half of the time on one core.
        """
        clock, own, waited, ticks, stolen = (
            after - before for before, after in zip(self._start, self._counters(), strict=True)
        )
        unused = max(len(self._cores) * clock - own, 0.0)
        foreign = min(waited, unused) if self._start[2] else ticks - own
        return (foreign + stolen) / (len(self._cores) * clock)

    def _counters(self) -> tuple[float, ...]:
        """Return nanoseconds: of the clock, of this process, of its waits (0 if not counted), of the cores, stolen."""
        own = [times for name, times in core_times().items() if name in self._cores]
        worked, stolen = (1e9 * sum(times[index] for times in own) for index in (0, 2))
        return time.perf_counter_ns(), time.process_time_ns(), _waited_nanoseconds(), worked, stolen


def core_times() -> dict[str, tuple[float, float, float]]:
    """Return the seconds since boot that each core, and all (``cpu``), worked, was idle, was used by the host."""
    tick, times = 1 / os.sysconf("SC_CLK_TCK"), {}
    for line in STAT.read_text().splitlines():
        name, *spent = line.split()
        if name.startswith("cpu"):
            user, nice, system, idle, waiting, *interrupts, stolen = map(int, spent[:8])
            times[name] = (tick * (user + nice + system + sum(interrupts)), tick * (idle + waiting), tick * stolen)
    return times


def _waited_nanoseconds() -> int:
    """Return for how long the threads of this process were ready to run and waited; 0 if it is not counted.

    Unlike ticks of 10 ms it is exact, so that one disturbed turn of 20 ms is recognized.
    """
    waited = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            waited += int(file.read_text().split()[1])
    return waited


def _tensorflow() -> JsonObject:
    import tensorflow as tf

    from tfopt.runtimes.environment import ONEDNN  # imports NumPy

    return {
        ONEDNN: os.environ.get(ONEDNN),
        "compiler": tf.sysconfig.get_build_info().get("cpu_compiler"),
        "gpus": [device.name for device in tf.config.list_physical_devices("GPU")],
    }


if __name__ == "__main__":
    speed_up_imports()
    main(int(sys.argv[1]), [int(core) for core in sys.argv[2].split(",")], sys.argv[3].split(","))
