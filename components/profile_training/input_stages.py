"""How fast each stage of the input is where nothing else holds it up: reading, parsing, preprocessing, batching."""

import math
import time
from typing import Any

from tfopt.training.dataset import BLOCKS, Source

LEAST_S = 0.2  # of one look at a stage
MOST_S = 1.5
LOOKS = 3  # of which the fastest counts: what disturbs only ever slows down


def stages(source: Source, batch_size: int) -> dict[str, float]:
    """Seconds that a batch takes in each stage alone: ``read``, ``parse``, ``preprocess``, ``batch``.

    Stages work side by side, so their times neither add up to that of a batch nor hide in that of the slowest.
    """
    each = {
        name: _seconds(iter(blocks), source.count if name == "read" else 1)
        for name, blocks in source.stages(batch_size).items()
    }
    parse, prepare = each["parse"], each.pop("prepare")
    found = {**each, "preprocess": max(0.0, prepare - parse)}
    return {name: found[name] * batch_size for name in ("read", "parse", "preprocess", "batch")}


def _seconds(blocks: Any, whole: int) -> float:
    """Of one record. A look ends with a whole pass over the files, for each begins with a wait, or after `MOST_S`."""
    for _ in range(BLOCKS + 1):  # that fill what the stage works on
        _records(blocks)
    best = math.inf
    for _ in range(LOOKS):
        start, took, records = time.perf_counter(), 0.0, 0
        while (took < LEAST_S or records % whole) and took < MOST_S:
            records += _records(blocks)
            took = time.perf_counter() - start
        best = min(best, took / records)
    return best


def _records(blocks: Any) -> int:
    import tensorflow as tf

    return int(tf.nest.flatten(next(blocks))[0].shape[0])
