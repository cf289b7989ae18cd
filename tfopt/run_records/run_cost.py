"""Compute what a run cost, and what the model that it pushed saves in a month."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfopt import formatting
from tfopt.artifacts import Decision, Pushed
from tfopt.dag.dag import LOADED, Dag
from tfopt.dag.outcome import Outcome
from tfopt.errors import ComponentError
from tfopt.model_store.run_history import CAPACITY, RunRecord, is_comparable, read_all_runs, serving_rates
from tfopt.reports.pushed_report import PushedReport
from tfopt.serving.load_generator import HOURS_PER_MONTH, SECONDS_PER_HOUR, ServingCost, compare_costs


@dataclass(frozen=True)
class RunCost:
    """The cost of a run, and the saving by the version that it pushed."""

    price: float  # of an hour of this machine
    hours: float  # of the steps that were not reused, at most those of the run
    total: float
    version: int | None = None  # the pushed version; None if its saving is unknown
    compared_with: str = ""  # the version that was served before, or the baseline
    rate: float | None = None  # requests per second that the nodes are for
    serving: ServingCost | None = None  # of the pushed version, next to the other
    paid_after_days: float | None = None  # when the savings reach the cost of the run; None if there are none
    unknown: str = ""  # why the saving of a new version is unknown
    # of a run on Kubeflow, whose cost is an upper bound
    gpu_price: float | None = None  # of an hour of a node with GPUs
    gpu_hours: float = 0.0  # of those hours, on such nodes
    is_bound: bool = False


def compute_cost(
    dag: Dag, values: Mapping[str, Any], outcomes: Mapping[str, Outcome], seconds: float, price: float | None
) -> RunCost | None:
    """Return the cost of a run that took a number of seconds, and of what it pushed; None without a price.

    The price of this machine is by default that of a node of the server, a parameter of `benchmark`.
    """
    node_price, rate = server_values(dag, values)
    price = price or node_price
    if not price:
        return None
    worked = sum(outcome.seconds for outcome in outcomes.values() if not outcome.reused)
    hours = min(worked, seconds) / SECONDS_PER_HOUR  # steps side by side share the machine
    cost = RunCost(price, hours, hours * price)
    artifacts = [output for outcome in outcomes.values() for output in outcome.outputs.values()]
    decisions = [artifact for artifact in artifacts if isinstance(artifact, Decision)]
    pushes = [artifact.load() for artifact in artifacts if isinstance(artifact, Pushed)]
    if not rate or len(decisions) != 1 or len(pushes) != 1:
        return cost
    try:
        return _add_saving(cost, decisions[0], pushes[0], node_price or price, rate)
    except (ComponentError, OSError) as error:  # the run has pushed its model, and has not failed
        return replace(cost, unknown=error.received if isinstance(error, ComponentError) else str(error))


def server_values(dag: Dag, values: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the price of a node and the rate of requests that the pipeline passes to `benchmark`."""
    for step in dag.steps.values():
        if set(LOADED) <= step.component.parameters.keys():
            return step.value("price", values), step.value("rate", values)
    return None, None


def _add_saving(cost: RunCost, decision: Decision, pushed: PushedReport, price: float, rate: float) -> RunCost:
    """Add what a new version that gets all requests saves, by the records of the destination's run history."""
    if not pushed.pushed or pushed.canary or pushed.version == pushed.previous:
        return cost
    digest = hashlib.sha256((decision.path / Decision.file).read_bytes()).hexdigest()
    runs = read_all_runs(pushed.destination)
    own = next((run for run in runs if run.decision == digest), None)
    if own is None:  # push_model got no decision
        return cost
    # The record of an earlier run with this decision may be of a run that pushed nothing.
    own = replace(own, version=pushed.version, blessed=not pushed.fallback)
    return add_saving(cost, runs, own, pushed.previous, price, rate)


def add_saving(
    cost: RunCost, runs: Sequence[RunRecord], own: RunRecord, previous: int | None, price: float, rate: float
) -> RunCost:
    """Add what the version of a run saves, compared with the previous version, else with the baseline."""
    model, other, name = own.pushed_model, own.parent, f"the baseline {own.parent.name}"
    for run in reversed(runs):
        if run.version is not None and run.version == previous:
            if is_comparable(run.conditions, own.conditions, CAPACITY) and serving_rates(model, run.pushed_model):
                other, name = run.pushed_model, f"version {run.version}"
            break
    rates = serving_rates(model, other)
    if model is other:
        return cost
    if rates is None:
        return replace(cost, unknown=f"the speed of {model.name} and {name} was not measured, or was disturbed")
    serving = compare_costs(price, *rates, rate)
    saved = serving.saved_per_month or 0.0
    days = cost.total / saved * HOURS_PER_MONTH / 24 if saved > 0 else None
    return replace(cost, version=own.version, compared_with=name, rate=rate, serving=serving, paid_after_days=days)


def describe_cost(cost: RunCost) -> list[str]:
    """Return the cost of a run, and what its push saves, as lines of text."""
    time, gpu_time = (formatting.duration(hours * SECONDS_PER_HOUR) for hours in (cost.hours, cost.gpu_hours))
    terms = [f"{time} of steps that were not reused", f"{cost.price:g} an hour"]
    if cost.gpu_price:
        terms.append(f"{cost.gpu_price:g} for {gpu_time} with a GPU")
    total = f"{'at most ' if cost.is_bound else ''}{money(cost.total)}"
    lines = [f"cost of this run: {total} ({', '.join(terms)})"]
    if cost.unknown:
        lines.append(f"what the push saves is unknown: {cost.unknown}")
    if (serving := cost.serving) is None or serving.saved_per_month is None:
        return lines
    needed = formatting.counted(serving.nodes or 0, "node")
    nodes = f"{needed} instead of {serving.baseline_nodes} at {cost.rate:g} requests per second"
    saved = serving.saved_per_month
    if saved > 0:
        what = f"saves {money(saved)} in a month"
    else:
        what = f"costs {money(-saved)} more in a month" if saved else "saves nothing"
    lines.append(f"version {cost.version} {what}, compared with {cost.compared_with}: {nodes}")
    if (days := cost.paid_after_days) is not None:
        paid = f"{days:,.0f} days" if days >= 2 else formatting.duration(days * 24 * SECONDS_PER_HOUR)
        lines.append(f"this run has paid for itself after {paid}")
    return lines


def money(value: float) -> str:
    """Format a sum of money, whose currency is that of the price."""
    return formatting.amount("cost", value)
