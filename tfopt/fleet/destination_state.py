"""State of one destination, from its run history and the names of its files."""

import datetime
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tfopt import formatting
from tfopt.errors import ComponentError
from tfopt.metric_table import HIGHER_IS_BETTER, TIMES
from tfopt.model_store.run_history import WINNER, RunHistory, RunRecord, read_all_runs, serving_rates
from tfopt.model_store.withdrawals import RECORDS, Changes, find_canary, is_served, is_withdrawn, read_changes
from tfopt.serving.load_generator import ServingCost, compare_costs
from tfopt.serving.version_manifest import STATEMENT_SIGNATURE
from tfopt.storage import remote_files

RUNS = 30  # of each destination that are read
LATENCY = "latency"
# A regression is a value that is worse than the median of the earlier runs by more than this number of standard
# deviations of one run, and by more than a share of the median, which is larger for times.
DEVIATIONS, LEAST_CHANGE, LEAST_CHANGE_OF_TIMES = 3.0, 0.01, 0.05
LATE = 3.0  # a schedule is late after this number of usual intervals
LEAST_INTERVAL = 1 / 24  # days; runs closer to each other are no schedule

Verdict = Literal["pushed", "not pushed", "no runs", "unreadable"]


@dataclass(frozen=True)
class Destination:
    """A destination, and what its owner pays for its server."""

    address: str
    name: str
    price: float | None = None  # of a node for an hour, in any currency
    requests_per_second: float | None = None  # examples that its server predicts at the busiest time


@dataclass(frozen=True)
class MetricHistory:
    """A metric of the selected models."""

    metric: str
    values: list[float | None]  # oldest first; None where it is missing, disturbed or not comparable with the newest
    median: float | None  # of the earlier values; None if too few are comparable
    regression: str | None  # how much worse the newest value is, or None


@dataclass(frozen=True)
class DestinationState:
    """The state of a destination."""

    name: str
    destination: str
    verdict: Verdict  # of the last run
    reason: str = ""  # of the verdict, or the error that made it unreadable
    problems: list[str] = field(default_factory=list)  # the most important one first
    last_run: str | None = None  # ISO 8601
    usual_interval: float | None = None  # days between two runs; None with fewer than three intervals, or short ones
    version: int | None = None  # number of the newest version that is served
    canary: int | None = None  # number of the version that is for a share of the requests only
    share: int | None = None  # that share, in percent
    pushed: str | None = None  # when it was pushed, ISO 8601; None if its run is not in the history
    model: str = ""  # name of the selected model
    format: str = ""
    cpu: str | None = None  # that it was measured on
    versions: dict[str, str] = field(default_factory=dict)  # of tfopt and libraries
    signed: bool = False
    metrics: list[MetricHistory] = field(default_factory=list)  # main metric, latency
    cost: ServingCost | None = None  # None without a price or an undisturbed throughput


def read_state(
    destination: Destination, now: datetime.datetime, stale_days: float
) -> tuple[DestinationState, list[RunRecord]]:
    """Return the state of a destination and its last runs, oldest first; a damaged one has an error in its state."""
    try:
        names = remote_files.list_names(destination.address)
        runs = read_all_runs(destination.address, RUNS)
        changes = read_changes(destination.address)
        records = remote_files.list_names(remote_files.join(destination.address, RECORDS))
    except (ComponentError, OSError) as error:
        text = error.received if isinstance(error, ComponentError) else str(error)
        return _without_runs(destination, "unreadable", text), []
    if not runs:
        return _without_runs(destination, "no runs", "its history is empty, or no such folder or address"), []
    numbers = [int(name) for name in names if name.isascii() and name.isdecimal()]
    served = max((number for number in numbers if is_served(changes.get(number, ()))), default=None)
    canary = find_canary(changes, served)
    run = next((run for run in runs if run.blessed and run.version == served), None)
    last = runs[-1]
    blessed = [run for run in runs if run.blessed and not is_withdrawn(changes.get(run.version or 0, ()))]
    metrics = _metrics([run for run in blessed if is_served(changes.get(run.version or 0, ()))])
    interval = _usual_interval(runs)
    state = DestinationState(
        name=destination.name,
        destination=destination.address,
        verdict="pushed" if last.blessed else "not pushed",
        reason=last.reason,
        problems=[
            *_schedule_problems(last, blessed, interval, now, stale_days),
            *[metric.regression for metric in metrics if metric.regression],
            *_version_problems(served, changes),
        ],
        last_run=last.time,
        usual_interval=interval,
        version=served,
        canary=canary.version if canary else None,
        share=canary.share if canary else None,
        pushed=run.time if run else None,
        model=run.winner.name if run else "",
        format=run.winner.format if run else "",
        cpu=run.conditions.speed.cpu if run else None,
        versions=run.versions if run else {},
        signed=f"{served}{STATEMENT_SIGNATURE}" in records,
        metrics=metrics,
        cost=_cost(destination, run) if run else None,
    )
    return state, runs


