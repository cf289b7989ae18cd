"""Inside one process: the user's training, ready, and run for a while whenever the parent gives it a turn."""

import contextlib
import functools
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfopt.asked import answer, peak_memory
from tfopt.components.profile_training import patching
from tfopt.components.profile_training.setup import Setup

WARM_S = 15.0  # the longest that a first epoch, which fills caches, is waited for
TOGETHER = 16  # steps in one call, when Python is to be out of the way
SETTLING = 0.25  # of a turn comes on top of it, not counted
LARGER = 4  # times the batch, to tell a step's fixed cost from that of an example
STAGE_S = 1.5  # a pass over the files ends there; one that ends within the first block would count what was read ahead
EPOCH_S = 2.0  # an epoch that takes longer is not waited for in each turn


class Worker:
    """One training. The parent calls the public methods by name."""

    def build(self, setup: Setup) -> dict[str, Any]:
        """Make it ready, learn a first step and, where that is quick, a first epoch; say what it is."""
        import tensorflow as tf

        from tfopt.artifacts import Examples
        from tfopt.training.dataset import Reading
        from tfopt.training.precision import odd_sizes, supported
        from tfopt.training.prepared import prepare
        from tfopt.training.reproducible import reproducible
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
        self._real = _Steps(self._model, iter(self._source.shuffled(setup.batch_size, setup.seed).repeat()), several)
        self._alone: dict[str, _Steps] = {}
        first = self._real.run(1)
        self._epoch = math.ceil(self._source.count / setup.batch_size)
        self._fill()
        return {
            "count": self._source.count,
            "epoch": self._epoch,
            "first_step_s": first,
            "eager": bool(self._model.run_eagerly),
            "jit_compile": bool(getattr(self._model, "jit_compile", None) or getattr(self._model, "_jit_compile", 0)),
            "cached": self._source.cached(),
            "supported": supported(),
            "gpus": [device.name for device in tf.config.list_physical_devices("GPU")],
            "odd_sizes": odd_sizes(self._model)[:8],
        }

    def burst(self, what: str, seconds: float) -> float:
        """Run for about so long and return the seconds of one step.

        Args:
            what: ``real`` steps; the model alone on a batch that is there (``model``), on a larger one (``larger``), or
                with Python out of the way (``graph``); batches alone, nothing learnt (``input``).
            seconds: Of what is counted; what settles comes on top.
        """
        if what == "input":
            return self._read(seconds)
        steps = self._real if what == "real" else self._prepared(what)
        took = steps.estimate()
        epoch = math.ceil(self._epoch / steps.size) if what == "real" else 1
        settling, count = _calls(seconds, took, epoch)
        steps.run(settling)
        return steps.run(count)

    def stages(self) -> dict[str, float]:
        """Seconds to read, to parse too, and to prepare too, for one batch, each at full speed and without a cache."""
        from tfopt.training.dataset import BLOCK

        found = {}
        for name, blocks in self._source.stages().items():
            best = math.inf
            for _ in range(3):
                start, records = time.perf_counter(), 0
                for _ in blocks:
                    records = min(records + BLOCK, self._source.count)
                    if time.perf_counter() - start > STAGE_S:
                        break
                best = min(best, (time.perf_counter() - start) / records)
            found[name] = best * self._setup.batch_size
        return found

    def loops(self) -> list[dict[str, Any]]:
        """Loops and Python in the user's step and preprocessing, by line."""
        from tfopt.components.profile_training.scanning import scan

        return scan(self._model, self._source, self._batch(1), Path(self._setup.module))

    def trace(self, folder: str, steps: int) -> dict[str, float]:
        """Keep TensorFlow's own trace of some real steps; return the milliseconds per step by kind of operation."""
        import tensorflow as tf

        from tfopt.components.profile_training.tracing import milliseconds

        tf.profiler.experimental.start(folder)
        try:
            self._real.run(steps)
        finally:
            tf.profiler.experimental.stop()
        return milliseconds(Path(folder), steps)

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

    def _fill(self) -> None:
        """The first epoch, which caches are filled in, unless it takes too long."""
        until, steps = time.monotonic() + WARM_S, self._real
        done = steps.size
        while done < self._epoch + steps.size and time.monotonic() < until:
            steps.run(1)
            done += steps.size
        self._real.run(2)

    def _prepared(self, what: str) -> "_Steps":
        import tensorflow as tf

        if what not in self._alone:
            batch = tf.data.Dataset.from_tensors(self._batch(LARGER if what == "larger" else 1)).repeat()
            several = TOGETHER if what == "graph" else 1
            patching.set_steps_per_execution(self._model, several)
            self._alone[what] = _Steps(self._model, iter(batch), several)
            self._alone[what].run(1)
        return self._alone[what]

    @functools.lru_cache(maxsize=4)  # noqa: B019  (one worker lives as long as its process)
    def _batch(self, times: int) -> Any:
        import tensorflow as tf

        size = self._setup.batch_size * times
        batch = self._source.one(size)

        def repeated(tensor: Any) -> Any:  # a split may have fewer examples than that
            have = tf.shape(tensor)[0]
            return tf.repeat(tensor, -(-size // have), axis=0)[:size] if have < size else tensor

        return tf.nest.map_structure(repeated, batch)

    def _read(self, seconds: float) -> float:
        if not hasattr(self, "_batches"):
            apart = self._source.reading.folder / "alone"
            apart.mkdir()
            source = patching.read_as(self._source, replace(self._source.reading, folder=apart))
            self._batches = iter(source.shuffled(self._setup.batch_size, self._setup.seed).repeat())
            for _ in range(self._epoch + 1):  # its own cache
                next(self._batches)
        start, first = time.perf_counter(), min(self._epoch, 8)
        for _ in range(first):
            next(self._batches)
        settling, count = _calls(seconds, (time.perf_counter() - start) / first, self._epoch)
        for _ in range(settling):
            next(self._batches)
        start = time.perf_counter()
        for _ in range(count):
            next(self._batches)
        return (time.perf_counter() - start) / count


def _calls(seconds: float, took: float, epoch: int) -> tuple[int, int]:
    """How many calls settle, and how many are counted: whole epochs where those are short, for each begins with a wait.

    What was prepared while others had their turn must be used up before it counts.
    """
    took = max(took, 1e-6)
    count = max(2, math.ceil(seconds / took))
    if epoch * took <= max(EPOCH_S, 2 * seconds):
        return epoch, math.ceil(count / epoch) * epoch
    return max(1, int(SETTLING * count)), count


class _Steps:
    """Steps of a model on batches, so many in one call."""

    def __init__(self, model: Any, batches: Any, size: int) -> None:
        model.make_train_function(force=True)
        self._call: Callable[[Any], Any] = model.train_function
        self._batches, self.size = batches, size

    def run(self, calls: int) -> float:
        """Learn; return the seconds of one step. The loss is looked at each time, as `train` does."""
        start = time.perf_counter()
        for _ in range(calls):
            float(self._call(self._batches)["loss"])
        return (time.perf_counter() - start) / (calls * self.size)

    def estimate(self) -> float:
        """About how long a call takes."""
        return self.run(3) * self.size


if __name__ == "__main__":
    answer(int(sys.argv[1]), Worker())
