"""Inside one model's process: load it once, then run it whenever the parent gives it a turn."""

import contextlib
import functools
import gc
import importlib
import itertools
import os
import pickle
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfopt.processes.fork_server import answer_by_forks
from tfopt.processes.rpc import peak_memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What each format needs imported, so that importing is not counted as loading.
PACKAGES = {
    "saved_model": "tensorflow",
    "keras": "tensorflow",
    "tflite": "ai_edge_litert.interpreter",
    "onnx": "onnxruntime",
    "openvino": "tfopt.runtimes.openvino_import",
    "tensorrt": "tensorrt",
}


class Worker:
    """One model, and the inputs it is called with. The parent calls the public methods by name."""

    def __init__(self, imported: dict[str, Any]) -> None:
        """Begin, in a fork of a process that has imported the runtime and found out so much about that."""
        self._imported, self._inherited = imported, peak_memory()

    def load(self, uri: str, threads: int) -> dict[str, Any]:
        """Load the model; return what that took and its inputs."""
        from tfopt import runtimes
        from tfopt.artifacts import Model

        start = time.perf_counter()
        self._runtime = runtimes.load(Model(uri), threads=threads)
        return self._imported | {"load_seconds": time.perf_counter() - start, "inputs": self._runtime.inputs}

    def feed(self, file: str) -> None:
        """Read the records which every call is made of, an array for each input."""
        with Path(file).open("rb") as stream:  # not over the pipe, whose buffers would count as the model's memory
            self._records: dict[str, Any] = pickle.load(stream)

    def prepare(self, batch_size: int, warm: float = 0.0) -> dict[str, Any]:
        """Cut the records into batches of a size and make a first call; return its time and the outputs not finite.

        Some seconds more of calls follow where asked for.
        """
        import numpy as np

        count = max((len(array) for array in self._records.values() if array.ndim), default=1)
        whole = max(1, count // batch_size)
        self._batches = [
            {
                name: array[index * batch_size :][:batch_size] if array.ndim else array
                for name, array in self._records.items()
            }
            for index in range(whole)
        ]
        start = time.perf_counter()
        outputs = self._runtime.run(self._batches[0])
        seconds = time.perf_counter() - start
        if warm:
            self.burst(warm, 0.0)
        strange = [name for name, array in outputs.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
        return {"seconds": seconds, "not_finite": strange}

    def burst(self, seconds: float, settle: float) -> "tuple[NDArray[np.int64], float]":
        """Call the model for some time; return the nanoseconds of each call, and the part of its cores others had.

        The first ``settle`` seconds are not in it: another model has had the caches until now, and the threads of its
        pool may still be spinning. A call longer than all of this stands for itself.
        """
        import numpy as np

        clock, run, batches = time.perf_counter_ns, self._runtime.run, itertools.cycle(self._batches)
        taken: list[int] = []
        others, opened = _others(), clock()
        settled, closed = opened + int(settle * 1e9), opened + int((settle + seconds) * 1e9)
        gc.disable()
        while (now := clock()) < closed or not taken:
            batch = next(batches)
            start = clock()
            run(batch)
            end = clock()
            if now >= settled or end >= closed:
                taken.append(end - start)
        gc.enable()
        return np.array(taken, np.int64), (_others() - others) / (clock() - opened)

    def facts(self) -> dict[str, Any]:
        """Return the peak memory and the priority, and how TensorFlow was set up where it was imported.

        The peak is what importing took and what this process took besides: code that ran in both counts twice, which
        was 5 % with TensorFlow.
        """
        peak = self._imported["runtime_memory_bytes"] + peak_memory() - self._inherited
        found: dict[str, Any] = {"peak_memory_bytes": peak, "nice": os.getpriority(os.PRIO_PROCESS, 0)}
        if "tensorflow" in sys.modules:
            found["tensorflow"] = _tensorflow()
        return found


def main(descriptor: int, cores: list[int], format: str) -> None:
    """Import the runtime of a format, and be forked for its models until the parent closes the pipe."""
    os.sched_setaffinity(0, cores)  # both before any library starts its threads, which inherit them
    _go_first()
    answer_by_forks(descriptor, functools.partial(Worker, _import_runtime(format)))


def _import_runtime(format: str) -> dict[str, Any]:
    """Import whatever a load would, and return what that took."""
    start = time.perf_counter()
    if format in PACKAGES:
        with contextlib.suppress(ImportError):  # the runtime says what is missing, and how to get it
            importlib.import_module(PACKAGES[format])
    seconds = time.perf_counter() - start
    with contextlib.suppress(ImportError):
        importlib.import_module(f"tfopt.runtimes.{format}")
    return {"import_seconds": seconds, "runtime_memory_bytes": peak_memory()}


def _go_first() -> None:
    """Have the cores before everything else on the machine, where this is allowed.

    Calls longer than the scheduler's time slice are interrupted by whoever else is there, and short ones are not: on a
    busy machine the ratio between them can be wrong by a factor.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        Path("/proc/self/autogroup").write_text("-20")  # of this process's session, which has none else in it


def _others() -> float:
    """The nanoseconds for which anything but this process had one of its cores, divided by their number."""
    cores = os.sched_getaffinity(0)
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *spent = line.split()
        if name in {f"cpu{core}" for core in cores}:
            user, nice, system, _idle, _waiting, *rest = map(
                int, spent[:8]
            )  # the rest: interrupts, and the host's part
            ticks += user + nice + system + sum(rest)
    return (ticks * 1e9 / os.sysconf("SC_CLK_TCK") - time.process_time_ns()) / len(cores)


def _tensorflow() -> dict[str, Any]:
    import tensorflow as tf

    from tfopt.runtimes.environment import ONEDNN

    return {
        ONEDNN: os.environ.get(ONEDNN),
        "compiler": tf.sysconfig.get_build_info().get("cpu_compiler"),
        "gpus": [device.name for device in tf.config.list_physical_devices("GPU")],
    }


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(core) for core in sys.argv[2].split(",")], sys.argv[3])
