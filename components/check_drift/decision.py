"""Compare both samples, and decide what to do (ADR 81)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from scipy import stats

from tfopt.artifacts import Examples, Model
from tfopt.components.check_drift.answers import compare_answers, disagreement
from tfopt.components.check_drift.columns import Comparison, compare_columns
from tfopt.components.check_drift.intervals import distribution_distance, share_change
from tfopt.components.check_drift.parameters import DriftTest
from tfopt.components.check_drift.samples import Samples
from tfopt.measurement.confidence_bounds import LEVEL, simultaneous_error
from tfopt.reports.drift_report import Change, DriftDecision, DriftReport


@dataclass(frozen=True)
class Kind:
    """A kind of change: what it is called, the parameter with its limit, and what a change beyond it calls for."""

    text: str
    limit: str | None = None
    decision: DriftDecision = "nothing"


KINDS = {
    "lacking": Kind("requests without the input", "max_unknown", "retrain"),
    "missing": Kind("missing values", "max_unknown", "retrain"),
    "unknown": Kind("values that the reference does not have", "max_unknown", "retrain"),
    "repeated": Kind("records with the same value", "max_shift", "retrain"),
    "class": Kind("share of the answers", "max_shift", "retrain"),
    "answers": Kind("distribution of the answers", "max_shift", "retrain"),
    "disagreement": Kind("other answers than the parent's", "max_disagreement", "recalibrate"),
    "saturation": Kind("values at the ends of the 8-bit range", "max_saturation", "recalibrate"),
    "distribution": Kind("distribution of an input"),
}
DISTANCES = ("answers", "distribution")
TWO_SIDED = ("class",)  # a share that falls counts as one that rises


def decide(samples: Samples, model: Model, reference: Examples, parent: Model | None, test: DriftTest) -> DriftReport:
    """Return the report."""
    comparisons = list(_comparisons(samples, has_parent=parent is not None))
    error = simultaneous_error(len(comparisons))
    changes = [_measure(one, error, test) for one in comparisons]
    exceeded = [change for change in changes if change.is_exceeded]
    for_retraining = [change for change in exceeded if KINDS[change.kind].decision == "retrain"]
    for_calibration = [change for change in exceeded if KINDS[change.kind].decision == "recalibrate"]
    notes = _notes(samples, model, reference, parent)
    loses_nothing = [
        change for change in changes if change.kind == "disagreement" and change.high <= test.max_disagreement
    ]
    if for_calibration and loses_nothing:
        notes.append("activations saturate, and the answers are still those of the parent")
        for_calibration = []
    decision: DriftDecision = "retrain" if for_retraining else "recalibrate" if for_calibration else "nothing"
    return DriftReport(
        decision=decision,
        reasons=[_reason(change) for change in for_retraining or for_calibration],
        model=model.name,
        digest=model.digest,
        parent=None if parent is None else parent.name,
        reference=samples.reference.facts,
        served=samples.served.facts,
        level=LEVEL,
        changes=changes,
        notes=notes,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _comparisons(samples: Samples, *, has_parent: bool) -> Iterator[Comparison]:
    reference, served = samples.reference, samples.served
    records = served.facts.records + max(served.lacking.values(), default=0)
    for name, count in served.lacking.items():
        lacks = np.arange(records) < count
        yield Comparison(name, "lacking", np.zeros(reference.facts.records), lacks.astype(np.float64))
    if not served.facts.records:
        return
    for name, rows in reference.rows.items():
        yield from compare_columns(name, rows, served.rows[name])
    for name, shares in reference.levels.items():
        yield Comparison(name, "saturation", shares, served.levels[name])
    # Saturation changes the answers of the model, not those of the parent.
    yield from (
        compare_answers(reference.parent_answers, served.parent_answers)
        if has_parent
        else compare_answers(reference.answers, served.answers)
    )
    if has_parent:
        usual = reference.parent_answers
        each = [disagreement(sample.answers, sample.parent_answers, usual) for sample in (reference, served)]
        yield Comparison("all outputs", "disagreement", each[0], each[1])


def _measure(comparison: Comparison, error: float, test: DriftTest) -> Change:
    kind, is_distance = KINDS[comparison.kind], comparison.kind in DISTANCES
    measure = distribution_distance if is_distance else share_change
    change, low, high = measure(comparison.reference, comparison.served, error)
    limit = None if kind.limit is None else float(getattr(test, kind.limit))
    is_exceeded = limit is not None and (low > limit or (comparison.kind in TWO_SIDED and high < -limit))
    before, now = (None if is_distance else float(rows.mean()) for rows in (comparison.reference, comparison.served))
    note = _distance_in_deviations(comparison) if comparison.kind == "distribution" else comparison.note
    return Change(comparison.subject, comparison.kind, before, now, change, low, high, limit, is_exceeded, note)


def _distance_in_deviations(comparison: Comparison) -> str:
    spread = float(comparison.reference.std())
    if not spread or not math.isfinite(spread):
        return "the reference has one value"
    distance = float(stats.wasserstein_distance(comparison.reference, comparison.served)) / spread
    return f"moved by {distance:.2g} standard deviations on average"


def _reason(change: Change) -> str:
    text = KINDS[change.kind].text
    if change.reference is None or change.served is None:
        return f"{change.subject}: {text}, distance {change.change:.2f}, at least {change.low:.2f}"
    note = f" ({change.note})" if change.note else ""
    return f"{change.subject}: {text}{note}, {change.served:.2%} instead of {change.reference:.2%}"


def _notes(samples: Samples, model: Model, reference: Examples, parent: Model | None) -> list[str]:
    notes = []
    if not samples.has_levels:
        notes.append(f"{model.name} has no calibrated ranges in 8 bits that are read here: nothing can saturate")
    elif parent is None:
        notes.append("without the parent, a model whose ranges no longer fit is found by its saturation only")
    origin = model.card.data.digest if model.card.data else None
    if origin and origin != reference.digest:
        notes.append("the reference are not the examples that the model was made with")
    return notes
