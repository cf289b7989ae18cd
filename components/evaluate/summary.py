"""Report of an evaluation from the sums over all records."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfopt.artifacts import Model
from tfopt.artifacts.evaluation_report import (
    Estimate,
    EvaluationReport,
    IntervalMethod,
    Metric,
    ModelEvaluation,
    RecordCounts,
    SliceMetrics,
)
from tfopt.components.evaluate.accumulators import Slice, Sums, Totals
from tfopt.components.evaluate.bootstrap import LEVEL, percentile_interval
from tfopt.components.evaluate.calibration_overlap import overlap_error, overlap_notes
from tfopt.components.evaluate.metrics import HIGHER_IS_BETTER, auc, roc
from tfopt.components.evaluate.plan import Plan
from tfopt.components.evaluate.splits import models_tuned_on
from tfopt.errors import ComponentError


def check_counts(expected: int, totals: Totals, names: list[str]) -> None:
    """Raise ComponentError unless each record was read once, and skipped or predicted by each model that works.

    A Beam runner that loses or repeats work raises no error; the metrics would only be slightly wrong.
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
        reasons = ", ".join(f"{count} x {reason}" for reason, count in totals.skipped.items())
        raise ComponentError(
            f"all {skipped} records skipped: {reasons}", "records that can be used", "prepare the examples again"
        )
    for number, name in enumerate(names):
        if number not in totals.failures and skipped + totals.answered[number] != totals.read:
            raise ComponentError(
                f"{name}: {totals.answered[number]} records evaluated and {skipped} skipped",
                f"together the {totals.read} that were read",
                fix,
            )


def summarize(
    plan: Plan, totals: Totals, models: list[Model], names: list[str], class_names: Sequence[str] = ()
) -> EvaluationReport:
    """Return the report; ``class_names`` come from the examples, if they contain them.

    Raises:
        ComponentError: If the baseline failed, or its predictions are not finite.
    """
    errors = [_error(plan, totals, number, model) for number, model in enumerate(models)]
    if errors[0]:
        raise ComponentError(
            f"baseline {names[0]}: {errors[0]}",
            "a baseline with finite predictions for every record",
            "fix it, or compare with another model",
        )
    settings, skipped = plan.settings, sum(totals.skipped.values())
    return EvaluationReport(
        split=settings.split,
        chosen_on_it=models_tuned_on(models, names, settings.split),
        label=settings.label,
        task=plan.scoring.task,
        output=plan.output,
        output_kind=_output_kind(plan),
        classes=_class_names(totals, class_names),
        counts=RecordCounts(totals.read, totals.read - skipped, skipped, dict(totals.skipped)),
        interval=IntervalMethod("poisson bootstrap", settings.replicates, LEVEL, settings.seed),
        baseline=names[0],
        models=[
            ModelEvaluation(
                name=names[number],
                digest=model.digest,
                format=model.format,
                error=errors[number],
                notes=overlap_notes(model, totals.overlap.get(number, ()), settings.split),
                **_results(plan, totals, number, has_failed=errors[number] is not None),
            )
            for number, model in enumerate(models)
        ],
    )


def _error(plan: Plan, totals: Totals, number: int, model: Model) -> str | None:
    if number in totals.failures:
        return totals.failures[number][1]
    if error := overlap_error(model, totals.overlap.get(number, ()), plan.settings.split):
        return error
    if totals.broken[number]:
        return f"NaN or infinity in {totals.broken[number]} of {totals.answered[number]} predictions"
    return None


def _output_kind(plan: Plan) -> str:
    if plan.scoring.task == "regression":
        return "numbers"
    return "logits" if plan.scoring.is_logits else "probabilities"


def _class_names(totals: Totals, names: Sequence[str]) -> list[str]:
    """Return the names of the rows and columns of each confusion matrix; empty without a matrix."""
    count = 0 if totals.confusion is None else totals.confusion.shape[1]
    return list(names) if len(names) == count else [str(number) for number in range(count)]


def _results(plan: Plan, totals: Totals, number: int, *, has_failed: bool) -> dict[str, Any]:
    """Return the fields of `ModelEvaluation` that are empty for a failed model."""
    if has_failed:
        return {"metrics": {}, "delta": {}, "parity": {}, "confusion": [], "roc": [], "slices": []}
    keys = sorted((key for key in totals.sums if key), key=lambda key: (key[0], str(type(key[1])), key[1]))
    metrics, delta = _metrics(plan, totals.sums[None], number)
    histogram = totals.sums[None].histogram
    return {
        "metrics": metrics,
        "delta": delta,
        "parity": _parity(plan, totals, number) if number else {},
        "confusion": [] if totals.confusion is None else totals.confusion[number].tolist(),
        "roc": [] if histogram is None else roc(histogram[number]),
        "slices": [_slice_metrics(plan, key, totals.sums[key], number) for key in keys],
    }


def _parity(plan: Plan, totals: Totals, number: int) -> dict[str, float | None]:
    differences = totals.differences
    has_classes = plan.scoring.task != "regression"
    return {
        "max_abs_error": float(differences.largest[number]),
        "mean_abs_error": float(differences.total[number] / differences.numbers[number]),
        "agreement": float(differences.agreeing[number] / differences.records[number]) if has_classes else None,
    }


def _slice_metrics(plan: Plan, key: Slice, sums: Sums, number: int) -> SliceMetrics:
    metrics, delta = _metrics(plan, sums, number)
    return SliceMetrics(feature=key[0], value=key[1], count=sums.records, metrics=metrics, delta=delta)


def _metrics(plan: Plan, sums: Sums, number: int) -> tuple[dict[str, Metric], dict[str, Estimate]]:
    """Return a model's metrics over one set of records, and their differences to the baseline's."""
    metrics, delta = {}, {}
    for name, (value, replicates), (base, base_replicates), resolution in _measured(plan, sums, number):
        low, high = percentile_interval(replicates) or (value, value)
        metrics[name] = Metric(value, low, high, name.endswith(HIGHER_IS_BETTER), resolution)
        if number:
            difference = value - base
            low, high = percentile_interval(replicates - base_replicates) or (difference, difference)
            delta[name] = Estimate(difference, low, high)
    return metrics, delta


def _measured(plan: Plan, sums: Sums, number: int) -> Iterator[tuple[str, Any, Any, float | None]]:
    """Yield each metric's name, its value and replicates, the baseline's, and the resolution of an AUC."""
    with np.errstate(invalid="ignore", divide="ignore"):
        resampled = sums.resampled / sums.weight
    for index, name in enumerate(plan.scoring.metrics):
        own, baseline = (
            (float(sums.total[model, index] / sums.records), resampled[model, index]) for model in (number, 0)
        )
        yield name, own, baseline, None
    if sums.histogram is None or sums.resampled_histogram is None:
        return
    area, resolution = auc(sums.histogram[[number, 0]])
    if np.isnan(area).any():  # a slice in which one of the classes does not occur has no ROC curve
        return
    own, baseline = ((float(area[index]), _auc_replicates(sums, model)) for index, model in enumerate((number, 0)))
    yield "auc", own, baseline, float(resolution[0])


def _auc_replicates(sums: Sums, model: int) -> Any:
    assert sums.resampled_histogram is not None
    return auc(np.moveaxis(sums.resampled_histogram[model], -1, 0))[0]
