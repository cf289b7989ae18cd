"""Time each stage of the input alone: reading, parsing, preprocessing, batching."""

import math
import time
from typing import Any

from tfopt.training.datasets.dataset import BLOCKS, Source

MIN_SECONDS = 0.2  # of one measurement of a stage
MAX_SECONDS = 1.5
REPEATS = 3  # the fastest counts, since disturbances only slow a stage down


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
    """Measure a stage. A measurement ends after a multiple of this many records, or after `MAX_SECONDS`.

    A stage that reads is measured in whole passes over the files, because each pass begins with a wait.
    """
    for _ in range(BLOCKS + 1):  # fill the caches that the stage reads from
        _count_records(blocks)
    best = math.inf
    for _ in range(REPEATS):
        start, seconds, records = time.perf_counter(), 0.0, 0
        while (seconds < MIN_SECONDS or records % multiple) and seconds < MAX_SECONDS:
            records += _count_records(blocks)
            seconds = time.perf_counter() - start
        best = min(best, seconds / records)
    return best


def _count_records(blocks: Any) -> int:
    import tensorflow as tf

    return int(tf.nest.flatten(next(blocks))[0].shape[0])
