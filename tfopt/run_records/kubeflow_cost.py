"""Compute what a run on Kubeflow costs, from the times of its tasks in KFP's API, and what its push saves in a month.

A task's time is that of the step's pods, with the pauses between attempts and the wait for a node. It is priced as a
whole node, so the cost is an upper bound where a step uses a part of one. KFP's own drivers are not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfopt.artifacts import Drift
from tfopt.dag.dag import Dag
from tfopt.errors import ComponentError
from tfopt.model_store.run_history import RunRecord, read_all_runs
from tfopt.model_store.withdrawals import is_served, read_changes
from tfopt.run_records.run_cost import RunCost, add_saving, server_values
from tfopt.run_records.unprofitable_runs import (
    ServingPrice,
    SkipDecision,
    decide_skip,
    destinations_of,
    served_runs,
)
from tfopt.serving.load_generator import SECONDS_PER_HOUR
from tfopt.storage import remote_files


class RunCosts:
    """The prices of a run on Kubeflow, and the run history of its destination before it."""

    def __init__(
        self,
        dag: Dag,
        values: Mapping[str, Any],
        placed: Mapping[str, Mapping[str, str]],
        price: float,
        gpu_price: float | None,
    ) -> None:
        """Take a DAG with its values and the resources of each step, and the prices of nodes without and with GPUs.

        Raises:
            ComponentError: If a step has a GPU, and its node has no price.
        """
        steps = [step for step, options in placed.items() if _has_gpu(options)]
        if steps and not gpu_price:
            received = f"--price without --gpu-price, and a GPU for {', '.join(steps)}"
            raise ComponentError(
                received, "the price of an hour of a node with GPUs", "add for example --gpu-price 3.20"
            )
        self._placed, self._price, self._gpu_price = placed, price, gpu_price
        node, rate = server_values(dag, values)
        destinations = destinations_of(dag, values)
        self._serving = (
            ServingPrice(destinations[0], node or price, rate, price) if rate and len(destinations) == 1 else None
        )
        self._before = _read_history(destinations[0]) if self._serving else ""

    def of(self, run: Any, tasks: Mapping[str, str]) -> RunCost:
        """Return the cost of a run that ended, as KFP's API describes it, and what its push saves.

        The tasks are KFP's names by the ids of the steps.
        """
        cost = self._pods(run, tasks)
        return _add_saving(cost, self._serving, self._before) if self._serving else cost

    def decide_skip(self, last: Any, tasks: Mapping[str, str], drift: Drift) -> SkipDecision:
        """Return whether to skip a run that costs as much as the last one, if there is one."""
        assert self._serving is not None  # checked with the options
        if isinstance(self._before, str):
            return SkipDecision(False, f"not skipped: {self._before}")
        cost = self._pods(last, tasks) if last else RunCost(self._price, 0.0, 0.0)
        return decide_skip(self._serving, drift, cost.hours * SECONDS_PER_HOUR, cost.total)

    def _pods(self, run: Any, tasks: Mapping[str, str]) -> RunCost:
        """Return the cost of the pods. A step whose result is cached has a task of no time, or none."""
        hours = {True: 0.0, False: 0.0}
        for step, options in self._placed.items():
            hours[_has_gpu(options)] += _task_seconds(run, tasks[step]) / SECONDS_PER_HOUR
        total = hours[False] * self._price + hours[True] * (self._gpu_price or self._price)
        gpu_price = self._gpu_price if hours[True] else None
        return RunCost(
            self._price, sum(hours.values()), total, gpu_price=gpu_price, gpu_hours=hours[True], is_bound=True
        )


def _has_gpu(options: Mapping[str, str]) -> bool:
    return options.get("gpu", "0") != "0"


def _task_seconds(run: Any, name: str) -> float:
    """Return the time from the start of a task to its end, or the end of the run if it was stopped with it."""
    details = (run.run_details.task_details if run.run_details else None) or []
    tasks = [task for task in details if task.display_name == name and str(task.state) != "SKIPPED"]
    starts = [task.start_time for task in tasks if task.start_time]
    ends = [end for task in tasks if (end := task.end_time)]
    if not starts:
        return 0.0
    end = max(ends, default=None)
    if end is None or end < min(starts):  # Argo's time of a task that did not end is that of the year 1
        end = run.finished_at or min(starts)
    return max(0.0, float((end - min(starts)).total_seconds()))


def _read_history(destination: str) -> list[RunRecord] | str:
    """Return the runs of a destination; why they are unknown if this machine cannot read it."""
    if not remote_files.is_remote(destination) and not remote_files.local_path(destination).is_dir():
        return f"{destination} is no folder of this machine"
    try:
        return read_all_runs(destination)
    except (ComponentError, OSError) as error:
        return error.received if isinstance(error, ComponentError) else str(error)


def _add_saving(cost: RunCost, serving: ServingPrice, before: Sequence[RunRecord] | str) -> RunCost:
    """Add what the version of a run saves, which is the one whose record the history did not have before the run."""
    after = _read_history(serving.destination)
    if isinstance(before, str) or isinstance(after, str):
        return replace(cost, unknown=before if isinstance(before, str) else str(after))
    earlier = {run.decision for run in before}
    new = [run for run in after if run.decision not in earlier]
    if len(new) > 1:
        return replace(cost, unknown=f"{len(new)} runs wrote to {serving.destination} meanwhile")
    changes = read_changes(serving.destination)
    previous = max((run.version or 0 for run in served_runs(before, changes)), default=None)
    if not new or new[0].version in (None, previous) or not is_served(changes.get(new[0].version or 0, ())):
        return cost
    return add_saving(cost, after, new[0], previous, serving.node, serving.rate)
