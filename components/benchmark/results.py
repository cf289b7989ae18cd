"""From raw samples to ``benchmark.json`` and ``samples.parquet``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfopt.components.benchmark.contender import Contender
from tfopt.components.benchmark.ratio import speedup

STEADY = 0.1  # a measurement is stable when the middle half of its bursts lies within this part of their median
FACTS = ("import_seconds", "load_seconds", "first_call_seconds", "runtime_memory_bytes", "peak_memory_bytes")
SCHEMA = pa.schema([
    ("model", pa.dictionary(pa.int32(), pa.string())),
    ("batch_size", pa.int32()),
    ("round", pa.int32()),
    ("call", pa.int32()),
    ("nanoseconds", pa.int64()),
])  # fmt: skip


def row(contender: Contender, baseline: Contender, min_effect: float) -> dict[str, Any]:
    """Everything found out about one model; milliseconds a call, examples a second, and speed against the baseline."""
    compared = [] if contender.is_baseline else [size for size in contender.samples if size in baseline.samples]
    latency = {str(size): _latency(contender, size) for size in contender.samples}
    return {
        "name": contender.name,
        "digest": contender.model.digest,
        "format": contender.model.format,
        "error": contender.error,
        "sizes": contender.model.sizes(),
        **{name: contender.facts.get(name) for name in FACTS},
        "latency": latency,
        "throughput": {
            str(size): float(size * 1e9 / np.median(_burst_means(contender, size))) for size in contender.samples
        },
        "speedup": {
            str(size): speedup(
                baseline.burst_medians(size), contender.burst_medians(size), min_effect=min_effect
            ).facts()
            for size in compared
        },
        "notes": contender.notes + _instability(contender),
    }


def write_samples(contenders: Sequence[Contender], file: Path) -> None:
    """Write every recorded call of every model."""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for contender in contenders:
            for batch_size, bursts in contender.samples.items():
                writer.write_table(_table(contender.name, batch_size, bursts))


def _latency(contender: Contender, batch_size: int) -> dict[str, Any]:
    calls = np.concatenate(contender.samples[batch_size]) / 1e6
    p50, p90, p99 = (float(value) for value in np.percentile(calls, [50, 90, 99]))
    return {
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "mean": float(calls.mean()),
        "samples": len(calls),
        "stable": contender.warm[batch_size] and _spread(contender, batch_size) <= STEADY,
    }


def _burst_means(contender: Contender, batch_size: int) -> list[float]:
    return [float(burst.mean()) for burst in contender.samples[batch_size]]


def _spread(contender: Contender, batch_size: int) -> float:
    low, middle, high = np.percentile(contender.burst_medians(batch_size), [25, 50, 75])
    return float((high - low) / middle)


def _instability(contender: Contender) -> list[str]:
    notes = []
    for size in contender.samples:
        if not contender.warm[size]:
            notes.append(f"batch size {size}: still settling when warm-up ended")
        if _spread(contender, size) > STEADY:
            notes.append(
                f"batch size {size}: the middle half of the rounds spreads over {_spread(contender, size):.0%}"
            )
    return notes


def _table(name: str, batch_size: int, bursts: list[Any]) -> pa.Table:
    lengths = [len(burst) for burst in bursts]
    total = sum(lengths)
    columns = [
        pa.DictionaryArray.from_arrays(np.zeros(total, np.int32), [name]),
        np.full(total, batch_size, np.int32),
        np.repeat(np.arange(len(bursts), dtype=np.int32), lengths),
        np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        np.concatenate(bursts),
    ]
    return pa.table(columns, schema=SCHEMA)
