"""Join each model's row of ``evaluation.json`` with its row of ``benchmark.json``.

All readers of the two reports (the decision, its report, the table in the terminal) join them here, so that each metric
has one name, one direction and one difference from the baseline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from tfopt import formatting
from tfopt.artifacts import Model
from tfopt.metric_table import LOADS, TIMES, find_metric
from tfopt.reports import evaluation_report as evaluations
from tfopt.reports.benchmark_report import MOST_DISTURBED, BenchmarkReport, ModelBenchmark, NodeLoad, SpeedupEstimate
from tfopt.reports.evaluation_report import EvaluationReport, Metric, ModelEvaluation, SliceMetrics

Row = TypeVar("Row", ModelEvaluation, ModelBenchmark)


@dataclass(frozen=True)
class Estimate:
    """A measured value with its confidence interval, if one was measured."""

    value: float
    low: float | None = None
    high: float | None = None
    unseen: float | None = None  # how far an unseen record moves a difference; None if the report does not state it
    no_bound: str | None = None  # why the interval proves nothing; None if it is a bound, or if there is none

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval; the value twice if there is none."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


NOTHING = Estimate(0.0, 0.0, 0.0)
NOT_COMPARED = "unstable: not compared"


@dataclass(frozen=True)
class ModelMeasurements:
    """Measurements of one model from both reports."""

    name: str  # unique in the reports
    digest: str  # SHA-256 of its artifact
    format: str  # the format that was run
    evaluation: ModelEvaluation | None  # its row of ``evaluation.json``; None if it has none
    benchmark: ModelBenchmark | None  # its row of ``benchmark.json``; None if it has none
    baseline: "ModelMeasurements | None"  # the baseline's measurements; None for the baseline itself

    @property
    def error(self) -> str | None:
        """Return why the model could not be measured, as the failing step reported it; else None."""
        return (self.evaluation and self.evaluation.error) or (self.benchmark and self.benchmark.error) or None

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Return all metrics that goals may name, those of the evaluation first."""
        plain: dict[str, float | None] = {}
        if row := self.benchmark:
            if latency := row.latency.get(self.small_batch):
                plain = {"latency": latency.p50, "latency_p90": latency.p90, "latency_p99": latency.p99}
            plain |= {
                "throughput": row.throughput.get(self.large_batch),
                "size": row.sizes.get("raw"),
                "size_gzipped": row.sizes.get("gzipped"),
                "memory": row.peak_memory_bytes,
                "load": row.load_seconds,
                "cold_start": row.cold_start.seconds if row.cold_start else None,
            }
        loads = {name: getattr(self.load, name) for name in LOADS} if self.load else {}
        parity = self.evaluation.parity if self.evaluation else {}
        plain["error"] = parity.get("max_abs_error") if self.baseline else 0.0
        quality = {name: _estimate(metric) for name, metric in self.quality.items()}
        measured = {name: Estimate(load.value, load.low, load.high) for name, load in loads.items() if load}
        return quality | {name: Estimate(float(v)) for name, v in plain.items() if v is not None} | measured

    @property
    def quality(self) -> Mapping[str, Metric]:
        """Return the metrics of the evaluation."""
        return self.evaluation.metrics if self.evaluation else {}

    @cached_property
    def slices(self) -> dict[str, SliceMetrics]:
        """Return the slice of each metric of a slice, by its name in goals: ``accuracy[city=Oslo]``."""
        slices = self.evaluation.slices if self.evaluation else []
        pairs = ((slice_, metric) for slice_ in slices for metric in slice_.metrics)
        return {slice_metric(metric, slice_.feature, slice_.value): slice_ for slice_, metric in pairs}

    def estimate(self, metric: str) -> Estimate | None:
        """Return the estimate of a metric, also of a slice's; None if it was not measured."""
        if metric in self.slices:
            return _estimate(self.slices[metric].metrics[formatting.whole(metric)])
        return self.metrics.get(metric)

    def disturbance(self, metric: str) -> str | None:
        """Return why a metric of speed cannot be compared, because other processes used the machine; else None.

        A candidate is compared by its rounds with the baseline, the baseline by all of its rounds.
        """
        if metric not in TIMES or not self.benchmark:
            return None
        if metric in LOADS:
            load = self.load
            return _describe_disturbance(load.disturbed_rounds, load.rounds) if load and not load.stable else None
        batch = self.large_batch if metric == "throughput" else self.small_batch
        ratio = self.ratio(metric) if metric == "cold_start" else self.speedup(batch)
        latency = self.benchmark.latency.get(batch)
        rounds, disturbed = self.benchmark.rounds.get(batch, 0), latency.disturbed_rounds if latency else 0
        is_unstable = ratio.is_unstable if ratio else disturbed > MOST_DISTURBED * rounds
        if not is_unstable:
            return None
        return _describe_disturbance(disturbed, rounds)

    @property
    def disturbed_metrics(self) -> list[str]:
        """Return the metrics that cannot be compared, because other processes used the machine."""
        return [metric for metric in self.metrics if self.disturbance(metric)]

    def value(self, metric: str) -> float:
        """Return the value of a metric."""
        estimate = self.estimate(metric)
        if estimate is None:
            raise KeyError(metric)
        return estimate.value

    def higher_is_better(self, metric: str) -> bool:
        """Return True if higher values of a metric are better."""
        slice_of = self.slices.get(metric)
        quality = slice_of.metrics[formatting.whole(metric)] if slice_of else self.quality.get(metric)
        return quality.higher_is_better if quality else bool((row := find_metric(metric)) and row.higher_is_better)

    def change(self, metric: str) -> Estimate:
        """Return a metric minus the baseline's: the paired difference if the reports have one, else the plain one.

        Changes of latency, throughput, cold start, capacity and cost are computed from the ratio, which was measured
        with both models in turns. Medians taken at different times also differ by the machine's load.
        """
        if self.baseline is None:
            return NOTHING
        slice_of = self.slices.get(metric)
        deltas = slice_of.delta if slice_of else self.evaluation.delta if self.evaluation else {}
        paired = deltas.get(formatting.whole(metric))
        if paired:
            return replace(_estimate(paired), unseen=paired.unseen)
        base = self.baseline.value(metric)
        ratio = self.ratio(metric)
        if ratio and metric in ("latency", "cost", "cold_start"):
            return Estimate(base / ratio.value - base, base / ratio.high - base, base / ratio.low - base)
        if ratio:
            return Estimate(base * ratio.value - base, base * ratio.low - base, base * ratio.high - base)
        return Estimate(self.value(metric) - base)

    def gain(self, metric: str) -> Estimate:
        """Return the change, positive for an improvement; ``low`` is always the pessimistic bound."""
        return self.signed(metric, self.change(metric))

    def gain_over_constant(self, metric: str) -> Estimate | None:
        """Return the gain over the constant model, positive for an improvement; None if it was not evaluated."""
        difference = self.evaluation.over_constant.get(metric) if self.evaluation else None
        return self.signed(metric, _estimate(difference)) if difference else None

    def signed(self, metric: str, estimate: Estimate) -> Estimate:
        """Return an estimate of a metric or its change, negated if a lower metric is better."""
        if self.higher_is_better(metric):
            return estimate
        low, high = (None if end is None else -end for end in (estimate.high, estimate.low))
        return replace(estimate, value=-estimate.value, low=low, high=high)

    def ratio(self, metric: str) -> SpeedupEstimate | None:
        """Return how many times as good as the baseline it is, for metrics that are measured as such a ratio."""
        if metric in ("capacity", "cost"):
            return self.load.over_baseline if self.load else None
        if metric == "cold_start":
            return self.benchmark.cold_start.over_baseline if self.benchmark and self.benchmark.cold_start else None
        batch = {"latency": self.small_batch, "throughput": self.large_batch}.get(metric)
        return self.speedup(batch) if batch else None

    def ratio_to_best(self, metric: str) -> SpeedupEstimate | None:
        """Return the same ratio to the model that is best at it; None for that model."""
        if metric in ("capacity", "cost"):
            return self.load.over_best if self.load else None
        if metric == "cold_start":
            return self.benchmark.cold_start.over_best if self.benchmark and self.benchmark.cold_start else None
        batch = {"latency": self.small_batch, "throughput": self.large_batch}.get(metric)
        return self.benchmark.over_fastest.get(batch) if batch and self.benchmark else None

    @property
    def load(self) -> NodeLoad | None:
        """Return the measurement of a node under load; None if there was none."""
        return self.benchmark.load if self.benchmark else None

    def speedup(self, batch: str) -> SpeedupEstimate | None:
        """Return the baseline's time over this model's time, with interval and verdict; None if it was not measured."""
        return self.benchmark.speedup.get(batch) if self.benchmark else None

    @property
    def small_batch(self) -> str:
        """Return the batch size of the latency metrics: 1, or the smallest that the baseline was measured at."""
        benchmark = (self.baseline or self).benchmark
        return str(min((benchmark and benchmark.latency) or ["1"], key=int))

    @property
    def large_batch(self) -> str:
        """Return the batch size of the throughput metric: the largest that the baseline was measured at."""
        benchmark = (self.baseline or self).benchmark
        return str(max((benchmark and benchmark.throughput) or ["1"], key=int))


