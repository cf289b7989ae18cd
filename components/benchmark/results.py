"""Summaries of the raw samples for ``benchmark.json``, and the samples themselves as ``samples.parquet``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfopt.artifacts import Model
from tfopt.components.benchmark.comparison import Look
from tfopt.components.benchmark.measured_model import MeasuredModel
from tfopt.formatting import data_size
from tfopt.measurement.interim_looks import LookSchedule
from tfopt.measurement.saturation import find_saturation
from tfopt.reports.benchmark_report import MOST_DISTURBED, ColdStart, Latency, ModelBenchmark, NodeLoad
from tfopt.runtimes import environment

STABLE_SPREAD = 0.1  # of the middle half of the rounds, relative to their median; more is not stable
STABLE_FOREIGN_LOAD = 0.05  # share of the time that other processes used the cores; more is not stable
SCHEMA = pa.schema([
    ("model", pa.dictionary(pa.int32(), pa.string())),
    ("batch_size", pa.int32()),
    ("round", pa.int32()),
    ("call", pa.int32()),
    ("nanoseconds", pa.int64()),
])  # fmt: skip


def summarize_model(
    model: MeasuredModel,
    looks: Mapping[int, Look],
    schedule: LookSchedule,
    load: NodeLoad | None,
    cold_start: ColdStart | None,
) -> ModelBenchmark:
    """Return the measurements of one model; ``looks`` has the comparisons of all models by batch size."""
    sizes, file_sizes = list(model.samples), model.model.sizes()
    rounds = {size: len(model.samples[size]) for size in sizes}
    common = min(rounds.values(), default=0)
    rates = {size: size * 1e9 / model.round_medians(size)[:common] for size in sizes}
    return ModelBenchmark(
        name=model.name,
        digest=model.model.digest,
        format=model.model.format,
        error=model.error,
        environment={} if model.error else environment.read_variables(model.model),
        sizes=file_sizes,
        import_seconds=model.facts.get("import_seconds"),
        load_seconds=model.facts.get("load_seconds"),
        first_call_seconds=model.facts.get("first_call_seconds"),
        runtime_memory_bytes=model.facts.get("runtime_memory_bytes"),
        peak_memory_bytes=model.facts.get("peak_memory_bytes"),
        latency={str(size): _latency(model, size) for size in sizes},
        throughput={
            str(size): float(size * 1e9 / np.median([calls.mean() for calls in model.samples[size]])) for size in sizes
        },
        rounds={str(size): count for size, count in rounds.items()},
        speedup={
            str(size): looks[size].speedups[model.name]
            for size in sizes
            if looks[size].baseline and not model.is_baseline
        },
        over_fastest={str(size): ratio for size in sizes if (ratio := looks[size].compare_with_fastest(model))},
        saturation=find_saturation(rates, schedule.errors[common]) if rates else None,
        notes=[
            *model.notes,
            *size_notes(model.model, file_sizes),
            *(note for size in sizes for note in _instability(model, size)),
        ],
        load=load,
        cold_start=cold_start,
    )


def size_notes(model: Model, sizes: Mapping[str, int]) -> list[str]:
    """Return a note if the size of a model is not that of its files."""
    rest = sum(file.stat().st_size for file in model.payload()) - sizes.get("raw", 0)
    return [f"{data_size(rest)} of its files are the optimizer's state, which the size leaves out"] if rest else []


def write_samples(models: Sequence[MeasuredModel], file: Path) -> None:
    """Write every recorded call of every model."""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for model in models:
            for batch_size, rounds in model.samples.items():
                writer.write_table(_table(model.name, batch_size, rounds))


def _latency(model: MeasuredModel, batch_size: int) -> Latency:
    calls = np.concatenate(model.samples[batch_size]) / 1e6
    p50, p90, p99 = (float(value) for value in np.percentile(calls, [50, 90, 99]))
    return Latency(
        p50=p50,
        p90=p90,
        p99=p99,
        mean=float(calls.mean()),
        samples=len(calls),
        disturbed=_foreign_load(model, batch_size),
        stable=not _instability(model, batch_size),
        disturbed_rounds=_disturbed_rounds(model, batch_size),
    )


def _foreign_load(model: MeasuredModel, batch_size: int) -> float:
    return float(np.mean([load.waited for load in model.round_loads(batch_size)]))


def _disturbed_rounds(model: MeasuredModel, batch_size: int) -> int:
    return sum(load.is_disturbed for load in model.round_loads(batch_size))


def _instability(model: MeasuredModel, batch_size: int) -> list[str]:
    low, middle, high = np.percentile(model.round_medians(batch_size), [25, 50, 75])
    spread, foreign = (high - low) / middle, _foreign_load(model, batch_size)
    rounds, disturbed = len(model.samples[batch_size]), _disturbed_rounds(model, batch_size)
    reasons = {
        "not settled when the warm-up ended": not model.is_warm[batch_size],
        f"the middle half of the rounds spreads over {spread:.0%}": spread > STABLE_SPREAD,
        f"other processes had its cores for {foreign:.0%} of the time": foreign > STABLE_FOREIGN_LOAD,
        f"other processes used the machine in {disturbed} of {rounds} rounds": disturbed > MOST_DISTURBED * rounds,
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
