"""Why each model was chosen or not, in the words a colleague would use."""

from collections.abc import Sequence

from tfopt import formatting as wording
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.measurement.ranking import is_indistinguishable, is_significantly_better

LONG = 24  # letters in a name that is not said again in the reason of each other model


def verdict(
    chosen: ModelMeasurements, models: Sequence[ModelMeasurements], objective: str, main_metric: str, *, blessed: bool
) -> str:
    """One sentence: which model, and why."""
    if chosen.parent:
        return f"{chosen.name}: {merits(chosen, objective, main_metric)}."
    others = len(models) - 1
    if not blessed:
        return f"{chosen.name}, the parent, stays and is not blessed: neither it nor any candidate meets every goal."
    whom = "the one candidate is not" if others == 1 else f"none of the {others} candidates is"
    return f"{chosen.name}, the parent, stays: {whom} proven better in {wording.title(objective)} within the goals."


def merits(model: ModelMeasurements, objective: str, main_metric: str) -> str:
    """What a candidate is, next to the parent: speed, quality, size, and the objective where it is none of them."""
    assert model.parent
    speed = pace(model)
    moved = model.change(main_metric)
    between = wording.change_interval(main_metric, moved.low, moved.high)
    quality = f"{wording.title(main_metric)} {wording.amount(main_metric, model.value(main_metric))} " + (
        f"({wording.change(main_metric, moved.value)}{f', {between}' if between else ''})"
    )
    size = wording.relative_size(model.value("size"), model.parent.value("size"))
    said = [speed, quality, size] if speed else [quality, size]
    if objective not in ("latency", "size", main_metric):
        said.insert(0, f"{wording.title(objective)} {_against(model, model.parent, objective)}")
    return ", ".join(said)


def pace(model: ModelMeasurements) -> str:
    """How fast, with interval and verdict; empty when it was not compared."""
    ratio = model.speedup(model.small_batch)
    if not ratio:
        return ""
    said = f"{wording.ratio(ratio['value'])} as fast ({wording.ratio(ratio['low'])} to {wording.ratio(ratio['high'])})"
    return said if ratio["verdict"] == "faster" else f"{said}: {ratio['verdict']}"


def not_chosen(
    model: ModelMeasurements,
    chosen: ModelMeasurements,
    failures: Sequence[tuple[str, str]],
    objective: str,
    *,
    proof: bool,
) -> list[str]:
    """Why not this one.

    Args:
        model: The one that is not chosen.
        chosen: The one that is.
        failures: The metric of each goal that the model misses, and how it does.
        objective: What the chosen one is best at.
        proof: Whether it had to be proven better than the parent, which meets the goals itself.
    """
    winner = chosen.name if len(chosen.name) <= LONG else "the chosen one"
    if model.error:
        return [f"could not be measured: {' '.join(model.error.split())}"]
    if failures:
        first, *more = failures
        return [_but(model, *first), *(said for _, said in more)]
    if model.parent is None:
        return [f"{winner} is {_better(objective)}: {_against(chosen, model, objective)}"]
    if objective not in model.metrics:
        return [f"{wording.title(objective)} was not measured for it"]
    if proof and not is_significantly_better(model, objective):
        return [_unproven(model, objective)]
    if is_indistinguishable(model, chosen, objective) and is_indistinguishable(chosen, model, objective):
        size = wording.relative_size(chosen.value("size"), model.value("size"))
        return [f"cannot be told from {winner} in {wording.title(objective)}; {winner} is {size}"]
    return [f"{winner} is {_better(objective)}: {_against(chosen, model, objective)}"]


def _but(model: ModelMeasurements, metric: str, failure: str) -> str:
    """Say first what speaks for a model that is fast or small, then what it would take."""
    ratio = model.speedup(model.small_batch)
    if ratio and ratio["verdict"] == "faster" and not metric.startswith(("latency", "throughput")):
        return f"{wording.ratio(ratio['value'])} as fast, but {failure}"
    if model.parent and _is_small(model) and not metric.startswith("size"):
        return f"{wording.relative_size(model.value('size'), model.parent.value('size'))}, but {failure}"
    return failure


def _is_small(model: ModelMeasurements) -> bool:
    return bool(model.parent and model.value("size") < 0.9 * model.parent.value("size"))


def _unproven(model: ModelMeasurements, objective: str) -> str:
    """What was found in place of an improvement, and what may still speak for the model."""
    assert model.parent
    batch = {"latency": model.small_batch, "throughput": model.large_batch}.get(objective)
    ratio = model.speedup(batch) if batch else None
    if ratio:
        ends = f"{wording.ratio(ratio['low'])} to {wording.ratio(ratio['high'])}"
        found = f"{wording.ratio(ratio['value'])} as fast ({ends})"
        said = f"slower: {found}" if ratio["verdict"] == "slower" else f"not proven faster: {found}, {ratio['verdict']}"
    else:
        said = f"not proven {_better(objective)}: {_against(model, model.parent, objective)}"
    if objective != "size" and _is_small(model):
        return f"{said}; it is {wording.relative_size(model.value('size'), model.parent.value('size'))}"
    return said


def _better(objective: str) -> str:
    words = {"latency": "faster", "throughput": "faster", "size": "smaller", "size_gzipped": "smaller when gzipped"}
    return words.get(objective, f"better in {wording.title(objective)}")


def _against(one: ModelMeasurements, other: ModelMeasurements, metric: str) -> str:
    return f"{wording.amount(metric, one.value(metric))} against {wording.amount(metric, other.value(metric))}"
