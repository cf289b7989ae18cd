"""Simulate how often a goal blesses a model that is truly worse, and one that is truly equal.

Each draw makes labels, a baseline and candidates with known true quality, sums the records as `evaluate` does, and
compares the pessimistic bound with a goal as `select_model` does. All candidates are truly worse than the goal allows
by a hair, or truly as good as the baseline. For each number of records and candidates, prints the share of draws in
which at least one worse candidate passes (at most 2.5 %), and in which a given equal candidate passes.

With ``--needed`` it prints instead how many records the run says are needed for an equal candidate (median over draws),
and the share of equal candidates that pass with twice as many (at least 90 %).

    python benchmarks/gates.py [--needed] [--draws 1000] [--records 10 30 …] [--metrics accuracy f1 …]
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tfopt.components.evaluate.metrics.accumulators import BINS, Sums
from tfopt.components.evaluate.metrics.bootstrap import bootstrap_weights
from tfopt.components.evaluate.metrics.estimates import Sampled, metrics_of_records
from tfopt.components.evaluate.metrics.task_metrics import Scoring
from tfopt.components.evaluate.parameters import Settings
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.measurement.confidence_bounds import simultaneous_error, smallest_visible_loss
from tfopt.measurement.goals import examples_needed
from tfopt.measurement.model_measurements import Estimate

Array = NDArray[Any]
RECORDS = (10, 30, 62, 100, 300, 1000, 10_000)
CANDIDATES = (1, 9, 20)
BATCH = 256
EXCHANGED = 0.005  # share of all records that only an equally good candidate has right; as many only the baseline
GOAL = {"accuracy": 0.02, "f1": 0.03, "auc": 0.02, "mean_absolute_error": 0.05, "half_tolerance": 0.03}
"""The loss that the goal allows, in the metric's unit; half_tolerance is a metric of the user."""


