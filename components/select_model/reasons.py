"""Explain in sentences why each model was selected or not, and by how much it missed."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfopt import formatting
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import NOT_COMPARED, ModelMeasurements
from tfopt.measurement.significance import is_indistinguishable, is_significantly_better, noise
from tfopt.metric_table import TIMES
from tfopt.reports.benchmark_report import SpeedupEstimate
from tfopt.reports.evaluation_report import ConstantModel

LAYOUT, POLICY, CONSTANT, CONVERSION = "layout", "policy", "constant", "conversion"
NO_METRIC = {  # what stands for a metric in the failures of a model, and its summary
    LAYOUT: "not supported by the layout",
    POLICY: "not allowed by the policy",
    CONSTANT: "not better than a constant answer",
    CONVERSION: "conversion in doubt",
}
LONG = 24  # letters; a longer name of the selected model is not repeated in the reasons of the others
SHORT = 16  # letters; a longer name of the selected model is not repeated in a summary
SMALL = 0.9  # fraction of the baseline's size below which a model counts as smaller


@dataclass(frozen=True)
class Explanation:
    """The facts of a decision that its sentences need."""

    chosen: ModelMeasurements
    objective: str
    main_metric: str
    goals: Sequence[Goal]  # all goals, resolved
    proven: bool  # True if goals are compared with the pessimistic bound
    baseline_passed: bool  # True if the baseline meets the goals, so that a candidate must be significantly better
    min_effect: float  # the relative difference in speed that counts as within noise

    def verdict(self, models: Sequence[ModelMeasurements], *, blessed: bool, warned: bool = False) -> str:
        """Return the decision, and a sentence each for a warning about the conversion and for unstable speeds."""
        decision = self._verdict(models, blessed=blessed)
        if warned and self.chosen.baseline:
            decision += " Its conversion has a warning, but it meets the goals on quality."
        return decision + self._unstable(models)

    def _unstable(self, models: Sequence[ModelMeasurements]) -> str:
        unstable = [model for model in models if model.disturbed_metrics]
        if not unstable:
            return ""
        measured = sum(not model.error for model in models)
        count = f"{len(unstable)} of {measured} models" if measured > 1 else "the model"
        return (
            f" The speed of {count} is unstable and was not compared, because "
            "other processes used the machine: run the benchmark again when it is idle, or with more seconds."
        )

    def _verdict(self, models: Sequence[ModelMeasurements], *, blessed: bool) -> str:
        name = self.chosen.name
        if self.chosen.baseline:
            return f"{name}: {self._merits(self.chosen)}."
        if not blessed:
            return f"{name}, the baseline, stays and is not blessed: neither it nor any candidate meets every goal."
        count = len(models) - 1
        none = "the only candidate is not" if count == 1 else f"none of the {count} candidates is"
        objective = formatting.title(self.objective)
        return f"{name}, the baseline, stays: {none} significantly better in {objective} within the goals."

    def reasons(self, model: ModelMeasurements, failures: Sequence[tuple[str, str]]) -> list[str]:
        """Return why a model was selected or not; the first reason is the most important one.

        ``failures`` has the metric of each goal that the model misses, and the explanation.
        """
        if model is not self.chosen:
            return self._why_not(model, failures)
        if model.baseline:
            return [self._merits(model)]
        missed = [failure for _, failure in failures]
        return missed or ["the baseline: no candidate within the goals is significantly better"]

    def summary(self, model: ModelMeasurements, failures: Sequence[tuple[str, str]]) -> str:
        """Return the first reason in a few words, for a line of a table."""
        if model.error:
            return "not measured"
        if failures:
            return self._short_failure(model, failures[0][0])
        if model is self.chosen:
            return self._short_merits(model)
        if self.objective not in model.metrics:
            return f"no {formatting.title(self.objective)}"
        own, best = (self._short_objective(candidate) for candidate in (model, self.chosen))
        if model.baseline and self.baseline_passed and not is_significantly_better(model, self.objective):
            ratio = model.ratio(self.objective)
            if model.disturbance(self.objective):
                return NOT_COMPARED
            return f"{own}: {ratio.verdict}" if ratio else f"{own}: not significantly better"
        if model.baseline and self._is_equal(model):
            return f"{own}; {self._short_winner} is smaller"
        return f"{own}; {self._short_winner} is {best}"

    def _short_failure(self, model: ModelMeasurements, metric: str) -> str:
        if metric in NO_METRIC:
            return NO_METRIC[metric]
        if model.disturbance(metric):
            return NOT_COMPARED
        goals = [goal for goal in self.goals if goal.metric == metric and model.estimate(metric)]
        missing = max((goal.shortfall(model, proven=self.proven) for goal in goals), default=0.0)
        amount, title = formatting.distance(metric, missing), formatting.title(metric)
        if missing and not any(goal.shortfall(model, proven=False) for goal in goals):
            return f"{title} not proven ({amount} short)"
        return f"misses {title} by {amount}" if missing else f"misses {title}"

    def _short_merits(self, model: ModelMeasurements) -> str:
        if model.baseline is None:
            return "baseline; no candidate is better"
        size = formatting.relative_size(model.value("size"), model.baseline.value("size"))
        return ", ".join(text for text in (_short_speed(model), size) if text)

    def _short_objective(self, model: ModelMeasurements) -> str:
        """Return the value of the objective: for speed the ratio to the baseline."""
        if model.baseline is None:
            return "baseline"
        if model.disturbance(self.objective):
            return "unstable"
        ratio = model.ratio(self.objective)
        return (
            formatting.ratio(ratio.value) if ratio else formatting.amount(self.objective, model.value(self.objective))
        )

    @property
    def _short_winner(self) -> str:
        return self.chosen.name if len(self.chosen.name) <= SHORT else "the best"

    def missed_by(self, model: ModelMeasurements, failures: Sequence[tuple[str, str]]) -> str:
        """Return by how much a candidate misses each goal or, if it meets all of them, the selected model.

        Empty for the selected model, for the baseline, for a model that the layout cannot hold, and if a metric was not
        measured.
        """
        if model is self.chosen or model.error or model.baseline is None or NO_METRIC.keys() & dict(failures):
            return ""
        misses = [self._miss(model, goal) for goal in self.goals if model.estimate(goal.metric)]
        if any(model.disturbance(goal.metric) for goal in self.goals) and not any(misses):
            return ""
        if any(misses):
            return "; ".join(filter(None, misses))
        if self.objective not in model.metrics or not all(model.estimate(goal.metric) for goal in self.goals):
            return ""
        return self._behind(model)

    def _miss(self, model: ModelMeasurements, goal: Goal) -> str:
        shortfall = goal.shortfall(model, proven=self.proven)
        bound = " at the pessimistic bound" if shortfall != goal.shortfall(model, proven=False) else ""
        amount = formatting.distance(goal.metric, shortfall)
        return f"misses {goal.text!r} by {amount}{bound}" if shortfall else ""

    def _behind(self, model: ModelMeasurements) -> str:
        chosen, objective = self.chosen, formatting.title(self.objective)
        if model.disturbance(self.objective) or chosen.disturbance(self.objective):
            return ""
        if self.baseline_passed and not is_significantly_better(model, self.objective):
            if ratio := model.ratio(self.objective):
                return f"misses a significant speedup by {formatting.ratio(1 + self.min_effect - ratio.low)}"
            missing = noise(model, self.objective) - model.gain(self.objective).interval[0]
            amount = formatting.distance(self.objective, missing)
            return f"misses a significant gain in {objective} by {amount}" if missing > 0 else ""
        if self._is_equal(model):
            larger = model.value("size") - chosen.value("size")
            return f"misses {self._winner} by {formatting.data_size(larger)} in size" if larger > 0 else ""
        gap = chosen.gain(self.objective).value - model.gain(self.objective).value
        return f"misses {self._winner} by {formatting.distance(self.objective, gap)} in {objective}" if gap > 0 else ""

    @property
    def _winner(self) -> str:
        return self.chosen.name if len(self.chosen.name) <= LONG else "the selected model"

    def _is_equal(self, model: ModelMeasurements) -> bool:
        pairs = ((model, self.chosen), (self.chosen, model))
        return all(is_indistinguishable(one, other, self.objective) for one, other in pairs)

    def _why_not(self, model: ModelMeasurements, failures: Sequence[tuple[str, str]]) -> list[str]:
        chosen, objective, winner = self.chosen, self.objective, self._winner
        if model.error:
            return [f"could not be measured: {' '.join(model.error.split())}"]
        if failures:
            (metric, first), *others = failures
            return [_lead_with_advantage(model, metric, first), *(failure for _, failure in others)]
        if model.baseline and objective not in model.metrics:
            return [f"{formatting.title(objective)} was not measured for it"]
        if model.baseline and self.baseline_passed and not is_significantly_better(model, objective):
            return [_not_significant(model, model.baseline, objective)]
        if model.baseline and self._is_equal(model):
            size = formatting.relative_size(chosen.value("size"), model.value("size"))
            return [f"indistinguishable from {winner} in {formatting.title(objective)}; {winner} is {size}"]
        if unstable := model.disturbance(objective) or chosen.disturbance(objective):
            return [f"{formatting.title(objective)} is {unstable}; {winner} is preferred by size"]
        return [f"{winner} is {_better(objective)}: {_versus(chosen, model, objective)}"]

    def _merits(self, model: ModelMeasurements) -> str:
        """Compare a candidate with the baseline: speed, quality, size, and the objective if it is another metric."""
        assert model.baseline
        metric = self.main_metric
        change = model.change(metric)
        interval = formatting.change_interval(metric, change.low, change.high)
        gain = formatting.change(metric, change.value, change.low, change.high)
        difference = f"{gain}{f', {interval}' if interval else ''}"
        own = model.metrics[metric]
        amount = formatting.amount(metric, own.value, own.low, own.high)
        quality = f"{formatting.title(metric)} {amount} ({difference})"
        size = formatting.relative_size(model.value("size"), model.baseline.value("size"))
        merits = [text for text in (_speed(model), quality, size) if text]
        if self.objective not in ("latency", "size", metric):
            merits.insert(0, f"{formatting.title(self.objective)} {_versus(model, model.baseline, self.objective)}")
        return ", ".join(merits)


def no_better_than_constant(model: ModelMeasurements, metric: str, constant: ConstantModel) -> str | None:
    """Explain that a model is not significantly better than the constant model; None if it is."""
    gain = model.gain_over_constant(metric)
    if gain is None or (gain.interval[0] > 0 and not gain.no_bound):
        return None
    own, other = (formatting.amount(metric, value) for value in (model.value(metric), constant.metrics[metric].value))
    title = formatting.title(metric)
    because = f": its interval is no bound, {gain.no_bound}" if gain.no_bound else ""
    return f"{title} is {own}, not significantly better than {other} of a constant answer ({constant.name}){because}"


def _speed(model: ModelMeasurements) -> str:
    """Return the speedup with its interval, and the verdict unless it is faster; empty if it was not compared."""
    ratio = model.speedup(model.small_batch)
    if not ratio:
        return ""
    if ratio.is_unstable:
        return f"speed {model.disturbance('latency')}"
    speed = _format_speedup(ratio)
    return speed if ratio.verdict == "faster" else f"{speed}: {ratio.verdict}"


def _short_speed(model: ModelMeasurements) -> str:
    ratio = model.speedup(model.small_batch)
    return "" if not ratio else "speed unstable" if ratio.is_unstable else formatting.ratio(ratio.value)


def _format_speedup(ratio: SpeedupEstimate) -> str:
    low, high = (formatting.ratio(end) for end in (ratio.low, ratio.high))
    value = formatting.ratio(ratio.value, ratio.low, ratio.high)
    return f"{value} as fast ({low} to {high})"


def _lead_with_advantage(model: ModelMeasurements, metric: str, failure: str) -> str:
    """Put the advantage of a fast or small model before the explanation of a missed goal on another metric."""
    ratio = model.speedup(model.small_batch)
    if ratio and ratio.verdict == "faster" and metric not in TIMES:
        return f"{formatting.ratio(ratio.value)} as fast, but {failure}"
    if model.baseline and _is_small(model) and not metric.startswith("size"):
        return f"{formatting.relative_size(model.value('size'), model.baseline.value('size'))}, but {failure}"
    return failure


def _is_small(model: ModelMeasurements) -> bool:
    return bool(model.baseline and model.value("size") < SMALL * model.baseline.value("size"))


def _not_significant(model: ModelMeasurements, baseline: ModelMeasurements, objective: str) -> str:
    ratio = model.ratio(objective)
    if disturbance := model.disturbance(objective):
        text = f"{formatting.title(objective)} is {disturbance}"
    elif ratio:
        speed, verdict = _format_speedup(ratio), ratio.verdict
        text = f"slower: {speed}" if verdict == "slower" else f"not significantly faster: {speed}, {verdict}"
    else:
        text = f"not significantly {_better(objective)}: {_versus(model, baseline, objective)}"
    if objective != "size" and _is_small(model):
        return f"{text}; it is {formatting.relative_size(model.value('size'), baseline.value('size'))}"
    return text


def _better(objective: str) -> str:
    words = {"latency": "faster", "throughput": "faster", "size": "smaller", "size_gzipped": "smaller when gzipped"}
    words |= {"cost": "cheaper", "cold_start": "faster to start"}
    return words.get(objective, f"better in {formatting.title(objective)}")


def _versus(one: ModelMeasurements, other: ModelMeasurements, metric: str) -> str:
    return f"{formatting.amount(metric, one.value(metric))} against {formatting.amount(metric, other.value(metric))}"
