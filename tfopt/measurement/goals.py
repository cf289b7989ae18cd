"""Parse and check goals: a metric, one of four kinds, and a number, which three of the kinds also take in percent.

A metric may be that of a slice, the records with one value of a feature, or of every slice of a feature.

accuracy threshold 0.95          at least 0.95, as higher accuracy is better
latency threshold 5              at most 5 ms, as lower latency is better
latency min_improvement 20%      at least 20 % below the baseline's
accuracy max_degradation 0.01    at most 0.01 (one point) below the baseline's
quality max_degradation 1%       the evaluation's main metric, at most 1 % worse than the baseline's
latency max_regression 10%       not significantly more than 10 % above the median of the last blessed runs
accuracy[label=3] threshold 0.9  at least 0.9 over the records whose label is 3
accuracy[city=*] max_degradation 1%   at most 1 % below the baseline's in every city with enough records
"""

import logging
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tfopt import formatting
from tfopt.declaration.parameters import MappingForm
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import records_needed, spread_of_record
from tfopt.measurement.model_measurements import Estimate, ModelMeasurements, slice_metric
from tfopt.model_store.run_history import HistoricalMedian
from tfopt.reports.evaluation_report import SliceMetrics

Objective = Literal[
    "latency", "throughput", "size", "size_gzipped", "memory", "quality", "capacity", "cost", "cold_start"
]
KINDS = ("threshold", "min_improvement", "max_degradation", "max_regression")
QUALITY = "quality"
EVERY = "*"  # stands for every slice of a feature
GRAMMAR = re.compile(r"([^\s\[]+(?:\[[^\]]*\])?)\s+(\S+)\s+(\S+?)(%?)")
SLICED = re.compile(r"([^\[]+)\[([^=\]]+)=([^\]]+)\]")
ROUNDING = 1e-9  # relative tolerance of comparisons: 0.97 - 0.98 is not exactly -0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Goal:
    """A condition on one metric that a model must meet."""

    text: str  # the goal as the user wrote it
    metric: str  # name of the metric; that of a slice is ``METRIC[FEATURE=VALUE]``
    kind: str  # one of `KINDS`
    number: float  # the number in the goal; a fraction if it was written in percent
    relative: bool  # True if the number is a fraction of the baseline's value or of the reference
    # for ``max_regression`` the value in earlier runs; None if there are too few of them
    reference: HistoricalMedian | None = None

    def failure(self, model: ModelMeasurements, *, proven: bool, examples: int, candidates: int = 1) -> str | None:
        """Explain why a model misses this goal; return None if it meets the goal or the goal does not apply to it.

        ``proven`` compares the pessimistic bound of the confidence interval, which holds for all candidates together,
        instead of the value. ``examples`` is the number of examples that quality was measured on.
        """
        if model.error:
            return None
        if model.estimate(self.metric) is None:
            return f"{formatting.title(self.metric)} was not measured for it; the goal is {self.text!r}"
        compared = self._compare(model, proven)
        if compared is None:
            return None
        if disturbance := model.disturbance(self.metric):
            return f"{formatting.title(self.metric)} is {disturbance}; the goal is {self.text!r}"
        if _reaches(*compared):
            return self._unproven(model) if proven else None
        if self.kind == "max_regression":
            return self._describe_regression(model, compared[1])
        more = self._more_records(model, compared[1], examples, candidates)
        describe = self._describe_threshold if self.kind == "threshold" else self._describe_loss
        return describe(model, *compared, more)

    def _unproven(self, model: ModelMeasurements) -> str | None:
        """Explain that a goal is met by an interval that is no bound; None if it is one."""
        if self.kind == "max_regression" or not (reason := self._merit(model).no_bound):
            return None
        title = formatting.title(self.metric)
        return f"not proven: the interval of {title} is no bound: {reason}; the goal is {self.text!r}"

    def shortfall(self, model: ModelMeasurements, *, proven: bool) -> float:
        """Compute by how much a metric misses this goal, in its unit; 0 if it meets the goal or was not compared."""
        compared = self._compare(model, proven)
        if compared is None or model.disturbance(self.metric) or _reaches(*compared):
            return 0.0
        return compared[1] - compared[0]

    def _merit(self, model: ModelMeasurements) -> Estimate:
        """Return the gain over the baseline, or for other goals the metric, signed so that more is better."""
        if self.kind in ("min_improvement", "max_degradation"):
            return model.gain(self.metric)
        estimate = model.estimate(self.metric)
        assert estimate  # `failure` has checked it
        return model.signed(self.metric, estimate)

    def _compare(self, model: ModelMeasurements, proven: bool) -> tuple[float, float] | None:
        """Return what the goal is checked on and the least that it requires; None if it does not apply to the model.

        Both are signed so that more is better. The first is the metric for a threshold, else the gain over the baseline
        or over earlier runs. Earlier runs may have been evaluated on other data, so for them the uncertainty of both
        counts in the model's favor.
        """
        sign, merit = 1 if model.higher_is_better(self.metric) else -1, self._merit(model)
        value = merit.interval[0] if proven else merit.value
        if self.kind == "threshold":
            return value, sign * self.number
        if self.kind != "max_regression":
            return (value, self.needed_gain(model.baseline.value(self.metric))) if model.baseline else None
        if self.reference is None:
            return None
        margin = math.hypot(merit.interval[1] - merit.value, self.reference.half_interval) if proven else 0.0
        return merit.value - sign * self.reference.value + margin, self.needed_gain(self.reference.value)

    def _describe_threshold(self, model: ModelMeasurements, bound: float, required: float, more: str) -> str:
        sign = 1 if model.higher_is_better(self.metric) else -1
        title, value = formatting.title(self.metric), model.value(self.metric)
        amount = formatting.amount(self.metric, value)
        limit = f"at {'least' if sign > 0 else 'most'} {formatting.amount(self.metric, self.number)}"
        if _reaches(sign * value, required):
            perhaps = formatting.amount(self.metric, sign * bound)
            return f"not proven: {title} is {amount}, perhaps {perhaps}; the goal asks for {limit}{more}"
        return f"{title} is {amount}; the goal asks for {limit}"

    def _describe_loss(self, model: ModelMeasurements, bound: float, required: float, more: str) -> str:
        gain = model.gain(self.metric).value
        change, allowed = _describe_gain(self.metric, gain), self._allowed(required)
        if not _reaches(gain, required):
            return f"{change}; {allowed}"
        both_worse = gain < 0 and bound < 0
        perhaps = formatting.distance(self.metric, -bound) if both_worse else _describe_gain(self.metric, bound)
        return f"not proven: {change}, perhaps {perhaps}; {allowed}{more}"

    def _more_records(self, model: ModelMeasurements, required: float, examples: int, candidates: int) -> str:
        slice_of = model.slices.get(self.metric)
        if not slice_of and self.metric not in model.quality:
            return ""
        examples = slice_of.count if slice_of else examples
        needed = examples_needed(self._merit(model), required, examples, candidates)
        if needed is None or needed >= 1e8:
            return ""
        return f"; about {float(f'{needed:.2g}'):,.0f} examples instead of {examples:,} could prove it"

    def _describe_regression(self, model: ModelMeasurements, required: float) -> str:
        assert self.reference
        earlier = self.reference.value
        gain = (model.value(self.metric) - earlier) * (1 if model.higher_is_better(self.metric) else -1)
        usual = f"{self.reference.description}, {formatting.amount(self.metric, earlier)}"
        return f"{_describe_gain(self.metric, gain)} against {usual}; {self._allowed(required)}"

    def needed_gain(self, baseline: float) -> float:
        """Return the required gain over the baseline's value in the metric's unit; negative if a loss is allowed."""
        size = self.number * abs(baseline) if self.relative else self.number
        return size if self.kind == "min_improvement" else -size

    def _allowed(self, needed_gain: float) -> str:
        amount = formatting.distance(self.metric, abs(needed_gain))
        percent = f" ({100 * self.number:g}%)" if self.relative else ""
        if self.kind == "min_improvement":
            return f"the goal asks for {amount}{percent} better"
        return f"the goal allows {amount}{percent}" if needed_gain else "the goal allows no loss"


