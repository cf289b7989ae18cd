"""What was measured of each model: its row of ``evaluation.json`` and its row of ``benchmark.json``, joined.

Every reader of the two reports (the decision, its page, the table in the terminal) joins them here, so that a metric
has one name, one direction and one difference to the parent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A measured number, and its confidence interval where one was measured."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """The interval; the value itself where there is none."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


NOTHING = Estimate(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Measured:
    """One model as both reports saw it.

    Attributes:
        name: Unique in the reports.
        digest: SHA-256 of its artifact.
        format: What was run.
        quality: Its row of ``evaluation.json``.
        speed: Its row of ``benchmark.json``.
        parent: The parent's measurements; None for the parent itself.
    """

    name: str
    digest: str
    format: str
    quality: Mapping[str, Any]
    speed: Mapping[str, Any]
    parent: "Measured | None"

    @property
    def error(self) -> str | None:
        """Why it could not be measured, in the words of the step that tried."""
        return self.quality.get("error") or self.speed.get("error")

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Every metric a goal may name, those of the evaluation first."""
        found = {name: _estimate(given) for name, given in (self.quality.get("metrics") or {}).items()}
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
        return found | {name: Estimate(float(value)) for name, value in plain.items() if value is not None}

    def value(self, metric: str) -> float:
        """One metric's value."""
        return self.metrics[metric].value

    def higher_is_better(self, metric: str) -> bool:
        """Which way a metric improves."""
        given = (self.quality.get("metrics") or {}).get(metric)
        return bool(given["higher_is_better"]) if given else metric == "throughput"

    def change(self, metric: str) -> Estimate:
        """A metric minus the parent's: paired where the reports paired it, else the plain difference.

        Times come from the speed-up, which was measured with both models taking turns: two medians taken at
        different moments would blame a model for the machine's mood.
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
        """The change, positive where it is for the better; ``low`` is always the bad end."""
        moved = self.change(metric)
        if self.higher_is_better(metric):
            return moved
        low, high = (None if end is None else -end for end in (moved.high, moved.low))
        return Estimate(-moved.value, low, high)

    def speedup(self, batch: str) -> dict[str, Any] | None:
        """The parent's time over this model's, with its interval and verdict."""
        return (self.speed.get("speedup") or {}).get(batch)

    @property
    def small_batch(self) -> str:
        """The batch size at which latency is meant: 1, or the smallest that the parent was measured at."""
        return str(min((self.parent or self).speed.get("latency") or ["1"], key=int))

    @property
    def large_batch(self) -> str:
        """The batch size at which throughput is meant: the largest that the parent was measured at."""
        return str(max((self.parent or self).speed.get("throughput") or ["1"], key=int))


def join(
    models: Sequence[tuple[str, str, str]], evaluation: Mapping[str, Any], benchmark: Mapping[str, Any]
) -> list[Measured]:
    """Join the rows of models given as (name, digest, format), the parent first.

    A model that a report does not have gets an empty row there.
    """
    joined: list[Measured] = []
    for name, digest, kind in models:
        quality, speed = (find_row(report["models"], digest, name) or {} for report in (evaluation, benchmark))
        joined.append(Measured(name, digest, kind, quality, speed, joined[0] if joined else None))
    return joined


def find_row(rows: Sequence[dict[str, Any]], digest: str, name: str) -> dict[str, Any] | None:
    """The row of a model: by digest, and by name where two models have the same content."""
    same = [row for row in rows if row["digest"] == digest]
    return next((row for row in same if row["name"] == name), same[0] if same else None)


def main_metric(evaluation: Mapping[str, Any]) -> str:
    """The metric that stands for quality: the first the evaluation lists for the parent."""
    return str(next(iter(evaluation["models"][0]["metrics"])))


def _estimate(given: Mapping[str, Any]) -> Estimate:
    return Estimate(given["value"], given.get("low"), given.get("high"))
