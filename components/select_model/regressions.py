"""This run beside the last blessed ones: what is worse than it used to be."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.model_store.run_history import MIN_RUNS, PARENT, WINNER, Role, RunHistory


def trends(
    past: RunHistory, winner: ModelMeasurements, parent: ModelMeasurements, watched: Sequence[Goal]
) -> dict[str, Any]:
    """Hold the winner against earlier winners, and the parent against earlier parents.

    Returns:
        ``runs``: each earlier run's time, version and names, oldest first. ``trends``: of each watched metric what they
        had, what this run has, and the sentence that flags it, if any. ``regressions``: those sentences.
    """
    who: list[tuple[Role, ModelMeasurements]] = [(WINNER, winner), (PARENT, parent)]
    found = [_trend(past, role, model, goal) for goal in watched for role, model in who]
    return {
        "runs": [
            {"time": run["time"], "version": run.get("version"), **{role: run[role]["name"] for role, _ in who}}
            for run in past.runs
        ],
        "fewest": MIN_RUNS,
        "trends": found,
        "regressions": [
            f"the {trend['who']} {trend['name']} {trend['regression']}" for trend in found if trend["regression"]
        ],
    }


def _trend(past: RunHistory, role: Role, model: ModelMeasurements, goal: Goal) -> dict[str, Any]:
    if goal.kind == "max_regression":
        goal = replace(goal, reference=past.reference(role, goal.metric))
    estimate = model.metrics.get(goal.metric)
    return {
        "goal": goal.text,
        "metric": goal.metric,
        "who": role,
        "name": model.name,
        "earlier": past.values(role, goal.metric),
        "value": estimate.value if estimate else None,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "median": goal.reference.value if goal.reference else None,
        "regression": goal.failure(model, proven=True, examples=0) if estimate else None,
    }