def read_goals(texts: Sequence[str]) -> list[Goal]:
    """Parse goals.

    >>> [goal.kind for goal in read_goals(["accuracy max_degradation 0.01", "latency min_improvement 20%"])]
    ['max_degradation', 'min_improvement']

    Raises:
        ComponentError: If a goal does not follow the grammar, or makes no sense.
    """
    return [_parse(text) for text in texts]


def resolve_goals(
    goals: Sequence[Goal],
    main_metric: str,
    measured: Collection[str],
    past: Callable[[str], HistoricalMedian | None] = lambda _: None,
    slices: Sequence[SliceMetrics] = (),
    slice_records: int = 1,
) -> list[Goal]:
    """Replace "quality" by the main metric, add references from earlier runs, and check that metrics were measured.

    A goal for every slice of a feature becomes one for each of the baseline's slices with ``slice_records`` records.
    ``past`` returns the reference value of a metric in earlier runs.

    Raises:
        ComponentError: If a goal's metric was not measured; the error lists the measured ones. If the feature of a
            slice was not evaluated, or a slice has too few records.
    """
    whole: list[Goal] = []
    sliced: list[Goal] = []
    for goal in goals:
        if parts := slice_of(goal.metric):
            sliced += _resolve_slices(goal, *parts, main_metric, slices, slice_records)
            continue
        metric = main_metric if goal.metric == QUALITY else goal.metric
        if metric not in measured:
            received = f"goal {goal.text!r}: {metric} was not measured"
            expected = f"one of {', '.join(measured)}; or {QUALITY}, which here is {main_metric}"
            raise ComponentError(received, expected, nearest(metric, [*measured, QUALITY]))
        whole.append(replace(goal, metric=metric, reference=past(metric) if goal.kind == "max_regression" else None))
    return whole + sliced