def main() -> None:
    """Simulate and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=400, help="draws of each cell up to 300 records; fewer beyond")
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS)
    parser.add_argument("--candidates", type=int, nargs="+", default=CANDIDATES)
    parser.add_argument("--metrics", nargs="+", default=list(GOAL), choices=list(GOAL))
    parser.add_argument("--needed", action="store_true", help="check the number of records that the run asks for")
    options = parser.parse_args()
    if options.needed:
        print_needed(options.metrics, options.records, options.candidates, options.draws)
        return
    print("metric, records, candidates: worse and blessed (any candidate), equal and blessed (each), seconds")
    for metric in options.metrics:
        for records in options.records:
            for candidates in options.candidates:
                draws = max(20, min(options.draws, int(options.draws * 6000 / (records * candidates))))
                started = time.time()
                worse = simulate(metric, records, candidates, draws, loss=GOAL[metric] * 1.001)
                equal = simulate(metric, records, candidates, max(draws // 4, 20), loss=0.0)
                print(
                    f"{metric:20} {records:6} {candidates:3}: {100 * worse.any(1).mean():5.1f} % of {draws}, "
                    f"{100 * equal.mean():5.1f} %   {time.time() - started:.0f} s",
                    flush=True,
                )


def print_needed(metrics: Sequence[str], sizes: Sequence[int], numbers: Sequence[int], draws: int) -> None:
    """Print how many records the run says an equal candidate needs, and how often it passes with twice as many."""
    print("metric, records, candidates: records that the run says are needed, equal and blessed with twice as many")
    for metric in metrics:
        for records in sizes:
            for candidates in numbers:
                needed = needed_records(metric, records, candidates, draws)
                if needed is None:
                    print(f"{metric:20} {records:6} {candidates:3}: no number in most draws", flush=True)
                    continue
                equal = simulate(metric, 2 * needed, candidates, max(10, min(draws, 400_000 // needed)), 0.0, seed=1)
                print(f"{metric:20} {records:6} {candidates:3}: {needed:7}, {100 * equal.mean():5.1f} %", flush=True)


def needed_records(metric: str, records: int, candidates: int, draws: int) -> int | None:
    """Return the median of the numbers of records that runs with equal candidates say are needed; None if it is none.

    A run says no number for a candidate whose measured loss is larger than the goal allows.
    """
    numbers = []
    for gain in (gain for gains in _gains(metric, records, candidates, draws, 0.0, 0) for gain in gains):
        needed = gain and examples_needed(gain, -GOAL[metric], records, candidates)
        numbers.append(needed or math.inf)
    median = float(np.median(numbers))
    return math.ceil(median) if math.isfinite(median) else None


def simulate(metric: str, records: int, candidates: int, draws: int, loss: float, seed: int = 0) -> NDArray[np.bool_]:
    """Return which candidates pass the goal in each draw, ``[draws, candidates]``."""
    return np.array(
        [
            [gain is not None and gain.interval[0] >= -GOAL[metric] for gain in gains]
            for gains in _gains(metric, records, candidates, draws, loss, seed)
        ]
    )


def _gains(
    metric: str, records: int, candidates: int, draws: int, loss: float, seed: int
) -> Iterator[list[Estimate | None]]:
    """Yield the gain of each candidate over the baseline; None where the metric is not defined."""
    random = np.random.default_rng([seed, records, candidates, int(loss > 0)])
    for draw in range(draws):
        labels, outputs = MODELS[metric](random, records, candidates, loss)
        plan = _plan(metric, len(outputs), draw)
        sums = _sums(plan, metric, labels, outputs)
        baseline, *measured = [metrics_of_records(plan, sums, number).get(metric) for number in range(len(outputs))]
        yield [_gain(candidate, baseline, len(measured)) for candidate in measured]


def _gain(candidate: Sampled | None, baseline: Sampled | None, candidates: int) -> Estimate | None:
    interval = candidate and baseline and candidate.difference_interval(baseline, simultaneous_error(candidates))
    if not interval or not candidate or not baseline:
        return None
    sign = 1 if candidate.higher_is_better else -1
    value, low = sign * (candidate.value - baseline.value), min(sign * end for end in interval)
    return Estimate(value, min(low, value), None, candidate.unseen_move(baseline))


def _plan(metric: str, models: int, seed: int) -> Plan:
    tasks = {"mean_absolute_error": "regression", "half_tolerance": "other"}
    scoring = Scoring(tasks.get(metric, "binary"), False, 1, 5)
    own = (_half_tolerance(),) if metric == "half_tolerance" else ()
    columns = len(scoring.metrics) + sum(metric.terms for metric in own)
    settings = Settings(seed=seed)
    plan = SimpleNamespace(
        settings=settings, scoring=scoring, metrics=own, tfma=(), metric_grain=np.full(columns, 2.0**-28), models=models
    )
    return cast(Plan, plan)


def _sums(plan: Plan, metric: str, labels: Array, outputs: Sequence[Array]) -> Sums:
    scoring, count = plan.scoring, len(plan.metric_grain)
    bins, classes = BINS if metric == "auc" else 0, scoring.counted_classes if metric == "f1" else 0
    sums = Sums.empty(len(outputs), count, plan.settings.replicates, bins, classes)
    for number, start in enumerate(range(0, len(labels), BATCH)):
        rows = slice(start, start + BATCH)
        weights = bootstrap_weights(plan.settings.seed, "file", number, len(labels[rows]), plan.settings.replicates)
        values = np.zeros((len(labels[rows]), len(outputs), count))
        if classes:
            actual = scoring.members(labels[rows])
            sums.add_actual(weights, actual)
        for model, output in enumerate(outputs):
            own = [metric.record_terms(labels[rows], output[rows]) for metric in plan.metrics]
            values[:, model] = np.concatenate([scoring.values(output[rows], labels[rows]), *own], 1)
            if bins:
                sums.add_ranks(model, weights, labels[rows, 0], scoring.bins(output[rows], bins))
            if classes:
                sums.add_predicted(model, weights, scoring.members(scoring.classes(output[rows])), actual)
        sums.add(weights, values, plan.metric_grain)
    return sums


def _half_tolerance() -> Any:
    """Return a metric of the user: the share of the labels' sum that is within half a unit, of two terms."""

    def terms(labels: Array, predictions: Array) -> Array:
        near = (np.abs(labels - predictions) < 0.5).astype(float)
        weight = 1 + np.abs(labels)
        return np.concatenate([near * weight, weight], 1)

    def value(sums: Array, records: float) -> float:
        return float(sums[0] / sums[1])

    return SimpleNamespace(name="half_tolerance", terms=2, higher_is_better=True, record_terms=terms, value=value)


def _answers(random: np.random.Generator, right: Array, labels: Array) -> Array:
    """Return probabilities whose classes are right where ``right`` says so."""
    certain = random.uniform(0.55, 0.95, labels.shape)
    return np.where((labels == 1) == right, certain, 1 - certain)


