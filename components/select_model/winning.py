"""What it would take for a model that lost to win: what the goals would have to allow, how fast it would have to be."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tfopt import wording
from tfopt.components.select_model.choice import choose
from tfopt.goals import Goal
from tfopt.measurements import Estimate, Measured

TIMED = ("latency", "throughput")


@dataclass(frozen=True)
class Stakes:
    """All that a choice was made of.

    Attributes:
        models: The parent first.
        passed: The names of those that meet every goal.
        goals: Settled.
        objective: What the winner is best at.
        proven: Whether the bad end of an interval decides.
        min_effect: The relative difference in speed that counts as one.
    """

    models: Sequence[Measured]
    passed: Collection[str]
    goals: Sequence[Goal]
    objective: str
    proven: bool
    min_effect: float

    def to_win(self, model: Measured, chosen: Measured) -> str:
        """What it would take, in a sentence; empty for the chosen one, the parent, and what could not be measured."""
        if model is chosen or model.error or model.parent is None or self.objective not in model.metrics:
            return ""
        missed = [goal for goal in self.goals if goal.failure(model, proven=self.proven, examples=0)]
        if any(goal.metric not in model.metrics for goal in missed):
            return ""
        if not missed:
            return f"would win {self._ahead(model, chosen)}"
        wanted = "; and ".join(self._relaxed(goal, model) for goal in missed)
        instead = choose(self.models, {*self.passed, model.name}, self.objective)
        if instead is model:
            return f"would win if {wanted}"
        return f"would meet the goals if {wanted}; to win, then {self._ahead(model, instead)}"

    def _relaxed(self, goal: Goal, model: Measured) -> str:
        """What a goal would have to say, and how sure it is that it would have to."""
        said, found = wording.title(goal.metric), model.metrics[goal.metric]
        up = model.higher_is_better(goal.metric)
        if goal.kind == "threshold":
            worst = found.interval[0 if up else 1] if self.proven else found.value
            between = _between(goal.metric, found)
            limit = f"at {'least' if up else 'most'} {wording.amount(goal.metric, worst)}"
            return f"the goal asked for {said} of {limit} (it has {wording.amount(goal.metric, found.value)}{between})"
        if goal.kind == "max_regression":
            return f"{said} were as in earlier runs"
        gain = model.gain(goal.metric)
        worst = gain.interval[0] if self.proven else gain.value
        moved = model.change(goal.metric)
        ends = wording.change_between(goal.metric, moved.low, moved.high)
        measured = f"measured: {wording.change(goal.metric, moved.value)}{f', {ends}' if ends else ''}"
        amount = wording.distance(goal.metric, abs(worst))
        if goal.kind == "min_improvement" and worst > 0:
            return f"the goal asked for {amount} better in {said} ({measured})"
        return f"the goal allowed {said} to be {amount} worse ({measured})"

    def _ahead(self, model: Measured, winner: Measured) -> str:
        """How much better at the objective it would have to be than it is."""
        if self.objective in TIMED:
            return self._faster(model, winner)
        gap = wording.distance(self.objective, abs(winner.value(self.objective) - model.value(self.objective)))
        if winner.parent is None:
            ends = wording.change_between(self.objective, *_ends(model.change(self.objective)))
            now = wording.change(self.objective, model.change(self.objective).value)
            measured = f"{now}{f', {ends}' if ends else ''}"
            return f"if it were better than {winner.name} in {wording.title(self.objective)} beyond doubt ({measured})"
        return f"if it were {gap} better in {wording.title(self.objective)}, as {winner.name} is"

    def _faster(self, model: Measured, winner: Measured) -> str:
        batch = model.small_batch if self.objective == "latency" else model.large_batch
        own, best = model.speedup(batch), winner.speedup(batch)
        if not own:
            return f"if its speed were compared with {winner.name}"
        if not best:  # the parent
            least, now = wording.times(1 + self.min_effect), _speed(own)
            return f"if it were at least {least} as fast as {winner.name} beyond doubt ({now})"
        factor, low, high = (best[b] / own[o] for b, o in (("value", "value"), ("low", "high"), ("high", "low")))
        if factor <= 1:
            return f"if it were smaller than {winner.name}: in speed they cannot be told apart"
        between = f"{wording.times(low)} to {wording.times(high)}"
        return f"if it were {wording.times(factor)} as fast as it is ({between}), which {winner.name} is"


def _speed(ratio: dict[str, float]) -> str:
    return f"measured: {wording.times(ratio['value'])}, {wording.times(ratio['low'])} to {wording.times(ratio['high'])}"


def _between(metric: str, found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f", {wording.amount(metric, found.low)} to {wording.amount(metric, found.high)}"


def _ends(found: Estimate) -> tuple[float | None, float | None]:
    return found.low, found.high