def slice_of(metric: str) -> tuple[str, str, str] | None:
    """Return metric, feature and value of a slice's metric; None if a metric has no slice.

    >>> slice_of("accuracy[city=Oslo]"), slice_of("accuracy")
    (('accuracy', 'city', 'Oslo'), None)
    """
    match = SLICED.fullmatch(metric)
    return (match[1], match[2], match[3]) if match else None


def _resolve_slices(
    goal: Goal, metric: str, feature: str, value: str, main_metric: str, slices: Sequence[SliceMetrics], least: int
) -> list[Goal]:
    metric = main_metric if metric == QUALITY else metric
    selected = _slices_of(goal, feature, value, slices, least)
    measured = [slice_ for slice_ in selected if metric in slice_.metrics]
    if not measured:
        names = list(dict.fromkeys(name for slice_ in selected for name in slice_.metrics))
        expected = f"a metric of the slices of {feature}: {', '.join(names)}"
        raise _refusal(goal.text, expected, nearest(metric, [*names, QUALITY]))
    names = [slice_metric(metric, feature, slice_.value) for slice_ in measured]
    return [replace(goal, metric=name, text=goal.text.replace(goal.metric, name)) for name in names]


def _slices_of(goal: Goal, feature: str, value: str, slices: Sequence[SliceMetrics], least: int) -> list[SliceMetrics]:
    same = [slice_ for slice_ in slices if slice_.feature == feature]
    if not same:
        features = list(dict.fromkeys(slice_.feature for slice_ in slices))
        fix = nearest(feature, features) if features else f"pass slices={feature} to evaluate"
        expected = f"a feature that was evaluated in slices: {', '.join(features) or 'there is none'}"
        raise ComponentError(f"goal {goal.text!r}: {feature} was not evaluated in slices", expected, fix)
    selected = same if value == EVERY else [slice_ for slice_ in same if str(slice_.value) == value]
    if not selected:
        values = [str(slice_.value) for slice_ in same]
        expected = f"one of the {len(values)} values, or {EVERY} for all of them"
        raise ComponentError(f"goal {goal.text!r}: no record with {feature}={value}", expected, nearest(value, values))
    if large := [slice_ for slice_ in selected if slice_.count >= least]:
        if small := [str(slice_.value) for slice_ in selected if slice_ not in large]:
            log.warning("goal %r: not checked, fewer than %d records: %s", goal.text, least, ", ".join(small))
        return large
    largest = max(selected, key=lambda slice_: slice_.count)
    received = f"goal {goal.text!r}: {largest.count} records with {feature}={largest.value}"
    expected = f"slices of {least} records or more, slice_records={least}"
    raise ComponentError(received, expected, f"evaluate more records, or pass slice_records={largest.count}")