def _describe_disturbance(disturbed: int, rounds: int) -> str:
    count = f" in {disturbed} of {rounds} rounds" if disturbed else ""
    return f"{NOT_COMPARED}, because other processes used the machine{count}"


def join_reports(
    models: Sequence[tuple[str, str, str]], evaluation: EvaluationReport, benchmark: BenchmarkReport
) -> list[ModelMeasurements]:
    """Join the rows of models given as (name, digest, format), the baseline first."""
    joined: list[ModelMeasurements] = []
    for name, digest, kind in models:
        quality, speed = find_row(evaluation.models, digest, name), find_row(benchmark.models, digest, name)
        joined.append(ModelMeasurements(name, digest, kind, quality, speed, joined[0] if joined else None))
    return joined


def from_quality(metrics: Mapping[str, Metric], baseline: ModelMeasurements | None) -> ModelMeasurements:
    """Return the measurements of a model with quality metrics only."""
    row = ModelEvaluation("", "", "", None, [], dict(metrics), {}, {}, [], [], [])
    return ModelMeasurements("", "", "", row, None, baseline)


def from_sizes(model: Model, baseline: ModelMeasurements | None) -> ModelMeasurements:
    """Return the measurements of a model with sizes only."""
    name, digest, kind, sizes = model.name, model.digest, model.format, model.sizes()
    row = ModelBenchmark(name, digest, kind, None, {}, sizes, None, None, None, None, None, {}, {}, {}, None, [])
    return ModelMeasurements(name, digest, kind, None, row, baseline)


def slice_metric(metric: str, feature: str, value: int | str) -> str:
    """Return the name of a slice's metric in goals.

    >>> slice_metric("accuracy", "label", 3)
    'accuracy[label=3]'
    """
    return f"{metric}[{feature}={value}]"


def find_row(rows: Sequence[Row], digest: str, name: str) -> Row | None:
    """Return the row of a model: by digest, and by name if several models have the same content."""
    same = [row for row in rows if row.digest == digest]
    return next((row for row in same if row.name == name), same[0] if same else None)


def main_metric(evaluation: EvaluationReport) -> str:
    """Return the metric that "quality" stands for: the first that the evaluation lists for the baseline."""
    return next(iter(evaluation.models[0].metrics))


def _estimate(entry: evaluations.Estimate) -> Estimate:
    return Estimate(entry.value, entry.low, entry.high, no_bound=entry.no_bound)
