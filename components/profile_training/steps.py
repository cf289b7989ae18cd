"""Run epochs as Keras runs them, in timed turns, and time each stage of the input alone."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfopt.training.datasets.dataset import BLOCKS, Source

LONG_EPOCH_S = 2.0  # a longer epoch is not run whole in each turn, if examples are cached
MAX_EPOCH_S = 30.0  # a longer epoch is never run whole
ENDLESS = 1 << 60  # calls
WARM_UP = 0.25  # of a turn, in addition to it and not counted
MAX_IDLE_WAIT_S = 1.0
IDLE_LOAD = 0.2  # of one core: a process below this load is idle
POLL_S = 0.01
MIN_STAGE_S = 0.2  # of one measurement of a stage
MAX_STAGE_S = 1.5
STAGE_REPEATS = 3  # the fastest counts, since disturbances only slow a stage down


class Epochs:
    """Repeated epochs over a dataset: a number of calls per epoch, each of a number of steps.

    Each epoch has its own iterator, as in `fit`: no batch of the next epoch is prepared before, and nothing runs
    while other variations have their turn. An iterator that is filling a cache is not replaced, since a partly filled
    cache would be lost.
    """

    def __init__(self, dataset: Any, call: Callable[[Any], Any], calls: int = ENDLESS, size: int = 1) -> None:
        """Set the batches and the call that runs ``size`` steps with an iterator over them, ``calls`` per epoch."""
        self._dataset, self._call, self._calls, self.size = dataset, call, calls, size
        self._remaining, self._iterator, self._epoch_s, self._is_filled = 0, None, math.inf, False
        self._beginnings: list[float] = []

    def run(self, calls: int) -> float:
        """Make a number of calls; return the seconds of one step."""
        start = time.perf_counter()
        for _ in range(calls):
            if not self._remaining:
                self._iterator, self._remaining = iter(self._dataset), self._calls
            self._call(self._iterator)
            self._remaining -= 1
        return (time.perf_counter() - start) / (calls * self.size)

    def stop(self) -> None:
        """End the current epoch, unless it is filling a cache."""
        if self._is_filled:
            self._remaining, self._iterator = 0, None

    def fill(self, seconds: float, *, cached: bool) -> float:
        """Run the first epoch, which fills caches, for at most this time; return the seconds of a later epoch."""
        start, done = time.perf_counter(), 0
        while done == 0 or (self._remaining and time.perf_counter() - start < seconds):
            self.run(1)
            done += 1
        self._epoch_s = (time.perf_counter() - start) / done * self._calls
        self._is_filled = not self._remaining or not cached
        return self.epoch(seconds) if self._is_filled else self._epoch_s

    def epoch(self, seconds: float) -> float:
        """Return the seconds of an epoch, run for at most this time and extrapolated after that."""
        self.stop()
        begin = time.perf_counter()
        first, done = self.run(1) * self.size, 0
        start = time.perf_counter()
        while self._remaining and (time.perf_counter() - begin < seconds or done < 2):
            self.run(1)
            done += 1
        later = (time.perf_counter() - start) / max(1, done)
        self.stop()
        self._epoch_s = first + later * (self._calls - 1)
        self._beginnings.append(first - later)
        return self._epoch_s

    def beginning(self) -> float:
        """Return how much longer the first call of an epoch takes than the others, in seconds (median)."""
        return statistics.median(self._beginnings or [0.0])

    def turn(self, seconds: float, *, whole: bool) -> float:
        """Run a turn of about this time, or of ``whole`` epochs, and return the seconds of a step.

        Short epochs are always run whole.
        """
        if not self._is_filled:
            return self.run(max(2, math.ceil(seconds / self._epoch_s * self._calls)))
        if self._epoch_s > max(LONG_EPOCH_S, 2 * seconds):
            return self.epoch(MAX_EPOCH_S if whole else seconds) / (self._calls * self.size)
        count = math.ceil(seconds / self._epoch_s)
        return sum(self.epoch(math.inf) for _ in range(count)) / (count * self._calls * self.size)


def training_steps(model: Any, dataset: Any, calls: int, size: int) -> Epochs:
    """Return epochs of training steps. Keras traces the step again; the loss is read after each call, as in `train`."""
    model.make_train_function(force=True)
    train = model.train_function
    return Epochs(dataset, lambda batches: float(train(batches)["loss"]), calls, size)


def time_endless(steps: Epochs, seconds: float) -> float:
    """Return the seconds of a step on a dataset without end."""
    wait_until_idle()
    count = max(2, math.ceil(seconds / max(steps.run(3) * steps.size, 1e-6)))
    steps.run(max(1, int(WARM_UP * count)))
    return steps.run(count)


def wait_until_idle() -> None:
    """Wait until no thread of this process works in the background, at most `MAX_IDLE_WAIT_S`."""
    deadline = time.monotonic() + MAX_IDLE_WAIT_S
    while time.monotonic() < deadline:
        used = time.process_time()
        time.sleep(POLL_S)
        if time.process_time() - used < IDLE_LOAD * POLL_S:
            return


def time_stages(source: Source, batch_size: int) -> dict[str, float]:
    """Return the seconds of a batch in each stage alone: ``read``, ``parse``, ``preprocess``, ``batch``.

    Stages run in parallel, so a batch takes neither the sum of these times nor only the longest.
    """
    seconds = {
        name: _seconds_per_record(iter(blocks), source.count if name == "read" else 1)
        for name, blocks in source.stage_datasets(batch_size).items()
    }
    parse, prepare = seconds["parse"], seconds.pop("prepare")
    seconds["preprocess"] = max(0.0, prepare - parse)
    return {name: seconds[name] * batch_size for name in ("read", "parse", "preprocess", "batch")}


def _seconds_per_record(blocks: Any, multiple: int) -> float:
    """Measure a stage. A measurement ends after a multiple of this many records, or after `MAX_STAGE_S`.

    A stage that reads is measured in whole passes over the files, because each pass begins with a wait.
    """
    for _ in range(BLOCKS + 1):  # fill the caches that the stage reads from
        _count_records(blocks)
    best = math.inf
    for _ in range(STAGE_REPEATS):
        start, seconds, records = time.perf_counter(), 0.0, 0
        while (seconds < MIN_STAGE_S or records % multiple) and seconds < MAX_STAGE_S:
            records += _count_records(blocks)
            seconds = time.perf_counter() - start
        best = min(best, seconds / records)
    return best


def _count_records(blocks: Any) -> int:
    return int(tf.nest.flatten(next(blocks))[0].shape[0])
