"""Limit the time and the memory of a comparison of two models, by what its first records take."""

import time
from collections.abc import Iterable, Iterator

from tfopt.artifacts.tensor_spec import batched_tensors, fixed_batch
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import Specs, count_records
from tfopt.formatting import data_size
from tfopt.processes.memory import peak_memory

SECONDS, BYTES = 60.0, 2 << 30  # of a comparison; the memory is that of this process beyond what it had before
STORED = 0.5  # the share of the memory that stored outputs may take beyond it, once batches do not grow any more
GROWTH = 32  # a batch has at most as many times the records of those before, whose memory is known


class ComparisonBudget:
    """Shorten batches, and leave out records, where more would exceed a limit of time or memory.

    The first batch should be small: nothing is known about its records. Batches of a model with a fixed batch size are
    not shortened.

    Attributes:
        limited: Why not all records were compared; empty if they were.
        records: The number of compared records.
        seconds: What a record of the last batch took; 0 before there is one.
    """

    def __init__(self, specs: Specs, seconds: float = SECONDS, size: int = BYTES) -> None:
        """Begin now.

        Args:
            specs: The inputs of the models.
            seconds: Time for all batches.
            size: Bytes by which the peak memory of this process may grow.
        """
        self.limited, self.records = "", 0
        self._specs, self._size = specs, size
        self._end, self._limit = time.monotonic() + seconds, peak_memory() + size
        self._most = 0  # records of the largest batch
        self.seconds, self._bytes = 0.0, 0.0  # per record
        self._allowed_seconds = seconds

    def within(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches, in parts where a whole one may be too large; end when the budget is spent.

        What is done with a batch before the next one is requested is its cost.
        """
        for batch in batches:
            start, count = 0, count_records(batch, self._specs)
            while start < count:
                allowed = self.allowed(count - start)
                if self.records and allowed < (count if fixed_batch(self._specs) else 1):
                    self.limited = self._describe()
                    return
                part = batch
                if allowed < count and not fixed_batch(self._specs):
                    rows = batched_tensors(self._specs)
                    end = start + max(1, allowed)
                    part = batch | {name: batch[name][start:end] for name in rows}
                size, began, peak = count_records(part, self._specs), time.monotonic(), peak_memory()
                yield part
                self._learn(size, time.monotonic() - began, peak_memory() - peak)
                start, self.records = start + size, self.records + size

    def allowed(self, count: int) -> int:
        """Return how many of a number of records the rest of the budget allows in one batch."""
        remaining, room = self._end - time.monotonic(), self._limit - peak_memory()
        if remaining <= 0 or room <= -STORED * self._size:
            return 0
        if not self._most:
            return count
        by_time = max(1.0, remaining / self.seconds) if self.seconds else count  # the first one may have been slow
        more = room / self._bytes if self._bytes else self._most * GROWTH
        return int(min(count, by_time, self._most + max(0.0, more), self._most * GROWTH))

    def _learn(self, records: int, seconds: float, growth: int) -> None:
        self.seconds = seconds / records
        if self._most and records > self._most:
            self._bytes = growth / (records - self._most)
        self._most = max(self._most, records)

    def _describe(self) -> str:
        limits = f"{self._allowed_seconds:g} s and {data_size(self._size)}"
        return f"only {self.records} of them, as a comparison is limited to {limits}"
