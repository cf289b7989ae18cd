"""Compare the expected saving of the next run of a destination with its expected cost, and decide whether to skip it.

The saving is that in nodes that serve the model in a month, estimated by Laplace's rule of succession ("Essai
philosophique sur les probabilités", 1814, principle VII): the mean of the runs so far, and of one more run that saves a
node. So the runs of a destination cost at most what they saved in a month, plus the price of one node for a month. The
quality of a model has no price: a run is skipped only if `check_drift` found no reason for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tfopt import formatting
from tfopt.artifacts import Drift, Model
from tfopt.dag.dag import Dag
from tfopt.dag.policy_checks import PUSH
from tfopt.errors import ComponentError
from tfopt.model_store.run_history import CAPACITY, THROUGHPUT, RunRecord, is_comparable, read_all_runs
from tfopt.model_store.withdrawals import Changes, is_served, read_changes
from tfopt.run_records.run_cost import money, server_values
from tfopt.serving.load_generator import HOURS_PER_MONTH, SECONDS_PER_HOUR, cost_per_month, possible_saving
from tfopt.storage import remote_files

OPTION = "--skip-unprofitable"
SKIPPED = 8  # exit code of a run that was skipped
FEWEST_RUNS = 5  # that say something about the next one
OLDEST_DRIFT = timedelta(days=7)


@dataclass(frozen=True)
class ServingPrice:
    """The destination of a pipeline, and what its nodes cost."""

    destination: str
    node: float  # price of a node of the server for an hour
    rate: float  # requests per second
    machine: float  # price of an hour of the machine of the run


@dataclass(frozen=True)
class ExpectedSaving:
    """The expected saving of the next run in a month; None if nothing is known about it."""

    value: float | None
    reason: str


@dataclass(frozen=True)
class SkipDecision:
    """The decision to skip a run or not, and its reason."""

    skip: bool
    text: str


def find_price(dag: Dag, values: Mapping[str, Any], price: float | None) -> ServingPrice:
    """Return destination, prices and rate of a run; raise ComponentError if one of them is missing."""
    node, rate = server_values(dag, values)
    destinations = destinations_of(dag, values)
    if len(destinations) != 1:
        received = f"{OPTION} for {dag.name}, which pushes to {len(destinations)} destinations"
        raise ComponentError(received, "a pipeline that pushes to one destination", f"leave {OPTION} out")
    if not rate or not (node or price):
        received = f"{OPTION} without {'rate' if not rate else 'a price'}"
        fix = f"add --set rate=300 --set price=0.36 (and max_p99_ms for capacities), or leave {OPTION} out"
        raise ComponentError(received, "a rate of requests per second and the price of a node for an hour", fix)
    return ServingPrice(destinations[0], node or price or 0.0, rate, price or node or 0.0)


def destinations_of(dag: Dag, values: Mapping[str, Any]) -> list[str]:
    """Return the destinations that a pipeline pushes to."""
    pushes = [step for step in dag.steps.values() if step.component.name == PUSH]
    return list(dict.fromkeys(str(value) for step in pushes if (value := step.value("destination", values))))


def decide_skip(price: ServingPrice, drift: Drift, seconds: float, cost: float | None = None) -> SkipDecision:
    """Return whether to skip a run whose steps take a number of seconds, by the run history of its destination.

    The cost is by default that of the machine for this time.

    Raises:
        ComponentError: If the run history or the result of `check_drift` cannot be read.
    """
    changes = read_changes(price.destination)
    runs = read_all_runs(price.destination)
    served = served_runs(runs, changes)
    if reason := _find_quality_reason(price.destination, drift, served):
        return SkipDecision(False, f"not skipped: {reason}")
    saving = estimate_saving(runs, changes, price.node, price.rate)
    if saving.value is None:
        return SkipDecision(False, f"not skipped: {saving.reason}")
    cost = seconds / SECONDS_PER_HOUR * price.machine if cost is None else cost
    if not cost:
        return SkipDecision(False, "not skipped: its steps are reused, or there is no earlier time of them")
    skip = saving.value < cost
    text = (
        f"{'skipped' if skip else 'not skipped'}: the expected cost of this run is {money(cost)} "
        f"({formatting.duration(seconds)}), its expected saving {money(saving.value)} in a month at {price.rate:g} "
        f"requests per second: {saving.reason}"
    )
    return SkipDecision(skip, text)


def served_runs(runs: Sequence[RunRecord], changes: Changes) -> list[RunRecord]:
    """Return the runs whose version was pushed to all and not withdrawn, by their version."""
    pushed = (run for run in runs if run.version is not None and is_served(changes.get(run.version, ())))
    return sorted(pushed, key=lambda run: (run.version or 0, run.time))


def estimate_saving(runs: Sequence[RunRecord], changes: Changes, price: float, rate: float) -> ExpectedSaving:
    """Estimate what the next run saves in a month, from the runs so far, those that pushed nothing included.

    Two means are taken, and the larger one counts: of what the runs changed, for versions that become faster one after
    the other; and of what each earlier version would save in place of the served one, which may be a slow one by
    chance. No run can save more than all nodes but one.
    """
    served = served_runs(runs, changes)
    if not served:
        return ExpectedSaving(None, "there is no run history here with a version that is served")
    newest, last = served[-1], max(run.version or 0 for run in runs)
    if last != newest.version:
        return ExpectedSaving(None, f"version {last} was withdrawn, or is a canary")
    metric = CAPACITY if newest.pushed_model.undisturbed(CAPACITY) else THROUGHPUT
    capacity = newest.pushed_model.undisturbed(metric)
    if not capacity:
        return ExpectedSaving(None, f"the speed of version {newest.version} was not measured, or was disturbed")
    comparable = [run for run in served if is_comparable(run.conditions, newest.conditions, metric)]
    capacities = [value for run in comparable if (value := run.pushed_model.undisturbed(metric))]
    months = [cost_per_month(price, rate, value) for value in capacities]
    without_push = sum(run.version is None and run.time > comparable[0].time for run in runs)
    count = len(months) - 1 + without_push
    possible, node = possible_saving(price, rate, capacity), price * HOURS_PER_MONTH
    nodes = f"version {newest.version} needs {formatting.counted(round(months[-1] / node), 'node')}"
    if not possible:
        return ExpectedSaving(0.0, f"{nodes}, and no model needs fewer")
    if count < FEWEST_RUNS:
        few = f"{formatting.counted(count, 'run')} after the first push, and {FEWEST_RUNS} are needed to expect less"
        return ExpectedSaving(possible, f"{nodes}, {few}")
    changed, repeated = months[0] - months[-1], sum(months[-1] - month for month in months)
    saving = min((max(changed, repeated, 0.0) + node) / (count + 1), possible)
    history = f"{count} runs changed the cost from {money(months[0])} to {money(months[-1])} in a month"
    return ExpectedSaving(saving, f"{nodes}; {history}, {without_push} of them without a push")


def _newest_result(drift: Drift) -> Drift:
    """Return the newest result about the same model in the same folder, which may have one for each day."""
    digest = drift.load().digest
    results = [Drift(file.parent) for file in drift.path.absolute().parent.glob(f"*/{Drift.file}")]
    return max((each for each in results if each.load().digest == digest), key=lambda each: each.load().time)


def _find_quality_reason(destination: str, drift: Drift, served: Sequence[RunRecord]) -> str:
    """Return why a run may be there for the quality of the model; empty if `check_drift` found no reason."""
    drift = _newest_result(drift)
    report = drift.load()
    if report.decision != "nothing":
        return f"check_drift decided {report.decision} ({drift.path})"
    if not report.time or datetime.now(UTC) - datetime.fromisoformat(report.time) > OLDEST_DRIFT:
        return f"the result of check_drift is older than {OLDEST_DRIFT.days} days ({drift.path})"
    if served:
        version = remote_files.join(destination, str(served[-1].version))
        try:
            digest = Model.open(remote_files.local_copy(version)).digest
        except (ComponentError, OSError) as error:
            return f"version {served[-1].version} cannot be read: {getattr(error, 'received', error)}"
        if digest != report.digest:
            return f"check_drift compared another model than version {served[-1].version} ({drift.path})"
    return ""
