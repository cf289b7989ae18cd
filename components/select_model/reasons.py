"""Why each model was chosen or not, in the words a colleague would use."""

from collections.abc import Sequence

from tfopt import wording
from tfopt.components.select_model.choice import is_equal, is_proven
from tfopt.measurements import Measured


def verdict(chosen: Measured, models: Sequence[Measured], objective: str, main_metric: str, *, blessed: bool) -> str:
    """One sentence: which model, and why."""
    if chosen.parent:
        return f"{chosen.name}: {merits(chosen, objective, main_metric)}."
    others = len(models) - 1
    if not blessed:
        return f"{chosen.name}, the parent, stays and is not blessed: neither it nor any candidate meets every goal."
    whom = "the one candidate is not" if others == 1 else f"none of the {others} candidates is"
    return f"{chosen.name}, the parent, stays: {whom} proven better in {wording.title(objective)} within the goals."


def merits(model: Measured, objective: str, main_metric: str) -> str:
    """What a candidate is, next to the parent: speed, quality, size, and the objective where it is none of them."""
    assert model.parent
    speed = pace(model)
    moved = model.change(main_metric)
    between = wording.change_between(main_metric, moved.low, moved.high)
    quality = f"{wording.title(main_metric)} {wording.amount(main_metric, model.value(main_metric))} " + (
        f"({wording.change(main_metric, moved.value)}{f', {between}' if between else ''})"
    )
    size = wording.smaller(model.value("size"), model.parent.value("size"))
    said = [speed, quality, size] if speed else [quality, size]
    if objective not in ("latency", "size", main_metric):
        said.insert(0, f"{wording.title(objective)} {_against(model, model.parent, objective)}")
    return ", ".join(said)


def pace(model: Measured) -> str:
    """How fast, with interval and verdict; empty when it was not compared."""
    ratio = model.speedup(model.small_batch)
    if not ratio:
        return ""
    said = f"{wording.times(ratio['value'])} as fast ({wording.times(ratio['low'])} to {wording.times(ratio['high'])})"
    return said if ratio["verdict"] == "faster" else f"{said}: {ratio['verdict']}"


def not_chosen(model: Measured, chosen: Measured, failures: Sequence[str], objective: str) -> list[str]:
    """Why not this one."""
    if model.error:
        return [f"could not be measured: {model.error}"]
    if failures:
        return [_but(model, failure) for failure in failures]
    if model.parent is None:
        return [f"{chosen.name} is {_better(objective)}: {_against(chosen, model, objective)}"]
    if objective not in model.metrics:
        return [f"{wording.title(objective)} was not measured for it"]
    if not is_proven(model, objective) and chosen.parent is None:
        return [_unproven(model, objective)]
    if is_equal(model, chosen, objective) and is_equal(chosen, model, objective):
        return [
            f"cannot be told from {chosen.name} in {wording.title(objective)}, which is "
            f"{wording.smaller(chosen.value('size'), model.value('size'))}"
        ]
    return [f"{chosen.name} is {_better(objective)}: {_against(chosen, model, objective)}"]


def _but(model: Measured, failure: str) -> str:
    """Say first what speaks for a model that is fast or small, then what it would take."""
    ratio = model.speedup(model.small_batch)
    if ratio and ratio["verdict"] == "faster":
        return f"{wording.times(ratio['value'])} as fast, but {failure}"
    if model.parent and model.value("size") < 0.9 * model.parent.value("size"):
        return f"{wording.smaller(model.value('size'), model.parent.value('size'))}, but {failure}"
    return failure


def _unproven(model: Measured, objective: str) -> str:
    """What was found in place of an improvement, and what may still speak for the model."""
    assert model.parent
    batch = {"latency": model.small_batch, "throughput": model.large_batch}.get(objective)
    ratio = model.speedup(batch) if batch else None
    if ratio:
        ends = f"{wording.times(ratio['low'])} to {wording.times(ratio['high'])}"
        found = f"{wording.times(ratio['value'])} as fast ({ends})"
        said = f"slower: {found}" if ratio["verdict"] == "slower" else f"not proven faster: {found}, {ratio['verdict']}"
    else:
        said = f"not proven {_better(objective)}: {_against(model, model.parent, objective)}"
    if objective != "size" and model.value("size") < 0.9 * model.parent.value("size"):
        return f"{said}; it is {wording.smaller(model.value('size'), model.parent.value('size'))}"
    return said


def _better(objective: str) -> str:
    words = {"latency": "faster", "throughput": "faster", "size": "smaller", "size_gzipped": "smaller when gzipped"}
    return words.get(objective, f"better in {wording.title(objective)}")


def _against(one: Measured, other: Measured, metric: str) -> str:
    return f"{wording.amount(metric, one.value(metric))} against {wording.amount(metric, other.value(metric))}"
