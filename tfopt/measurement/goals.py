"""The language of goals: METRIC, one of four words, a number. Three of the words also take a percentage.

accuracy threshold 0.95          at least 0.95, since more accuracy is better
latency threshold 5              at most 5 ms, since less latency is better
latency min_improvement 20%      at least 20 % below the parent's
accuracy max_degradation 0.01    at most 0.01 (one point) below the parent's
quality max_degradation 1%       the evaluation's main metric, at most 1 % worse than the parent's
latency max_regression 10%       at most 10 % more than the median of the last blessed runs, beyond doubt
"""

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tfopt import formatting as wording
from tfopt.errors import ComponentError, nearest
from tfopt.measurement.model_measurements import Measured
from tfopt.model_store.run_history import Reference

KINDS = ("threshold", "min_improvement", "max_degradation", "max_regression")
QUALITY = "quality"
GRAMMAR = re.compile(r"(\S+)\s+(\S+)\s+(\S+?)(%?)")
FLOAT_DUST = 1e-9  # 0.97 - 0.98 is not quite -0.01


@dataclass(frozen=True)
class Goal:
    """One goal.

    Attributes:
        text: As it was written.
        metric: What it is about.
        kind: One of `KINDS`.
        number: The number in it; a fraction where it was written in percent.
        relative: Whether it is a part of the parent's value, or of what earlier runs had.
        reference: What earlier runs had, for a ``max_regression``; None when there are too few to say.
    """

    text: str
    metric: str
    kind: str
    number: float
    relative: bool
    reference: Reference | None = None

    def failure(self, model: Measured, *, proven: bool, examples: int) -> str | None:
        """Why a model misses this goal; None when it meets it, or when it is the parent and the goal compares with it.

        Args:
            model: The model that is judged.
            proven: Whether the bad end of an interval decides, rather than the value itself.
            examples: How many the quality was measured on.
        """
        if model.error:
            return None
        if self.metric not in model.metrics:
            return f"{wording.title(self.metric)} was not measured for it; the goal is {self.text!r}"
        if self.kind == "threshold":
            return self._misses_threshold(model, proven)
        if self.kind == "max_regression":
            return self._regressed(model, proven)
        return self._misses_parent(model, proven, examples) if model.parent else None

    def _misses_threshold(self, model: Measured, proven: bool) -> str | None:
        found, up = model.metrics[self.metric], model.higher_is_better(self.metric)
        worst = found.interval[0 if up else 1] if proven else found.value
        if _reaches(worst if up else -worst, self.number if up else -self.number):
            return None
        said, value = wording.title(self.metric), wording.amount(self.metric, found.value)
        wanted = f"the goal asks for at {'least' if up else 'most'} {wording.amount(self.metric, self.number)}"
        if _reaches(found.value if up else -found.value, self.number if up else -self.number):
            return f"not proven: {said} is {value}, perhaps {wording.amount(self.metric, worst)}; {wanted}"
        return f"{said} is {value}; {wanted}"

    def _misses_parent(self, model: Measured, proven: bool, examples: int) -> str | None:
        gain = model.gain(self.metric)
        worst = gain.interval[0] if proven else gain.value
        wanted = self.needed_gain(model)
        if _reaches(worst, wanted):
            return None
        found, allowed = _moved(self.metric, gain.value), self._allowed(wanted)
        if not _reaches(gain.value, wanted):
            return f"{found}; {allowed}"
        both_worse = gain.value < 0 and worst < 0
        perhaps = wording.distance(self.metric, -worst) if both_worse else _moved(self.metric, worst)
        more = _examples_needed(gain.value, worst, wanted, examples) if self.metric in model.quality["metrics"] else ""
        return f"not proven: {found}, perhaps {perhaps}; {allowed}{more}"

    def _regressed(self, model: Measured, proven: bool) -> str | None:
        """Why it is worse than earlier runs beyond doubt: other data was judged then, so doubt is for the model."""
        past, found = self.reference, model.metrics[self.metric]
        if past is None:
            return None
        up = model.higher_is_better(self.metric)
        gain = (found.value - past.value) * (1 if up else -1)
        doubt = math.hypot(abs(found.interval[1 if up else 0] - found.value), past.doubt) if proven else 0.0
        allowed = self.number * abs(past.value) if self.relative else self.number
        if _reaches(gain + doubt, -allowed):
            return None
        usual = f"the median of the last {past.runs} blessed runs, {wording.amount(self.metric, past.value)}"
        return f"{_moved(self.metric, gain)} against {usual}; {self._allowed(-allowed)}"

    def needed_gain(self, model: Measured) -> float:
        """How much better than the parent's the metric must be, in its own unit; negative where it may be worse."""
        assert model.parent
        size = self.number * abs(model.parent.value(self.metric)) if self.relative else self.number
        return size if self.kind == "min_improvement" else -size

    def _allowed(self, wanted: float) -> str:
        amount = wording.distance(self.metric, abs(wanted))
        percent = f" ({100 * self.number:g}%)" if self.relative else ""
        if self.kind == "min_improvement":
            return f"the goal asks for {amount}{percent} better"
        return f"the goal allows {amount}{percent}" if wanted else "the goal allows no loss"


