"""What earlier runs measured, where it can be compared with what this one did, and what of all that nothing beats.

Every model was measured beside a parent of its own run, so what is held against each other are the quality gained over
that parent, how many times as fast, and how many times as large it is. They are comparable where
`tfopt.model_store.run_history` says so of two runs: the same task, label and split, the same CPU, threads and batch
sizes. A parent of another format, or whose
size differs by more than `ALIKE`, counts as another model, and nothing of it is taken over.

A parent of other content but the same size was trained again. Its ratios of speed and size carry over; what a recipe
costs in quality is of that training, and on its examples. Such rows say so (``same_parent``, ``same_examples``), and
stand on the front by the change from their own parent.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfopt.artifacts.decision_report import MeasurementConditions
from tfopt.measurement.pareto import non_dominated
from tfopt.model_store import run_history as past

ALIKE = 0.01  # a training again leaves the size of a model as it is, but for names in its graph
PARENT = "the model itself"
KEPT = ("name", "choices", "seconds", "beside_parent", "metrics")

Row = dict[str, Any]


def add_earlier(previous: Mapping[str, Any], content: dict[str, Any]) -> None:
    """Add to a run's ``recipe.json`` what earlier runs measured, and say of each row whether it is on the front of all.

    There is then ``earlier``, of each recipe that this run did not measure the newest measurement; ``left_out``, why
    nothing was taken over from a run that measured something; and ``pareto`` in each row.

    Args:
        previous: The content of the earlier run's ``recipe.json``; empty when there is none.
        content: Of this run's, with ``trials``, ``decision`` and ``examples``.
    """
    content["earlier"], content["left_out"] = _taken_over(previous, content)
    _mark_front([*content["trials"], *content["earlier"]])


def _taken_over(previous: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[list[Row], str]:
    rows = list(_measured(previous))
    if not rows:
        return [], ""
    if differs := _differs(previous["decision"], content["decision"]):
        return [], differs
    own = {row["name"] for row in content["trials"] if row["beside_parent"]}
    parent = _parent(content["decision"])["digest"]
    return [
        {
            **row,
            "same_parent": row["parent"] == parent,
            "same_examples": row["examples"] == content["examples"],
        }
        for row in rows
        if row["name"] not in own
    ], ""


def _measured(previous: Mapping[str, Any]) -> Iterator[Row]:
    """What an earlier run measured and what it had taken over itself; nothing of a version that did not say so."""
    if "examples" not in previous:
        return
    of = {"time": previous["time"], "parent": _parent(previous["decision"])["digest"]}
    of["examples"] = previous["examples"]
    for row in previous["trials"]:
        if row["beside_parent"]:
            yield {name: row[name] for name in KEPT} | of
    for row in previous["earlier"]:
        yield {name: row[name] for name in (*KEPT, *of)}


def _differs(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What keeps the numbers of two runs from being compared; nothing when they can be."""
    before, after = _parent(then), _parent(now)
    conditions = MeasurementConditions.parse(then["conditions"]), MeasurementConditions.parse(now["conditions"])
    metric = next(iter(after["metrics"]))
    if metric not in before["metrics"] or not past.is_comparable(*conditions, metric):
        return "task, label or split were others"
    if not past.is_comparable(*conditions, "latency"):
        return "CPU, threads or batch sizes were others"
    sizes = [parent["metrics"]["size"] for parent in (before, after)]
    alike = before["format"] == after["format"] and abs(sizes[1] - sizes[0]) <= ALIKE * sizes[0]
    if before["digest"] != after["digest"] and not alike:
        return "the model was another one, by its format or size"
    return ""


def _parent(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(row for row in decision["models"] if row["parent"])
    return found


def _mark_front(rows: Sequence[Row]) -> None:
    merits = {PARENT: (0.0, 1.0, -1.0)}
    for row in rows:
        if found := row["beside_parent"]:
            merits[row["name"]] = (found["quality"], found["speed"], -found["size"])
    front = non_dominated(merits)
    for row in rows:
        row["pareto"] = bool(row["beside_parent"]) and row["name"] in front
