"""Resolve the goals of a replay, check that its records can prove them, and compare them with the measurements."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfopt.components.replay.answers import Disagreement, measurements, schedule_looks, slice_value
from tfopt.components.replay.parameters import Traffic
from tfopt.components.replay.replay_goals import DISAGREEMENT, LATENCIES, read_replay_goals
from tfopt.errors import ComponentError
from tfopt.formatting import amount
from tfopt.measurement.confidence_bounds import share_interval
from tfopt.measurement.goals import Goal, resolve_goals
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.model_store.run_history import HistoricalMedian
from tfopt.reports.evaluation_report import Difference, Estimate, Metric, SliceMetrics
from tfopt.reports.replay_report import GoalResult, ReplayedLatency
from tfopt.serving.recordings.recorded_requests import Recording

NOT_MEASURED = "not measured, because a goal on the answers is missed"


@dataclass(frozen=True)
class ServedValue(HistoricalMedian):
    """A metric of the served version, in place of that of earlier runs."""

    @property
    def description(self) -> str:
        """Return what was measured, in words."""
        return "the served version"


def resolve(texts: Sequence[str], recording: Recording, traffic: Traffic) -> tuple[list[Goal], list[Goal]]:
    """Return the goals on the disagreement, those on slices included, and the goals on latency.

    Raises:
        ComponentError: If a slice does not exist or is too small, a goal on latency lacks arrival times, or the records
            cannot show that a goal is met.
    """
    goals = read_replay_goals(texts)
    on_latency = [goal for goal in goals if goal.metric in LATENCIES.values()]
    if on_latency and recording.times is None and not traffic.rate:
        raise ComponentError(
            f"goal {on_latency[0].text!r}, and {recording.source} without arrival times",
            "arrival times, or a rate",
            f"pass rate=REQUESTS_PER_SECOND, or goals without {on_latency[0].text!r}",
        )
    counts: Counter[tuple[str, int | str]] = Counter()
    for request in recording.requests:
        for feature, values in request.slices.items():
            counts.update((feature, slice_value(value)) for value in values)
    unknown = {DISAGREEMENT: Metric(0.0, 0.0, 1.0, higher_is_better=False)}
    slices = [SliceMetrics(*key, count, unknown, {}) for key, count in sorted(counts.items(), key=str)]
    others = [goal for goal in goals if goal not in on_latency]
    resolved = resolve_goals(others, DISAGREEMENT, [DISAGREEMENT], slices=slices, slice_records=traffic.slice_records)
    records = recording.records
    named = measurements(unknown, slices).slices
    for goal in resolved:
        _check_provable(goal, named[goal.metric].count if goal.metric in named else records, records)
    return resolved, on_latency


def _check_provable(goal: Goal, count: int, records: int) -> None:
    error = list(schedule_looks(records).errors.values())[-1]
    least = share_interval(0, count, error)[1]
    if least <= goal.number:
        return
    needed = math.inf if goal.number <= 0 else math.ceil(math.log(error / 2) / math.log1p(-goal.number))
    more = f"about {needed:,} records" if math.isfinite(needed) else "a limit above 0, which no number of records shows"
    raise ComponentError(
        f"goal {goal.text!r}, and {count:,} records: without a single difference, they exclude a disagreement of "
        f"{100 * least:.1f}% at best",
        more,
        f"pass a longer recording, or allow a disagreement of more than {100 * least:.1f}%",
    )


def judge_answers(disagreement: Disagreement, error: float) -> list[GoalResult]:
    """Return the results of the goals on the disagreement."""
    measured = disagreement.measurements(error)
    return [_result(goal, disagreement.failure(goal, measured)) for goal in disagreement.goals]


def judge_latency(goals: Sequence[Goal], latency: Mapping[str, ReplayedLatency]) -> list[GoalResult]:
    """Return the results of the goals on latency."""
    if not latency:
        return [GoalResult(goal.text, False, NOT_MEASURED) for goal in goals]
    baseline = measurements(_metrics({name: row.served for name, row in latency.items()}), [])
    own = _measured(latency, {name: row.model for name, row in latency.items()}, baseline)
    paired = _measured(latency, {name: _paired(row) for name, row in latency.items()}, baseline)
    results = []
    for goal in goals:
        if goal.kind == "max_regression":  # a significant loss, so the uncertainty of the difference counts
            served = ServedValue(baseline.value(goal.metric), 0.0, 1)
            results.append(_result(goal, replace(goal, reference=served).failure(paired, proven=True, examples=0)))
        else:
            results.append(_result(goal, goal.failure(own, proven=True, examples=0)))
    return results


def describe_blindness(goals: Sequence[Goal], latency: Mapping[str, ReplayedLatency]) -> list[str]:
    """Return a note for each goal on a regression that the intervals are too wide to find."""
    names = {table: name for name, table in LATENCIES.items()}
    notes = []
    for goal in goals:
        row = latency[names[goal.metric]]
        difference, width = row.difference, row.difference.value - row.difference.low
        allowed = goal.number * row.served.value if goal.relative else goal.number
        if goal.kind != "max_regression" or difference.low > allowed:
            continue
        if difference.no_bound:
            notes.append(f"goal {goal.text!r}: measured values alone are compared: {difference.no_bound}")
        elif width > allowed:
            loss = f"a loss of up to {(allowed + width) / row.served.value:.0%} may be missed"
            notes.append(f"goal {goal.text!r}: {names[goal.metric]} varied so much that {loss}")
    return notes


def describe_answers(disagreement: Disagreement) -> str:
    """Return the disagreement in a sentence."""
    last = disagreement.looks[-1]
    share = amount(DISAGREEMENT, last.disagreeing / last.records, last.low, last.high)
    return f"{share} of {last.records:,} answers disagree ({_percent(last.low)} to {_percent(last.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"


def _result(goal: Goal, failure: str | None) -> GoalResult:
    return GoalResult(goal.text, failure is None, failure or "")


def _paired(row: ReplayedLatency) -> Estimate:
    """Return the model's value with the interval of the difference to the served version."""
    served, difference = row.served.value, row.difference
    return Estimate(row.model.value, served + difference.low, served + difference.high, no_bound=difference.no_bound)


def _metrics(estimates: Mapping[str, Estimate]) -> dict[str, Metric]:
    return {LATENCIES[name]: Metric(**vars(one), higher_is_better=False) for name, one in estimates.items()}


def _measured(
    latency: Mapping[str, ReplayedLatency], estimates: Mapping[str, Estimate], baseline: ModelMeasurements
) -> ModelMeasurements:
    measured = measurements(_metrics(estimates), [])
    assert measured.evaluation
    differences: dict[str, Difference] = {LATENCIES[name]: row.difference for name, row in latency.items()}
    return replace(measured, evaluation=replace(measured.evaluation, delta=differences), baseline=baseline)