def read_goals(texts: Sequence[str]) -> list[Goal]:
    """Read goals as they were written.

    >>> [goal.kind for goal in read_goals(["accuracy max_degradation 0.01", "latency min_improvement 20%"])]
    ['max_degradation', 'min_improvement']

    Raises:
        ComponentError: When one is not in the language, or cannot be meant.
    """
    return [_read(text) for text in texts]


def settle(
    goals: Sequence[Goal],
    main_metric: str,
    measured: Collection[str],
    past: Callable[[str], Reference | None] = lambda _: None,
) -> list[Goal]:
    """Put the evaluation's main metric in place of "quality", and check that every metric was measured.

    Args:
        goals: As they were read.
        main_metric: What "quality" stands for.
        measured: The metrics there are.
        past: What earlier runs had of a metric.

    Raises:
        ComponentError: When one was not, with those that were.
    """
    settled = [replace(goal, metric=main_metric) if goal.metric == QUALITY else goal for goal in goals]
    settled = [
        replace(goal, reference=past(goal.metric)) if goal.kind == "max_regression" else goal for goal in settled
    ]
    for goal in settled:
        if goal.metric not in measured:
            raise ComponentError(
                f"goal {goal.text!r}: {goal.metric} was not measured",
                f"one of {', '.join(measured)}; or {QUALITY}, which here is {main_metric}",
                nearest(goal.metric, [*measured, QUALITY]),
            )
    return settled


def _read(text: str) -> Goal:
    found = GRAMMAR.fullmatch(text.strip())
    if not found:
        raise _refusal(text, f"METRIC {'|'.join(KINDS)} NUMBER", "write it like that")
    metric, kind, written, percent = found.groups()
    if kind not in KINDS:
        raise _refusal(text, f"one of {', '.join(KINDS)} after the metric", nearest(kind, KINDS))
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _refusal(text, "a number at the end, such as 0.01 or 1%", f"write a number in place of {written}")
    _check_sense(text, metric, kind, number, bool(percent))
    return Goal(text.strip(), metric, kind, number / 100 if percent else number, bool(percent))


def _check_sense(text: str, metric: str, kind: str, number: float, percent: bool) -> None:
    if kind == "threshold" and percent:
        raise _refusal(
            text, "a plain number: a threshold compares with no parent", f"write {metric} threshold {number:g}"
        )
    if kind != "threshold" and number < 0:
        other = "max_degradation" if kind == "min_improvement" else "min_improvement"
        raise _refusal(text, "a number from 0", f"write {metric} {other} {-number:g}{'%' if percent else ''}")
    if wording.is_share(metric) and not percent and abs(number) > (1 if kind == "threshold" else 0.999):
        raise _refusal(text, f"a part of 1: {metric} goes from 0 to 1", f"write {metric} {kind} {number / 100:g}")


def _refusal(text: str, expected: str, fix: str) -> ComponentError:
    return ComponentError(f"goal {text!r}", expected, fix)


def _reaches(found: float, wanted: float) -> bool:
    return found >= wanted - FLOAT_DUST * max(1.0, abs(wanted))


def _moved(metric: str, gain: float) -> str:
    """What happened to a metric, as a verb's phrase."""
    amount, said = wording.distance(metric, abs(gain)), wording.title(metric)
    if wording.is_share(metric) and gain:
        return f"{'gains' if gain > 0 else 'loses'} {amount} of {said}"
    if not gain:
        return f"is no better in {said}"
    return f"is {amount} {'better' if gain > 0 else 'worse'} in {said}"


def _examples_needed(value: float, worst: float, wanted: float, examples: int) -> str:
    """An interval shrinks with the root of the number of examples; at this many it would just do."""
    room = value - wanted
    if room <= 0 or not examples:
        return ""
    needed = examples * ((value - worst) / room) ** 2
    return f"; about {float(f'{needed:.2g}'):,.0f} examples in place of {examples:,} could tell" if needed < 1e8 else ""
