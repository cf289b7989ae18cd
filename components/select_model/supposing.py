"""A model as it would be, were it better at something, and how much better it would have to be."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfopt import formatting as wording
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.measurement.speedup import verdict

TIMED = {"latency": "small_batch", "throughput": "large_batch"}  # and the batch size at which it is meant
MOST = 1 << 40  # steps: more than a terabyte of them


def supposed(model: ModelMeasurements, metric: str, better: float, min_effect: float) -> ModelMeasurements:
    """The same model with a metric that is better by so much, its interval moved along.

    Args:
        model: As it was measured.
        metric: What is better.
        better: How many times as fast for latency and throughput, else a difference in the metric's unit.
        min_effect: The relative difference in speed that counts as one.
    """
    if metric in TIMED:
        batch = getattr(model, TIMED[metric])
        ratio = {end: better * model.speed["speedup"][batch][end] for end in ("value", "low", "high")}
        found = ratio | {"verdict": verdict(ratio["low"], ratio["high"], min_effect)}
        return replace(model, speed={**model.speed, "speedup": {**model.speed["speedup"], batch: found}})
    if metric in ("size", "size_gzipped"):
        key = "raw" if metric == "size" else "gzipped"
        sizes = model.speed["sizes"]
        return replace(model, speed={**model.speed, "sizes": {**sizes, key: max(0, sizes[key] - better)}})
    if metric == "memory":
        less = max(0, model.speed["peak_memory_bytes"] - better)
        return replace(model, speed={**model.speed, "peak_memory_bytes": less})
    by = better if model.higher_is_better(metric) else -better
    parts = {part: _moved(model.quality[part], metric, by) for part in ("metrics", "delta")}
    return replace(model, quality={**model.quality, **parts})


def least(metric: str, value: float, enough: Callable[[float], bool]) -> float | None:
    """The least improvement that is enough, to the precision in which it is said; None where none is.

    Args:
        metric: Which.
        value: Its value, of which a thousandth is precise where there is no unit to count in.
        enough: Whether so much is; as `supposed` takes it.
    """
    unit = _unit(metric, value)
    start = 1.0 if metric in TIMED else 0.0
    high = 1
    while not enough(start + unit * high):
        high *= 2
        if high > MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(start + unit * middle) else (middle, high)
    return start + unit * high


def _unit(metric: str, value: float) -> float:
    if metric in TIMED:
        return 0.01
    if metric in wording.BYTES:
        return 1.0
    return 1e-4 if wording.is_share(metric) else 1e-3 * abs(value) or 1e-4


def _moved(values: dict[str, Any], metric: str, by: float) -> dict[str, Any]:
    found = values.get(metric)
    if not found:
        return values
    ends = {end: found[end] + by for end in ("value", "low", "high") if found.get(end) is not None}
    return {**values, metric: {**found, **ends}}
