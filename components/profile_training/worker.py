"""Inside one process: the user's training, ready, and run for a while whenever the parent gives it a turn."""

import contextlib
import functools
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tfopt.components.profile_training import module_patches as patching
from tfopt.components.profile_training.bottleneck import LARGER, USUAL
from tfopt.components.profile_training.steps import ENDLESS, EPOCH_S, Epochs, paced, steps
from tfopt.components.profile_training.training_variant import Setup
from tfopt.processes.rpc import answer, peak_memory
from tfopt.training.dataset import Source

WARM_S = 15.0  # the longest that a first epoch, which fills caches, is waited for
TOGETHER = 16  # steps in one call, when Python is to be out of the way


class Worker:
    """One training. The parent calls the public methods by name."""

    def build(self, setup: Setup) -> dict[str, Any]:
        """Make it ready, learn a first step and, where that is quick, a first epoch; say what it is."""
        import tensorflow as tf

        from tfopt.artifacts import Examples
        from tfopt.training.dataset import Reading
        from tfopt.training.determinism import reproducible
        from tfopt.training.precision import odd_sizes, supported
        from tfopt.training.training_setup import prepare
        from tfopt.training.user_module import UserModule

        self._open, self._setup = contextlib.ExitStack(), setup
        self._open.enter_context(reproducible(setup.seed, deterministic=setup.deterministic))
        if setup.vectorized:
            patching.vectorize_maps()
        user = UserModule(Path(setup.module))
        made = prepare(
            user,
            Examples(setup.examples),
            label=setup.label,
            seed=setup.seed,
            precision=setup.precision,
            jit_compile=setup.jit_compile,
            counts={"train": setup.count} if setup.count else None,
        )
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="tfopt-cache-")))
        memory = setup.memory_mb << 20
        reading = Reading(setup.cache, setup.shuffle_buffer, memory, setup.threads, folder, setup.prefetch)
        self._source = patching.read_as(made.sources["train"], reading)
        self._model = made.parts.model
        if setup.graph:
            self._model.run_eagerly = False
        several = setup.steps_per_execution or patching.steps_per_execution(self._model)
        patching.set_steps_per_execution(self._model, several)
        self._epoch = math.ceil(self._source.count / setup.batch_size) * setup.repeated
        self._cached = self._source.cached()
        batches = self._batches(self._source)
        self._real = steps(self._model, *_in_calls(batches, self._epoch, several), several)
        self._alone: dict[str, Epochs] = {}
        self._grown: dict[str, int] = {}
        first = self._real.run(1)
        self._slow = self._real.fill(WARM_S, cached=self._cached) > EPOCH_S and not self._cached
        return {
            "count": self._source.count,
            "epoch": self._epoch,
            "first_step_s": first,
            "eager": bool(self._model.run_eagerly),
            "jit_compile": bool(getattr(self._model, "jit_compile", None) or getattr(self._model, "_jit_compile", 0)),
            "cached": self._cached,
            "slow": self._slow,
            "supported": supported(),
            "gpus": [device.name for device in tf.config.list_physical_devices("GPU")],
            "odd_sizes": odd_sizes(self._model)[:8],
        }

    def burst(self, what: str, seconds: float) -> float:
        """Run for about so long and return the seconds of one step.

        Args:
            what: ``real`` steps; the model alone on a batch that is there (``model``), on a larger one (``larger``), on
                one of a usual size (``usual``), or with Python out of the way (``graph``); batches alone, nothing
                learnt (``input``).
            seconds: Of what is counted; what settles comes on top.
        """
        if what == "input":
            return self._ready.turn(seconds, whole=not self._cached)
        if what == "real":
            return self._real.turn(seconds, whole=not self._cached)
        return paced(self._prepared(what), seconds)

    def beginning(self) -> float:
        """Seconds that the beginning of an epoch takes longer, where real steps were run in whole epochs; 0 else."""
        return self._real.beginning()

    def stages(self) -> dict[str, float]:
        """Seconds that a batch takes in each stage of the input alone, without a cache."""
        from tfopt.components.profile_training.input_stages import stages

        return stages(self._source, self._setup.batch_size)

    def loops(self) -> list[dict[str, Any]]:
        """Loops and Python in the user's step and preprocessing, by line."""
        from tfopt.components.profile_training.graph_scan import scan

        return scan(self._model, self._source, self._batch(self._setup.batch_size), Path(self._setup.module))

    def trace(
        self, folder: str, count: int, lines: Mapping[int, Sequence[str]]
    ) -> tuple[dict[str, float], float, dict[int, float]]:
        """Keep TensorFlow's trace of some real steps; return what `milliseconds` says of one."""
        import tensorflow as tf

        from tfopt.components.profile_training.trace_events import milliseconds

        tf.profiler.experimental.start(folder)
        try:
            self._real.run(count)
        finally:
            tf.profiler.experimental.stop()
            self._real.stop()
        return milliseconds(Path(folder), count * self._real.size, lines)

    def memory(self) -> dict[str, int]:
        """The most that was in use: of this process, and of the GPU where there is one."""
        import tensorflow as tf

        found = {"process": peak_memory()}
        for device in tf.config.list_logical_devices("GPU"):
            found[device.name] = int(tf.config.experimental.get_memory_info(device.name)["peak"])
        return found

    def close(self) -> None:
        """Put back what was set for the whole process, and remove the cache."""
        self._open.close()

    def _batches(self, source: Source) -> Any:
        """Those of an epoch."""
        return source.shuffled(self._setup.batch_size, self._setup.seed).repeat(self._setup.repeated)

    def _prepared(self, what: str) -> Epochs:
        import tensorflow as tf

        if what not in self._alone:
            own = self._setup.batch_size
            size = {"larger": LARGER * own, "usual": USUAL}.get(what, own)
            if what == "usual":
                self._must_fit(size)
            before = peak_memory()
            batch = tf.data.Dataset.from_tensors(self._batch(size)).repeat()
            several = TOGETHER if what == "graph" else 1
            patching.set_steps_per_execution(self._model, several)
            self._alone[what] = steps(self._model, batch, ENDLESS, several)
            self._alone[what].run(1)
            self._grown[what] = peak_memory() - before
        return self._alone[what]

    def _must_fit(self, size: int) -> None:
        """Refuse a batch that may not: some batches are small because their examples are large."""
        for what in ("model", "larger"):
            self._prepared(what)
        grown = self._grown
        each = max(0, grown["larger"] - grown["model"]) / ((LARGER - 1) * self._setup.batch_size)
        if each * size > psutil.virtual_memory().available / 2:
            raise MemoryError(f"a batch of {size} might not fit into memory")

    @functools.lru_cache(maxsize=4)  # noqa: B019  (one worker lives as long as its process)
    def _batch(self, size: int) -> Any:
        return self._source.one(size, full=True)

    @functools.cached_property
    def _ready(self) -> Epochs:
        """Batches of another reading, with its own cache, which is full."""
        apart = self._source.reading.folder / "alone"
        apart.mkdir()
        source = patching.read_as(self._source, replace(self._source.reading, folder=apart))
        batches = Epochs(self._batches(source), next, self._epoch)
        batches.fill(WARM_S, cached=self._cached)
        return batches


def _in_calls(batches: Any, epoch: int, several: int) -> tuple[Any, int]:
    """A data set, and calls of so many steps that make an epoch of it."""
    return (batches, epoch // several) if several <= epoch else (batches.repeat(), 1)


if __name__ == "__main__":
    answer(Connection(int(sys.argv[1])), Worker())
