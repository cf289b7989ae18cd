"""Warnings about conversions: their own, and those of a comparison with other conversions of the same precision."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfopt.artifacts import Model
from tfopt.formatting import whole
from tfopt.measurement.exact_tests import changes_more
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import ModelMeasurements

FAR_BELOW = 10  # times the unexplained part of the other conversion
GOOD_CORRELATION = 0.99  # no warning from here on, however good the other one is


@dataclass(frozen=True)
class _Conversion:
    """The parity of one output of a converted model with its baseline."""

    name: str
    records: int
    changed: int | None  # number of them with another class; None without classes
    correlation: float | None  # correlation of the values; None if it is not defined


def conversion_warnings(models: Sequence[Model], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the warnings about each model by its name, from the parity in the model cards."""
    warnings: dict[str, list[str]] = {name: [] for name in names}
    alike: dict[tuple[str, str], list[_Conversion]] = defaultdict(list)
    for name, model in zip(names, models, strict=True):
        facts = {} if model.failure else model.card.facts
        verified = facts.get("verified")
        if not isinstance(verified, Mapping) or not facts.get("precision"):
            continue
        warnings[name] += verified.get("warnings", ())
        for output, parity in verified.get("outputs", {}).items():
            alike[str(facts["precision"]), output].append(_conversion(name, parity))
    for (precision, _), conversions in alike.items():
        for conversion in conversions:
            if text := _compare(conversion, conversions, precision):
                warnings[conversion.name].append(text)
    return warnings


def uncleared(model: ModelMeasurements, warnings: Sequence[str], goals: Sequence[Goal], examples: int) -> str | None:
    """Explain why the warnings about a candidate keep it from being blessed; None if they are cleared or none.

    They are cleared by a goal on quality that the candidate meets at the pessimistic bound of the interval. Without
    such a goal nothing but the warned comparison says how much its outputs changed.
    """
    if not warnings or model.baseline is None or model.error:
        return None
    on_quality = [goal for goal in goals if whole(goal.metric) in model.quality and goal.kind != "max_regression"]
    if on_quality and not any(goal.failure(model, proven=True, examples=examples) for goal in on_quality):
        return None
    expected = "meets no goal on quality at the bound of its interval" if on_quality else "has no goal on quality"
    return f"its conversion is in doubt ({warnings[0]}), and it {expected} on {examples:,} records"


def _conversion(name: str, parity: Mapping[str, float | None]) -> _Conversion:
    records, agreement = int(parity["records"] or 0), parity.get("agreement")
    changed = None if agreement is None else round((1 - agreement) * records)
    return _Conversion(name, records, changed, parity.get("correlation"))


def _compare(one: _Conversion, others: Sequence[_Conversion], precision: str) -> str:
    """Return the sentence about a conversion that is far worse than the best other one; empty if it is not."""
    for other in sorted(others, key=lambda other: (other.changed or 0) / max(other.records, 1)):
        if one.changed is None or other.changed is None:
            break
        if changes_more(one.changed, one.records, other.changed, other.records):
            return (
                f"{one.changed} of {one.records} records change their class in {precision}; with {other.name} "
                f"{other.changed} of {other.records} do"
            )
    best = max(others, key=lambda other: -2.0 if other.correlation is None else other.correlation)
    if one.correlation is None or best.correlation is None or one.correlation >= GOOD_CORRELATION:
        return ""
    if 1 - one.correlation <= FAR_BELOW * (1 - best.correlation):
        return ""
    return f"correlation {one.correlation:.3f} with its parent in {precision}; {best.name} has {best.correlation:.3f}"