def _accuracy(random: np.random.Generator, records: int, candidates: int, loss: float) -> tuple[Array, list[Array]]:
    """The baseline has 95 % right; a candidate breaks and repairs answers, and loses ``loss`` points."""
    labels = random.integers(0, 2, (records, 1))
    right = random.random((records, 1)) < 0.95
    outputs = [_answers(random, right, labels)]
    repaired = EXCHANGED if not loss else 0.0
    for _ in range(candidates):
        lost = random.random((records, 1)) < (loss + repaired) / 0.95
        gained = random.random((records, 1)) < repaired / 0.05
        outputs.append(_answers(random, (right & ~lost) | (~right & gained), labels))
    return labels, outputs


def _f1(random: np.random.Generator, records: int, candidates: int, loss: float) -> tuple[Array, list[Array]]:
    """Positives are 40 %; the baseline finds 90 % with 5 % false alarms; a worse candidate finds fewer."""
    labels = (random.random((records, 1)) < 0.4).astype(int)
    recall, alarm, share = 0.9, 0.05, 0.4
    right = np.where(labels == 1, random.random((records, 1)) < recall, random.random((records, 1)) >= alarm)

    def f1_of(sensitivity: float) -> float:
        return 2 * share * sensitivity / (share * sensitivity + (1 - share) * alarm + share)

    recalls = np.linspace(0, recall, 100_001)
    expected = f1_of(recall) - loss
    remaining = float(recalls[np.searchsorted(f1_of(recalls), expected)]) / recall if loss else 1.0  # type: ignore[arg-type]
    outputs = [_answers(random, right, labels)]
    for _ in range(candidates):
        lost = (labels == 1) & (random.random((records, 1)) >= remaining)
        outputs.append(_answers(random, _exchanged(random, right, recall, loss) & ~lost, labels))
    return labels, outputs


def _exchanged(random: np.random.Generator, right: Array, share: float, loss: float) -> Array:
    """Return other records that are right, as many on average, for a candidate that is as good as the baseline."""
    if loss:
        return right
    broken, repaired = (random.random(right.shape) < EXCHANGED / part for part in (share, 1 - share))
    return np.asarray((right & ~broken) | (~right & repaired))


def _auc(random: np.random.Generator, records: int, candidates: int, loss: float) -> tuple[Array, list[Array]]:
    """Scores of the classes are normal, 2 apart; a worse candidate answers a share of the positives as a negative."""
    labels = (random.random((records, 1)) < 0.4).astype(int)
    score = random.normal(size=labels.shape) + 2 * labels
    area = 0.9213503964748575  # of two normal distributions 2 apart: the normal distribution function at sqrt(2)
    broken = loss / (area - 0.5)
    outputs = [1 / (1 + np.exp(-(score - 1)))]
    for _ in range(candidates):
        lost = (labels == 1) & (random.random(labels.shape) < broken)
        own = np.where(lost, random.normal(size=labels.shape), score + random.normal(0, 0.05, labels.shape))
        outputs.append(1 / (1 + np.exp(-(own - 1))))
    return labels, outputs


def _mean_absolute_error(
    random: np.random.Generator, records: int, candidates: int, loss: float
) -> tuple[Array, list[Array]]:
    """The baseline's errors are normal (mean 0.8); a candidate's differ by noise, and are larger by ``loss``."""
    labels = random.normal(0, 3, (records, 1)).astype(np.float32)
    errors = random.normal(size=labels.shape)
    outputs = [labels + errors]
    for _ in range(candidates):
        size = np.abs(errors) + loss + np.abs(errors) * random.normal(0, 0.2, labels.shape)
        outputs.append(labels + np.sign(errors) * size)
    return labels, [np.asarray(output, np.float64) for output in outputs]


def _user(random: np.random.Generator, records: int, candidates: int, loss: float) -> tuple[Array, list[Array]]:
    """The baseline is within tolerance for 90 % of the records; a candidate loses a share of them."""
    labels = random.normal(0, 3, (records, 1)).astype(np.float32)
    near = random.random(labels.shape) < 0.9
    outputs = [labels + np.where(near, 0.1, 1.0)]
    for _ in range(candidates):
        lost = random.random(labels.shape) < loss / 0.9
        outputs.append(labels + np.where(_exchanged(random, near, 0.9, loss) & ~lost, 0.1, 1.0))
    return labels, outputs


MODELS = {
    "accuracy": _accuracy,
    "f1": _f1,
    "auc": _auc,
    "mean_absolute_error": _mean_absolute_error,
    "half_tolerance": _user,
}

if __name__ == "__main__":
    print(f"62 records, 1 candidate: no loss below {100 * smallest_visible_loss(62, 1):.1f} points is visible")
    main()
