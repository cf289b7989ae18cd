"""Compute what a run cost, and what the model that it pushed saves in a month."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfopt import formatting
from tfopt.artifacts import Decision, Pushed
from tfopt.dag.dag import LOADED, Dag
from tfopt.dag.outcome import Outcome
from tfopt.errors import ComponentError
from tfopt.model_store.run_history import CAPACITY, is_comparable, read_all_runs, serving_rates
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


def compute_cost(
    dag: Dag, values: Mapping[str, Any], outcomes: Mapping[str, Outcome], seconds: float, price: float | None
) -> RunCost | None:
    """Return the cost of a run that took a number of seconds, and of what it pushed; None without a price.

    The price of this machine is by default that of a node of the server, a parameter of `benchmark`.
    """
    node_price, rate = _server_values(dag, values)
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


def _server_values(dag: Dag, values: Mapping[str, Any]) -> tuple[float | None, float | None]:
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
    model, other, name = own.parent if pushed.fallback else own.winner, own.parent, f"the baseline {own.parent.name}"
    for run in reversed(runs):
        if run.version is not None and run.version == pushed.previous:
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
    return replace(cost, version=pushed.version, compared_with=name, rate=rate, serving=serving, paid_after_days=days)


def describe_cost(cost: RunCost) -> list[str]:
    """Return the cost of a run, and what its push saves, as lines of text."""
    time = formatting.duration(cost.hours * SECONDS_PER_HOUR)
    lines = [f"cost of this run: {_money(cost.total)} ({time} of steps that were not reused, {cost.price:g} an hour)"]
    if cost.unknown:
        lines.append(f"what the push saves is unknown: {cost.unknown}")
    if (serving := cost.serving) is None or serving.saved_per_month is None:
        return lines
    nodes = f"{_nodes(serving.nodes)} instead of {serving.baseline_nodes} at {cost.rate:g} requests per second"
    saved = serving.saved_per_month
    if saved > 0:
        what = f"saves {_money(saved)} in a month"
    else:
        what = f"costs {_money(-saved)} more in a month" if saved else "saves nothing"
    lines.append(f"version {cost.version} {what}, compared with {cost.compared_with}: {nodes}")
    if (days := cost.paid_after_days) is not None:
        paid = f"{days:,.0f} days" if days >= 2 else formatting.duration(days * 24 * SECONDS_PER_HOUR)
        lines.append(f"this run has paid for itself after {paid}")
    return lines


def _money(value: float) -> str:
    return formatting.amount("cost", value)


def _nodes(count: int | None) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
