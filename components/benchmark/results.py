"""From raw samples to ``benchmark.json`` and ``samples.parquet``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfopt.components.benchmark.measured_model import Contender
from tfopt.components.benchmark.model_process import ANOTHER_ORIGIN, Origin
from tfopt.measurement.saturation import Saturation
from tfopt.measurement.speedup import speedup
from tfopt.runtimes import environment

STEADY = 0.1  # a measurement is stable when the middle half of its rounds lies within this part of their median
DISTURBED = 0.05  # nor when others had its cores for longer than this part of the time
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
    unsure = 0.0 if not compared or Origin.of(contender.model) == Origin.of(baseline.model) else ANOTHER_ORIGIN
    latency = {str(size): _latency(contender, size) for size in contender.samples}
    saturation = Saturation.of({size: size * 1e9 / contender.round_medians(size) for size in contender.samples})
    return {
        "name": contender.name,
        "digest": contender.model.digest,
        "format": contender.model.format,
        "error": contender.error,
        "environment": {} if contender.error else environment.read(contender.model),
        "sizes": contender.model.sizes(),
        **{name: contender.facts.get(name) for name in FACTS},
        "latency": latency,
        "throughput": {
            str(size): float(size * 1e9 / np.median(_round_means(contender, size))) for size in contender.samples
        },
        "speedup": {
            str(size): speedup(
                baseline.round_medians(size), contender.round_medians(size), min_effect=min_effect, unsure=unsure
            ).facts()
            for size in compared
        },
        "saturation": saturation and saturation.facts(),
        "notes": contender.notes + [note for size in contender.samples for note in _instability(contender, size)],
    }


def write_samples(contenders: Sequence[Contender], file: Path) -> None:
    """Write every recorded call of every model."""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for contender in contenders:
            for batch_size, rounds in contender.samples.items():
                writer.write_table(_table(contender.name, batch_size, rounds))


def _latency(contender: Contender, batch_size: int) -> dict[str, Any]:
    calls = np.concatenate(contender.samples[batch_size]) / 1e6
    p50, p90, p99 = (float(value) for value in np.percentile(calls, [50, 90, 99]))
    return {
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "mean": float(calls.mean()),
        "samples": len(calls),
        "disturbed": _others(contender, batch_size),
        "stable": not _instability(contender, batch_size),
    }


def _round_means(contender: Contender, batch_size: int) -> list[float]:
    return [float(calls.mean()) for calls in contender.samples[batch_size]]


def _spread(contender: Contender, batch_size: int) -> float:
    low, middle, high = np.percentile(contender.round_medians(batch_size), [25, 50, 75])
    return float((high - low) / middle)


def _others(contender: Contender, batch_size: int) -> float:
    # Ticks of 10 ms say little of one turn and enough of all; a model that left its core idle can come out below 0.
    return max(0.0, float(np.mean(contender.others[batch_size])))


def _instability(contender: Contender, batch_size: int) -> list[str]:
    """Why the numbers of this batch size should be taken with care."""
    spread, others = _spread(contender, batch_size), _others(contender, batch_size)
    reasons = {
        "still settling when warm-up ended": not contender.warm[batch_size],
        f"the middle half of the rounds spreads over {spread:.0%}": spread > STEADY,
        f"other processes had its cores for {others:.0%} of the time": others > DISTURBED,
    }
    return [f"batch size {batch_size}: {reason}" for reason, applies in reasons.items() if applies]


def _table(name: str, batch_size: int, rounds: list[Any]) -> pa.Table:
    lengths = [len(calls) for calls in rounds]
    total = sum(lengths)
    columns = [
        pa.DictionaryArray.from_arrays(np.zeros(total, np.int32), [name]),
        np.full(total, batch_size, np.int32),
        np.repeat(np.arange(len(rounds), dtype=np.int32), lengths),
        np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        np.concatenate(rounds),
    ]
    return pa.table(columns, schema=SCHEMA)
