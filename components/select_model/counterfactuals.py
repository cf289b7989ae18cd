"""What it would take for a model that lost to win: what the goals would have to allow, how fast it would have to be.

Nothing is said that was not tried: the choice is made again with other goals, or with the model better than it is.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tfopt import formatting as wording
from tfopt.components.select_model.choice import choose
from tfopt.components.select_model.supposing import TIMED, least, supposed
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import Estimate, ModelMeasurements
from tfopt.measurement.ranking import is_indistinguishable


@dataclass(frozen=True)
class Stakes:
    """All that a choice was made of.

    Attributes:
        models: The parent first.
        passed: The names of those that meet every goal.
        unfit: The names of those that no goal could let in.
        goals: Settled.
        objective: What the winner is best at.
        proven: Whether the bad end of an interval decides.
        min_effect: The relative difference in speed that counts as one.
    """

    models: Sequence[ModelMeasurements]
    passed: Collection[str]
    unfit: Collection[str]
    goals: Sequence[Goal]
    objective: str
    proven: bool
    min_effect: float

    def to_win(self, model: ModelMeasurements, chosen: ModelMeasurements) -> str:
        """What it would take, in a sentence; empty for the chosen one, the parent, and what nothing could help."""
        if model is chosen or model.error or model.parent is None or self.objective not in model.metrics:
            return ""
        missed = [goal for goal in self.goals if self._misses(model, goal)]
        if model.name in self.unfit or any(goal.metric not in model.metrics for goal in missed):
            return ""
        if not missed:
            return f"would win {self._ahead(model, chosen, self.passed)}"
        wanted = "; and ".join(self._wanted(goal, model) for goal in missed)
        passed = self._passing(model, missed)
        instead = choose(self.models, passed, self.objective)
        if instead is model:
            return f"would win if {wanted}"
        return f"would meet the goals if {wanted}; to win, then {self._ahead(model, instead, passed)}"

    def _misses(self, model: ModelMeasurements, goal: Goal) -> bool:
        return goal.failure(model, proven=self.proven, examples=0) is not None

    def _passing(self, model: ModelMeasurements, missed: Sequence[Goal]) -> set[str]:
        """The names of those that meet the goals once this model does: what lets it in may let in others."""
        goals = [self._relaxed(goal, model) if goal in missed else goal for goal in self.goals]
        others = (one for one in self.models if not one.error and one.name not in self.unfit)
        return {one.name for one in others if one is model or not any(self._misses(one, goal) for goal in goals)}

    def _worst(self, goal: Goal, model: ModelMeasurements) -> float:
        """What a goal is held against: the metric for a threshold, else how much better than the parent's it is."""
        if goal.kind == "threshold":
            found = model.metrics[goal.metric]
            return found.interval[0 if model.higher_is_better(goal.metric) else 1] if self.proven else found.value
        gain = model.gain(goal.metric)
        return gain.interval[0] if self.proven else gain.value

    def _relaxed(self, goal: Goal, model: ModelMeasurements) -> Goal:
        """The goal as it would have to be for the model to meet it."""
        if goal.kind == "max_regression":  # that would not change: the model would
            return goal
        worst = self._worst(goal, model)
        if goal.kind == "threshold":
            return replace(goal, number=worst)
        kind = "min_improvement" if goal.kind == "min_improvement" and worst > 0 else "max_degradation"
        return replace(goal, kind=kind, number=abs(worst), relative=False)

    def _wanted(self, goal: Goal, model: ModelMeasurements) -> str:
        """What a goal would have to say, and how sure it is that it would have to."""
        said, found = wording.title(goal.metric), model.metrics[goal.metric]
        relaxed = self._relaxed(goal, model)
        if goal.kind == "max_regression":
            return f"{said} were as in earlier runs"
        if goal.kind == "threshold":
            up = model.higher_is_better(goal.metric)
            limit = f"at {'least' if up else 'most'} {wording.amount(goal.metric, relaxed.number)}"
            between = _between(goal.metric, found)
            return f"the goal asked for {said} of {limit} (it has {wording.amount(goal.metric, found.value)}{between})"
        moved = model.change(goal.metric)
        ends = wording.change_interval(goal.metric, moved.low, moved.high)
        measured = f"measured: {wording.change(goal.metric, moved.value)}{f', {ends}' if ends else ''}"
        amount = wording.distance(goal.metric, relaxed.number)
        if relaxed.kind == "min_improvement":
            return f"the goal asked for {amount} better in {said} ({measured})"
        return f"the goal allowed {said} to be {amount} worse ({measured})"

    def _ahead(self, model: ModelMeasurements, winner: ModelMeasurements, passed: Collection[str]) -> str:
        """How much better it would have to be than it is."""
        timed, title = self.objective in TIMED, wording.title(self.objective)
        if timed and not _ratio(model, self.objective):
            return f"if its speed were compared with {winner.name}"
        if winner.parent is None:  # nothing else is proven better than that one
            doubt = f"beyond doubt ({self._measured(model)})"
            if timed:
                return f"if it were at least {100 * self.min_effect:g}% faster than {winner.name} {doubt}"
            return f"if it were better than {winner.name} in {title} {doubt}"
        if self.objective != "size" and is_indistinguishable(model, winner, self.objective):
            smaller = max(0.0, model.value("size") - winner.value("size")) + 1
            if self._wins(model, "size", smaller, passed):
                return f"if it were smaller than {winner.name}: in {title} they cannot be told apart"
        now = model.value(self.objective)
        better = least(self.objective, now, lambda amount: self._wins(model, self.objective, amount, passed))
        if better is None:
            return f"if it were better than {winner.name} in {title} beyond doubt"
        amount = wording.ratio(better) if timed else wording.distance(self.objective, better)
        said = f"{amount} as fast as it is" if timed else f"{amount} better in {title}"
        return f"if it were {said} ({self._measured(model)}; {winner.name}: {self._found(winner)})"

    def _wins(self, model: ModelMeasurements, metric: str, better: float, passed: Collection[str]) -> bool:
        """Whether it would be chosen, were a metric of it so much better."""
        changed = supposed(model, metric, better, self.min_effect)
        models = [changed if one is model else one for one in self.models]
        return choose(models, passed, self.objective) is changed

    def _measured(self, model: ModelMeasurements) -> str:
        return f"measured: {self._found(model)}"

    def _found(self, model: ModelMeasurements) -> str:
        """The objective as it was measured, in comparison with the parent where it is one of speed."""
        if ratio := _ratio(model, self.objective):
            value, low, high = (wording.ratio(ratio[end]) for end in ("value", "low", "high"))
            return f"{value}, {low} to {high}"
        moved = model.change(self.objective)
        ends = wording.change_interval(self.objective, moved.low, moved.high)
        return f"{wording.change(self.objective, moved.value)}{f', {ends}' if ends else ''}"


def _ratio(model: ModelMeasurements, objective: str) -> dict[str, float] | None:
    return model.speedup(getattr(model, TIMED[objective])) if objective in TIMED else None


def _between(metric: str, found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f", {wording.amount(metric, found.low)} to {wording.amount(metric, found.high)}"
