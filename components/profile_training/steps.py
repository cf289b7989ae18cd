"""Epochs as Keras runs them, and turns that are made of them."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

EPOCH_S = 2.0  # an epoch that takes longer is not run whole in each turn, where examples are cached
WHOLE_S = 30.0  # nor is one that takes longer than that, where they are not
ENDLESS = 1 << 60  # calls
SETTLING = 0.25  # of a turn comes on top of it, not counted
QUIET_S = 1.0  # the longest that what was begun before is waited for
IDLE = 0.2  # of one core: less is nothing
LOOK_S = 0.01


class Epochs:
    """What is done with the batches of a data set: by so many calls in an epoch, each of so many steps.

    Each epoch has an iterator of its own, as with ``fit``: no batch of the next one is prepared before, and nothing at
    all while others have their turn. An iterator that fills a cache is kept, for what is half full would be lost.
    """

    def __init__(self, dataset: Any, do: Callable[[Any], Any], calls: int = ENDLESS, size: int = 1) -> None:
        """Nothing is read yet."""
        self._dataset, self._do, self._calls, self.size = dataset, do, calls, size
        self._left, self._batches, self._took, self._filled = 0, None, math.inf, False
        self._beginnings: list[float] = []

    def run(self, calls: int) -> float:
        """Do it; return the seconds of one step."""
        start = time.perf_counter()
        for _ in range(calls):
            if not self._left:
                self._batches, self._left = iter(self._dataset), self._calls
            self._do(self._batches)
            self._left -= 1
        return (time.perf_counter() - start) / (calls * self.size)

    def stop(self) -> None:
        """Begin a new epoch the next time."""
        if self._filled:
            self._left, self._batches = 0, None

    def fill(self, seconds: float, *, cached: bool) -> float:
        """The first epoch, which caches are filled in, as far as time allows; return how long one takes after that."""
        start, done = time.perf_counter(), 0
        while done == 0 or (self._left and time.perf_counter() - start < seconds):
            self.run(1)
            done += 1
        self._took = (time.perf_counter() - start) / done * self._calls
        self._filled = not self._left or not cached
        return self.epoch(seconds) if self._filled else self._took

    def epoch(self, seconds: float) -> float:
        """Seconds of an epoch: a whole one, or its beginning and, for so long, the pace of what follows."""
        self.stop()
        begun = time.perf_counter()
        first, done = self.run(1) * self.size, 0
        start = time.perf_counter()
        while self._left and (time.perf_counter() - begun < seconds or done < 2):
            self.run(1)
            done += 1
        rest = (time.perf_counter() - start) / max(1, done)
        self.stop()
        self._took = first + rest * (self._calls - 1)
        self._beginnings.append(first - rest)
        return self._took

    def beginning(self) -> float:
        """Seconds that the first call of an epoch took longer than the others; all it took, where there are none."""
        return statistics.median(self._beginnings or [0.0])

    def turn(self, seconds: float, *, whole: bool) -> float:
        """Seconds of a step in a turn of about so long, whole epochs if they are short, or if that is asked."""
        if not self._filled:
            return self.run(max(2, math.ceil(seconds / self._took * self._calls)))
        if self._took > max(EPOCH_S, 2 * seconds):
            return self.epoch(WHOLE_S if whole else seconds) / (self._calls * self.size)
        count = math.ceil(seconds / self._took)
        return sum(self.epoch(math.inf) for _ in range(count)) / (count * self._calls * self.size)


def steps(model: Any, dataset: Any, calls: int, size: int) -> Epochs:
    """Learning. The loss is looked at in each call, as `train` does; Keras traces it anew, as the model is now."""
    model.make_train_function(force=True)
    call = model.train_function
    return Epochs(dataset, lambda batches: float(call(batches)["loss"]), calls, size)


def paced(endless: Epochs, seconds: float) -> float:
    """Seconds of a step where there is no epoch."""
    wait_until_idle()
    count = max(2, math.ceil(seconds / max(endless.run(3) * endless.size, 1e-6)))
    endless.run(max(1, int(SETTLING * count)))
    return endless.run(count)


def wait_until_idle() -> None:
    """Until nothing of this process works in the background."""
    until = time.monotonic() + QUIET_S
    while time.monotonic() < until:
        used = time.process_time()
        time.sleep(LOOK_S)
        if time.process_time() - used < IDLE * LOOK_S:
            return
