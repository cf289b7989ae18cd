"""From the sums over all records to ``evaluation.json``."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfopt.artifacts import Model
from tfopt.components.evaluate.accumulators import Sums, Totals
from tfopt.components.evaluate.bootstrap import LEVEL, interval
from tfopt.components.evaluate.calibration_overlap import complaint, notes
from tfopt.components.evaluate.confusion import roc
from tfopt.components.evaluate.metrics import HIGHER_IS_BETTER, auc
from tfopt.components.evaluate.plan import Plan
from tfopt.components.evaluate.splits import chosen_on_it
from tfopt.errors import ComponentError


def check_conserved(expected: int, totals: Totals, names: list[str]) -> None:
    """Raise ComponentError unless each record was read once, and skipped or answered by each sound model.

    A runner that loses or repeats work says nothing; the numbers would only be a little wrong.
    """
    fix = "run it again; if it happens again, on another runner (Beam's own: no --runner)"
    if totals.read != expected:
        raise ComponentError(
            f"{totals.read} records read",
            f"the {expected} that the split holds",
            f"{fix}; or the files have changed",
        )
    skipped = sum(totals.skipped.values())
    if skipped == totals.read:
        why = ", ".join(f"{count} x {reason}" for reason, count in totals.skipped.items())
        raise ComponentError(
            f"all {skipped} records skipped: {why}", "records that can be used", "prepare the examples again"
        )
    for number, name in enumerate(names):
        if number not in totals.failures and skipped + totals.answered[number] != totals.read:
            raise ComponentError(
                f"{name}: {totals.answered[number]} records evaluated and {skipped} skipped",
                f"together the {totals.read} that were read",
                fix,
            )


def summarize(
    plan: Plan, totals: Totals, models: list[Model], names: list[str], named: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the content of ``evaluation.json``; ``named`` are the classes' names, where the examples know them.

    Raises:
        ComponentError: When the baseline failed, or its answers are not finite.
    """
    errors = [_error(plan, totals, number, model) for number, model in enumerate(models)]
    if errors[0]:
        raise ComponentError(
            f"baseline {names[0]}: {errors[0]}",
            "a baseline that answers every record",
            "mend it, or compare with another model",
        )
    question, skipped = plan.question, sum(totals.skipped.values())
    return {
        "split": question.split,
        "chosen_on_it": chosen_on_it(models, names, question.split),
        "label": question.label,
        "task": plan.scoring.task,
        "output": plan.output,
        "output_kind": _output_kind(plan),
        "classes": _class_names(plan, totals, named),
        "counts": {
            "read": totals.read,
            "evaluated": totals.read - skipped,
            "skipped": skipped,
            "skipped_because": dict(totals.skipped),
        },
        "interval": {
            "method": "poisson bootstrap",
            "replicates": question.replicates,
            "level": LEVEL,
            "seed": question.seed,
        },
        "baseline": names[0],
        "models": [
            {
                "name": names[number],
                "digest": models[number].digest,
                "format": models[number].format,
                "error": errors[number],
                "notes": notes(models[number], totals.met.get(number, ()), question.split),
                **_row(plan, totals, number, sound=errors[number] is None),
            }
            for number in range(len(models))
        ],
    }


def _error(plan: Plan, totals: Totals, number: int, model: Model) -> str | None:
    if number in totals.failures:
        return totals.failures[number][1]
    if said := complaint(model, totals.met.get(number, ()), plan.question.split):
        return said
    if totals.broken[number]:
        return f"NaN or infinity in {totals.broken[number]} of {totals.answered[number]} answers"
    return None


def _output_kind(plan: Plan) -> str:
    if plan.scoring.task == "regression":
        return "numbers"
    return "logits" if plan.scoring.logits else "probabilities"


def _class_names(plan: Plan, totals: Totals, named: Sequence[str]) -> list[str]:
    """The names of the rows and columns of each confusion matrix; none where there is no matrix."""
    count = 0 if totals.confusion is None else totals.confusion.shape[1]
    return list(named) if len(named) == count else [str(number) for number in range(count)]


def _row(plan: Plan, totals: Totals, number: int, *, sound: bool) -> dict[str, Any]:
    if not sound:
        return {"metrics": {}, "delta": {}, "parity": {}, "confusion": [], "roc": [], "slices": []}
    keys = sorted((key for key in totals.sums if key), key=lambda key: (key[0], str(type(key[1])), key[1]))
    return {
        **_judged(plan, totals.sums[None], number),
        "parity": _parity(plan, totals, number) if number else {},
        "confusion": [] if totals.confusion is None else totals.confusion[number].tolist(),
        "roc": [] if (ranked := totals.sums[None].histogram) is None else roc(ranked[number]),
        "slices": [
            {
                "feature": key[0],
                "value": key[1],
                "count": totals.sums[key].records,
                **_judged(plan, totals.sums[key], number),
            }
            for key in keys
        ],
    }


def _parity(plan: Plan, totals: Totals, number: int) -> dict[str, Any]:
    found = totals.differences
    classes = plan.scoring.task != "regression"
    return {
        "max_abs_error": float(found.largest[number]),
        "mean_abs_error": float(found.total[number] / found.numbers[number]),
        "agreement": float(found.agreeing[number] / found.records[number]) if classes else None,
    }


def _judged(plan: Plan, sums: Sums, number: int) -> dict[str, Any]:
    """A model's metrics over one set of records, and their differences to the baseline's."""
    metrics, deltas = {}, {}
    for name, (value, replicates), (parent, parent_replicates), more in _measured(plan, sums, number):
        metrics[name] = _with_interval(value, replicates) | {"higher_is_better": _higher_is_better(name)} | more
        if number:
            deltas[name] = _with_interval(value - parent, replicates - parent_replicates)
    return {"metrics": metrics, "delta": deltas}


def _measured(plan: Plan, sums: Sums, number: int) -> Iterator[tuple[str, Any, Any, dict[str, float]]]:
    """Yield each metric's name, its value and replicates, the baseline's, and what else is to say of it."""
    with np.errstate(invalid="ignore", divide="ignore"):
        resampled = sums.resampled / sums.weight
    for index, name in enumerate(plan.scoring.metrics):
        own, parent = (
            (float(sums.total[model, index] / sums.records), resampled[model, index]) for model in (number, 0)
        )
        yield name, own, parent, {}
    if sums.histogram is None or sums.resampled_histogram is None:
        return
    area, resolution = auc(sums.histogram[[number, 0]])
    if np.isnan(area).any():  # a slice in which one of the classes does not occur has no ROC curve
        return
    own, parent = ((float(area[index]), _auc_replicates(sums, model)) for index, model in enumerate((number, 0)))
    yield "auc", own, parent, {"resolution": float(resolution[0])}


def _auc_replicates(sums: Sums, model: int) -> Any:
    assert sums.resampled_histogram is not None
    return auc(np.moveaxis(sums.resampled_histogram[model], -1, 0))[0]


def _with_interval(value: float, replicates: Any) -> dict[str, Any]:
    low, high = interval(replicates) or (value, value)
    return {"value": value, "low": low, "high": high}


def _higher_is_better(name: str) -> bool:
    return name.endswith("accuracy") or name in HIGHER_IS_BETTER
