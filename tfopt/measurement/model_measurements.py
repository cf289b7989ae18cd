"""Join each model's row of ``evaluation.json`` with its row of ``benchmark.json``.

All readers of the two reports (the decision, its report, the table in the terminal) join them here, so that each metric
has one name, one direction and one difference from the parent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A measured value with its confidence interval, if one was measured."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval; the value twice if there is none."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


NOTHING = Estimate(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class ModelMeasurements:
    """Measurements of one model from both reports.

    Attributes:
        name: Unique in the reports.
        digest: SHA-256 of its artifact.
        format: The format that was run.
        quality: Its row of ``evaluation.json``.
        speed: Its row of ``benchmark.json``.
        parent: The parent's measurements; None for the parent itself.
    """

    name: str
    digest: str
    format: str
    quality: Mapping[str, Any]
    speed: Mapping[str, Any]
    parent: "ModelMeasurements | None"

    @property
    def error(self) -> str | None:
        """Return why the model could not be measured, as the failing step reported it; else None."""
        return self.quality.get("error") or self.speed.get("error")

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Return all metrics that goals may name, those of the evaluation first."""
        metrics = {name: _estimate(entry) for name, entry in (self.quality.get("metrics") or {}).items()}
        latency = (self.speed.get("latency") or {}).get(self.small_batch, {})
        sizes = self.speed.get("sizes") or {}
        plain = {
            "latency": latency.get("p50"),
            "latency_p90": latency.get("p90"),
            "latency_p99": latency.get("p99"),
            "throughput": (self.speed.get("throughput") or {}).get(self.large_batch),
            "size": sizes.get("raw"),
            "size_gzipped": sizes.get("gzipped"),
            "memory": self.speed.get("peak_memory_bytes"),
            "load": self.speed.get("load_seconds"),
            "error": (self.quality.get("parity") or {}).get("max_abs_error") if self.parent else 0.0,
        }
        return metrics | {name: Estimate(float(value)) for name, value in plain.items() if value is not None}

    def value(self, metric: str) -> float:
        """Return the value of a metric."""
        return self.metrics[metric].value

    def higher_is_better(self, metric: str) -> bool:
        """Return True if higher values of a metric are better."""
        entry = (self.quality.get("metrics") or {}).get(metric)
        return bool(entry["higher_is_better"]) if entry else metric == "throughput"

    def change(self, metric: str) -> Estimate:
        """Return a metric minus the parent's: the paired difference if the reports have one, else the plain one.

        Changes of latency and throughput are computed from the speedup, which was measured with both models in
        turns. Medians taken at different times also differ by the machine's load.
        """
        if self.parent is None:
            return NOTHING
        paired = (self.quality.get("delta") or {}).get(metric)
        if paired:
            return _estimate(paired)
        base = self.parent.value(metric)
        if metric == "latency" and (ratio := self.speedup(self.small_batch)):
            return Estimate(base / ratio["value"] - base, base / ratio["high"] - base, base / ratio["low"] - base)
        if metric == "throughput" and (ratio := self.speedup(self.large_batch)):
            return Estimate(*(base * ratio[end] - base for end in ("value", "low", "high")))
        return Estimate(self.value(metric) - base)

    def gain(self, metric: str) -> Estimate:
        """Return the change, positive for an improvement; ``low`` is always the pessimistic bound."""
        change = self.change(metric)
        if self.higher_is_better(metric):
            return change
        low, high = (None if end is None else -end for end in (change.high, change.low))
        return Estimate(-change.value, low, high)

    def speedup(self, batch: str) -> dict[str, Any] | None:
        """Return the parent's time over this model's time, with interval and verdict; None if it was not measured."""
        return (self.speed.get("speedup") or {}).get(batch)

    @property
    def small_batch(self) -> str:
        """Return the batch size of the latency metrics: 1, or the smallest that the parent was measured at."""
        return str(min((self.parent or self).speed.get("latency") or ["1"], key=int))

    @property
    def large_batch(self) -> str:
        """Return the batch size of the throughput metric: the largest that the parent was measured at."""
        return str(max((self.parent or self).speed.get("throughput") or ["1"], key=int))


def join_reports(
    models: Sequence[tuple[str, str, str]], evaluation: Mapping[str, Any], benchmark: Mapping[str, Any]
) -> list[ModelMeasurements]:
    """Join the rows of models given as (name, digest, format), the parent first.

    A model that is missing in a report gets an empty row.
    """
    joined: list[ModelMeasurements] = []
    for name, digest, kind in models:
        quality, speed = (find_row(report["models"], digest, name) or {} for report in (evaluation, benchmark))
        joined.append(ModelMeasurements(name, digest, kind, quality, speed, joined[0] if joined else None))
    return joined


def find_row(rows: Sequence[dict[str, Any]], digest: str, name: str) -> dict[str, Any] | None:
    """Return the row of a model: by digest, and by name if several models have the same content."""
    same = [row for row in rows if row["digest"] == digest]
    return next((row for row in same if row["name"] == name), same[0] if same else None)


def main_metric(evaluation: Mapping[str, Any]) -> str:
    """Return the metric that "quality" stands for: the first that the evaluation lists for the parent."""
    return str(next(iter(evaluation["models"][0]["metrics"])))


def _estimate(entry: Mapping[str, Any]) -> Estimate:
    return Estimate(entry["value"], entry.get("low"), entry.get("high"))