def _without_runs(destination: Destination, verdict: Verdict, text: str) -> DestinationState:
    return DestinationState(destination.name, destination.address, verdict, text, [f"{verdict}: {text}"])


def days_since(time: str, now: datetime.datetime) -> float:
    """Return the days from a time in ISO 8601 until now."""
    return (now - datetime.datetime.fromisoformat(time)) / datetime.timedelta(days=1)


def _usual_interval(runs: Sequence[RunRecord]) -> float | None:
    times = [datetime.datetime.fromisoformat(run.time) for run in runs]
    intervals = [(later - earlier) / datetime.timedelta(days=1) for earlier, later in itertools.pairwise(times)]
    usual = statistics.median(intervals) if len(intervals) >= 3 else 0.0
    return usual if usual >= LEAST_INTERVAL else None


def _schedule_problems(
    last: RunRecord, blessed: Sequence[RunRecord], interval: float | None, now: datetime.datetime, stale_days: float
) -> list[str]:
    problems, age = [], days_since(last.time, now)
    if interval and age > LATE * interval:
        problems.append(f"no run for {_days(age)}, where one every {_days(interval)} is usual: its schedule may fail")
    if not last.blessed:
        problems.append(f"the last run pushed nothing: {last.reason}")
    if not blessed:
        problems.append("never pushed")
    elif (pushed := days_since(blessed[-1].time, now)) > stale_days:
        problems.append(f"nothing pushed for {_days(pushed)}")
    return problems


def _version_problems(served: int | None, changes: Changes) -> list[str]:
    newest = max(changes, default=0)
    if newest > (served or 0) and is_withdrawn(changes[newest]):
        return [str(changes[newest][-1])]
    return []


def _metrics(blessed: Sequence[RunRecord]) -> list[MetricHistory]:
    """Return the main metric and the latency of the selected models, comparable with the newest run."""
    if not blessed:
        return []
    newest = blessed[-1]
    main = next(iter(newest.winner.metrics), None)
    return [_metric(blessed, metric) for metric in dict.fromkeys((main, LATENCY)) if metric]


def _metric(blessed: Sequence[RunRecord], metric: str) -> MetricHistory:
    newest, history = blessed[-1], RunHistory(blessed[:-1], blessed[-1].conditions)
    value, median = newest.winner.undisturbed(metric), history.reference(WINNER, metric)
    values = [*history.values(WINNER, metric), value]
    if value is None or median is None:
        return MetricHistory(metric, values, median.value if median else None, None)
    loss = median.value - value if formatting.whole(metric).endswith(HIGHER_IS_BETTER) else value - median.value
    least = LEAST_CHANGE_OF_TIMES if metric in TIMES else LEAST_CHANGE
    is_worse = loss > max(DEVIATIONS * median.deviation, least * abs(median.value))
    text = f"{formatting.title(metric)} is {formatting.amount(metric, value)}"
    text = f"{text}, the median of {median.runs} earlier runs {formatting.amount(metric, median.value)}"
    return MetricHistory(metric, values, median.value, text if is_worse else None)


def _cost(destination: Destination, run: RunRecord) -> ServingCost | None:
    rates = serving_rates(run.winner, run.parent)
    if not destination.price or not rates:
        return None
    return compare_costs(destination.price, *rates, destination.requests_per_second)


def _days(days: float) -> str:
    """Return a number of days in words, or of hours if it is below two days."""
    return f"{days:.0f} days" if days >= 2 else f"{24 * days:.0f} hours"


def count_versions(states: Sequence[DestinationState]) -> Mapping[str, dict[str, int]]:
    """Return for each library the number of destinations for each of its versions."""
    counts: dict[str, dict[str, int]] = {}
    for state in states:
        for library, version in state.versions.items():
            of_library = counts.setdefault(library, {})
            of_library[version] = of_library.get(version, 0) + 1
    return counts
