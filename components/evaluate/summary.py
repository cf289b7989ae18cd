"""Report of an evaluation from the sums over all records."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np

from tfopt.artifacts import Model
from tfopt.components.evaluate.examples.record_checks import describe_overlap, models_tuned_on
from tfopt.components.evaluate.loaded_models import describe_error
from tfopt.components.evaluate.metrics.accumulators import Part, Slice, Totals
from tfopt.components.evaluate.metrics.constant_model import describe_constant
from tfopt.components.evaluate.metrics.estimates import Sampled, compute_metrics
from tfopt.components.evaluate.metrics.task_metrics import roc
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import LEVEL, simultaneous_error
from tfopt.reports import evaluation_report as report

METHOD = "exact for shares (Clopper-Pearson, Gaffke), else Bayesian bootstrap with an unseen record"
TFMA_METHOD = ", TFMA: jackknife with an unseen record"

Measured = dict[Slice | None, dict[str, Sampled]]


def check_counts(parts: Sequence[Part], declared: int | None, totals: Totals, names: list[str]) -> None:
    """Raise ComponentError unless each record was read once, and skipped or predicted by each model that works.

    A Beam runner that loses or repeats work raises no error; the metrics would only be slightly wrong. The reader of a
    part detects a truncated file; ``declared`` is the number of records in the manifest of the examples.
    """
    fix = "run it again; if it happens again, on another runner (Beam's own: no --runner)"
    if totals.parts != Counter(parts):
        received = f"{totals.parts.total()} parts of files scored, {len(totals.parts)} of them different"
        raise ComponentError(received, f"each of the {len(parts)} parts once", fix)
    if declared is not None and totals.read != declared:
        received = f"{totals.read} records read"
        raise ComponentError(received, f"the {declared} that the split holds", f"{fix}; or the files have changed")
    skipped = sum(totals.skipped.values())
    if skipped == totals.read:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in totals.skipped.items())
        received = f"all {skipped} records skipped: {reasons}"
        raise ComponentError(received, "records that can be used", "prepare the examples again")
    for number, name in enumerate(names):
        if number not in totals.failures and skipped + totals.answered[number] != totals.read:
            received = f"{name}: {totals.answered[number]} records evaluated and {skipped} skipped"
            raise ComponentError(received, f"together the {totals.read} that were read", fix)


def summarize(
    plan: Plan, totals: Totals, models: list[Model], names: list[str], class_names: Sequence[str] = ()
) -> report.EvaluationReport:
    """Return the report; ``class_names`` come from the examples, if they contain them.

    Raises:
        ComponentError: If the baseline failed, or its predictions are not finite.
    """
    errors = [_error(plan, totals, number, model) for number, model in enumerate(models)]
    if errors[0]:
        expected = "a baseline with finite predictions for every record"
        raise ComponentError(f"baseline {names[0]}: {errors[0]}", expected, "fix it, or compare with another model")
    measured: list[Measured] = [{} for _ in models]
    for number in [number for number, error in enumerate(errors) if not error]:
        try:
            measured[number] = compute_metrics(plan, totals, number)
        except ComponentError as error:
            if not number:
                raise
            errors[number] = describe_error(error)
    measured.append(compute_metrics(plan, totals, len(models)) if plan.constant is not None else {})
    candidates = max(sum(1 for failure in errors[1:] if not failure), plan.settings.tried)
    level_error = simultaneous_error(candidates)
    settings, skipped, rows = plan.settings, sum(totals.skipped.values()), []
    for number, (name, model) in enumerate(zip(names, models, strict=True)):
        _, notes = describe_overlap(model, totals.overlap.get(number, ()), settings.split)
        notes += _constant_notes(totals, number, class_names)
        row = report.ModelEvaluation(name, model.digest, model.format, errors[number], notes, {}, {}, {}, [], [], [])
        rows.append(_with_results(row, plan, totals, number, measured, level_error) if measured[number] else row)
    matrix = 0 if totals.confusion is None else totals.confusion.shape[1]  # rows and columns
    constant = None
    if plan.constant is not None:
        name = describe_constant(plan.scoring, plan.constant, list(class_names))
        constant = report.ConstantModel(name, _intervals(measured[-1][None], {}, level_error)["metrics"])
    return report.EvaluationReport(
        split=settings.split,
        chosen_on_it=models_tuned_on(models, names, settings.split),
        label=settings.label,
        task=plan.scoring.task,
        output=plan.output,
        output_kind=plan.scoring.output_kind,
        classes=list(class_names) if len(class_names) == matrix else [str(number) for number in range(matrix)],
        counts=report.RecordCounts(totals.read, totals.read - skipped, skipped, dict(totals.skipped)),
        interval=report.IntervalMethod(
            METHOD + (TFMA_METHOD if plan.tfma else ""), settings.replicates, LEVEL, settings.seed, candidates
        ),
        baseline=names[0],
        models=rows,
        metrics=list(settings.metrics),
        constant=constant,
    )


def _error(plan: Plan, totals: Totals, number: int, model: Model) -> str | None:
    if number in totals.failures:
        return totals.failures[number][1]
    error, _ = describe_overlap(model, totals.overlap.get(number, ()), plan.settings.split)
    if not error and totals.broken[number]:
        return f"NaN or infinity in {totals.broken[number]} of {totals.answered[number]} predictions"
    return error


class _Intervals(TypedDict):
    metrics: dict[str, report.Metric]
    delta: dict[str, report.Difference]


def _with_results(
    row: report.ModelEvaluation, plan: Plan, totals: Totals, number: int, measured: list[Measured], error: float
) -> report.ModelEvaluation:
    """Return the row of a model with its results; the last of all measured models is the constant one."""
    own, ranks = measured[number], totals.sums[None].ranks
    is_copy = plan.models[number][1] == plan.models[0][1]

    def intervals(key: Slice | None) -> _Intervals:
        return _intervals(own[key], measured[0][key] if number else {}, error, is_copy=is_copy)

    return replace(
        row,
        **intervals(None),
        parity=_parity(plan, totals, number) if number else {},
        confusion=[] if totals.confusion is None else totals.confusion[number].tolist(),
        roc=[] if ranks is None else roc(ranks.counts[number]),
        slices=[
            report.SliceMetrics(*key, totals.sums[key].records, **intervals(key))
            for key in sorted(filter(None, own), key=lambda key: (key[0], str(type(key[1])), key[1]))
        ],
        over_constant={
            name: _estimate(metric.value - base.value, metric.gap_interval(base, error), metric, base)
            for name, metric in own[None].items()
            if (base := measured[-1].get(None, {}).get(name))
        },
    )


def _constant_notes(totals: Totals, number: int, classes: Sequence[str]) -> Iterator[str]:
    """Yield a note on a model that does not depend on its inputs, or always predicts one class."""
    evaluated = int(totals.answered[number])
    if number not in totals.ranges or totals.broken[number] or evaluated < 2:
        return
    least, most = totals.ranges[number]
    if (least == most).all():
        yield f"the outputs are the same for all {evaluated} records"
    elif totals.confusion is not None and totals.confusion.size:
        predicted, occurring = (np.flatnonzero(totals.confusion[number].sum(axis)) for axis in (0, 1))
        if len(predicted) == 1 and len(occurring) > 1:
            name = classes[predicted[0]] if predicted[0] < len(classes) else predicted[0]
            yield f"only class {name} is predicted, {len(occurring)} classes occur"


def _parity(plan: Plan, totals: Totals, number: int) -> dict[str, float | None]:
    records = totals.answered[number]
    return {
        "max_abs_error": float(totals.max_error[number]),
        "mean_abs_error": float(totals.total_error[number] / (records * plan.scoring.width)),
        "agreement": float(totals.agreeing[number] / records) if plan.scoring.has_classes else None,
    }


def _intervals(
    own: dict[str, Sampled], baseline: dict[str, Sampled], error: float, *, is_copy: bool = False
) -> _Intervals:
    """Return a model's metrics over one set of records, and their differences to the baseline's, with intervals."""
    metrics, delta = {}, {}
    for name, metric in own.items():
        own_estimate = _estimate(metric.value, metric.interval(error), metric)
        metrics[name] = report.Metric(
            **vars(own_estimate), higher_is_better=metric.higher_is_better, resolution=metric.resolution
        )
        if base := baseline.get(name):
            difference = metric.value - base.value
            if is_copy:  # its outputs equal the baseline's, for unseen records too
                delta[name] = report.Difference(difference, difference, difference, 0.0)
                continue
            estimate = _estimate(difference, metric.difference_interval(base, error), metric, base)
            delta[name] = report.Difference(**vars(estimate), unseen=metric.unseen_move(base))
    return {"metrics": metrics, "delta": delta}


def _estimate(value: float, ends: tuple[float, float] | None, *metrics: Sampled) -> report.Estimate:
    """Return a value of metrics with an interval that contains it; without an interval, it is no bound."""
    low, high = (min(ends[0], value), max(ends[1], value)) if ends else (value, value)
    undefined = None if ends else "the metric is not defined for most samples of the records"
    no_bound = next((metric.no_bound for metric in metrics if metric.no_bound), undefined)
    return report.Estimate(value, low, high, no_bound=no_bound)