def goal_text(mapping: Mapping[str, str]) -> str:
    """Convert a goal that is written as a mapping of its metric and its kind.

    >>> goal_text({"metric": "quality", "max_degradation": "1%"})
    'quality max_degradation 1%'

    Raises:
        ComponentError: If it has no metric, not exactly one kind, or another key; the text itself is not checked.
    """
    unknown = next((key for key in mapping if key not in ("metric", *KINDS)), None)
    kinds = [key for key in mapping if key != "metric"]
    if unknown or "metric" not in mapping or len(kinds) != 1:
        written = f"{{{', '.join(f'{key}: {value}' for key, value in mapping.items())}}}"
        fix = nearest(unknown, ["metric", *KINDS]) if unknown else "write {metric: quality, max_degradation: 1%}"
        raise _refusal(written, f"a metric, and one of {', '.join(KINDS)}", fix)
    return f"{mapping['metric']} {kinds[0]} {mapping[kinds[0]]}"


def _goal_schema() -> dict[str, Any]:
    numbers = {kind: {"type": ["number", "string"], "description": "a number, or one in percent"} for kind in KINDS}
    return {
        "type": "object",
        "description": "a condition on one metric; quality is the main metric of the evaluation",
        "properties": {"metric": {"type": "string"}, **numbers},
        "required": ["metric"],
        "additionalProperties": False,
        "minProperties": 2,
        "maxProperties": 2,
    }


GOAL_MAPPING = MappingForm(goal_text, _goal_schema)


def _parse(text: str) -> Goal:
    match = GRAMMAR.fullmatch(text.strip())
    if not match:
        raise _refusal(text, f"METRIC {'|'.join(KINDS)} NUMBER", "write the goal in this form")
    metric, kind, digits, percent = match.groups()
    if kind not in KINDS:
        raise _refusal(text, f"one of {', '.join(KINDS)} after the metric", nearest(kind, KINDS))
    try:
        number = float(digits)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _refusal(text, "a number at the end, such as 0.01 or 1%", f"write a number instead of {digits}")
    _check_sense(text, metric, kind, number, bool(percent))
    return Goal(text.strip(), metric, kind, number / 100 if percent else number, bool(percent))


def _check_sense(text: str, metric: str, kind: str, number: float, percent: bool) -> None:
    if kind == "threshold" and percent:
        expected = "a plain number: a threshold compares with no baseline"
        raise _refusal(text, expected, f"write {metric} threshold {number:g}")
    if "[" in metric and not SLICED.fullmatch(metric):
        raise _refusal(text, "METRIC[FEATURE=VALUE], or METRIC[FEATURE=*]", "name the feature and its value")
    if "[" in metric and kind == "max_regression":
        fix = f"write {metric} max_degradation 1%, or a goal for all records"
        raise _refusal(text, "a goal for all records: the run history has no slices", fix)
    if kind != "threshold" and number < 0:
        other = "max_degradation" if kind == "min_improvement" else "min_improvement"
        raise _refusal(text, "a number from 0", f"write {metric} {other} {-number:g}{'%' if percent else ''}")
    if formatting.is_share(metric) and not percent and abs(number) > (1 if kind == "threshold" else 0.999):
        raise _refusal(text, f"a part of 1: {metric} goes from 0 to 1", f"write {metric} {kind} {number / 100:g}")


def _refusal(text: str, expected: str, fix: str) -> ComponentError:
    return ComponentError(f"goal {text!r}", expected, fix)


def _reaches(value: float, bound: float) -> bool:
    return value >= bound - ROUNDING * max(1.0, abs(bound))


def _describe_gain(metric: str, gain: float) -> str:
    amount, title = formatting.distance(metric, abs(gain)), formatting.title(metric)
    if formatting.is_share(metric) and gain:
        return f"{'gains' if gain > 0 else 'loses'} {amount} of {title}"
    if not gain:
        return f"is no better in {title}"
    return f"is {amount} {'better' if gain > 0 else 'worse'} in {title}"


def examples_needed(gain: Estimate, required: float, examples: int, candidates: int) -> int | None:
    """Return how many examples prove a goal for a model as good as measured; None if the gain does not reach it.

    Args:
        gain: The measured gain over the baseline. A gain above zero may be chance: it does not count if none is needed.
        required: The least gain that the goal requires.
        examples: Number of examples that the gain was measured on.
        candidates: Number of candidates that the interval holds for together.
    """
    room = (min(gain.value, 0.0) if required <= 0 else gain.value) - required
    distance = gain.value - gain.interval[0]
    if room <= 0 or distance <= 0 or not examples:
        return None
    unseen = gain.unseen or 0.0
    spread = spread_of_record(distance, unseen, examples, candidates)
    return records_needed(room, candidates, spread, unseen * examples)
