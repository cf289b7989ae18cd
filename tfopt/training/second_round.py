"""One more round of fine-tuning for a model that misses a goal, before it is dropped (docs/adr/0009-a-second-round.md).

Every tenth example of the split ``train`` is held out of both rounds. On these alone it is decided whether there is a
second round, and which of the two is kept. The split ``eval``, where the model is judged in the end, has no say: a
second try at what is measured there would make its figures look better than they are.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfopt.artifacts import Examples, Model
from tfopt.artifacts.lineage import history
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, read_goals
from tfopt.measurement.model_measurements import Measured
from tfopt.training.compile_like_module import HELD
from tfopt.training.dataset import Source

SECOND_ROUND = "second_round"  # the folder of its history
RISING = ("accuracy", "acc", "auc", "precision", "recall")  # names of metrics that end so grow when they improve

log = logging.getLogger("tfopt")

Metrics = dict[str, float]


@dataclass(frozen=True)
class Recovery:
    """What was asked for.

    Attributes:
        epochs: Of the second round; 0 for no such round.
        goals: As they were written.
    """

    epochs: int
    goals: Sequence[str]


class SecondRound:
    """Judges a fine-tuned model on what it did not learn, and gives it its second round."""

    def __init__(
        self, asked: Recovery, given: Model, examples: Examples, baseline: Any, sources: Mapping[str, Source]
    ) -> None:
        """Measure the baseline; does nothing when no second round was asked for.

        Args:
            asked: The epochs and the goals.
            given: The model that is fine-tuned. When it was itself made so, its card knows the baseline.
            examples: What is learnt from.
            baseline: The given model, loaded and compiled, before anything is done to it.
            sources: Of ``sources_of`` with ``held_out``.

        Raises:
            ComponentError: When none of the goals is about what the module measures.
        """
        self.asked, self.data = asked, examples.digest if asked.epochs else ""
        if asked.epochs:
            self.held = sources[HELD]
            self.baseline = _known(given, self.data) or _measure(baseline, self.held)
            self.goals = _settle(read_goals(asked.goals), self.baseline)

    def run(self, model: Any, again: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any, dict[str, Any]]:
        """Return the better model, what ``again`` said of it (None for the first), and what the card says.

        Args:
            model: Fine-tuned once, compiled.
            again: Fine-tunes it once more, and returns it compiled, with whatever there is to say of that.
        """
        if not self.asked.epochs:
            return model, None, {}
        first = _measure(model, self.held)
        facts: dict[str, Any] = {
            "data": self.data,
            "records": self.held.count,
            "baseline": self.baseline,
            "first": first,
        }
        missed = [(goal, said) for goal in self.goals if (said := self._misses(goal, first))]
        if not missed:
            return model, None, facts
        (goal, said), *_ = missed
        log.info(
            "a second round of %d epochs, since on %d held-out examples it %s", self.asked.epochs, self.held.count, said
        )
        weights = model.get_weights()
        tuned, told = again(model)
        second = _measure(tuned, self.held)
        better = _gain(goal.metric, second, first) > 0
        facts |= {"missed": said, "metric": goal.metric, "second": second, "epochs": self.asked.epochs}
        facts["kept"] = "second" if better else "first"
        log.info(
            "%s %.4g -> %.4g there: the %s is kept", goal.metric, first[goal.metric], second[goal.metric], facts["kept"]
        )
        if better:
            return tuned, told, facts
        model.set_weights(weights)
        return model, None, facts

    def _misses(self, goal: Goal, found: Metrics) -> str | None:
        return goal.failure(_measured(found, _measured(self.baseline)), proven=False, examples=self.held.count)


def _known(given: Model, data: str) -> Metrics | None:
    """The first baseline that the model's ancestors were compared with, on the same examples."""
    found = (step.get("recovery") or (step.get("fine_tuned") or {}).get("recovery") for step in history(given))
    return next((dict(one["baseline"]) for one in found if one and one["data"] == data), None)


def _measure(model: Any, held: Source) -> Metrics:
    found = model.evaluate(held.in_order(), return_dict=True, verbose=0)
    return {name: float(value) for name, value in found.items()}


def _settle(goals: Sequence[Goal], measured: Metrics) -> list[Goal]:
    """The goals about what the module measures, under its names."""
    main = next((name for name in measured if not name.endswith("loss")), "loss")
    found = {goal: _name(goal.metric, main, measured) for goal in goals}
    settled = [replace(goal, metric=name) for goal, name in found.items() if name]
    if not settled:
        raise ComponentError(
            f"recover with the goals {', '.join(goal.text for goal in goals) or 'none'}",
            f"one on {QUALITY}, or on one of {', '.join(measured)}, which the module's model is compiled with",
            'write for example "quality max_degradation 1%", or compile the module\'s model with that metric',
        )
    return settled


def _name(wanted: str, main: str, measured: Metrics) -> str | None:
    if wanted == QUALITY:
        return main
    return next((name for name in measured if name == wanted or name.endswith(f"_{wanted}")), None)


def _measured(found: Metrics, baseline: Measured | None = None) -> Measured:
    metrics = {name: {"value": value, "higher_is_better": name.endswith(RISING)} for name, value in found.items()}
    return Measured("", "", "", {"metrics": metrics}, {}, baseline)


def _gain(metric: str, found: Metrics, than: Metrics) -> float:
    return _measured(found, _measured(than)).gain(metric).value
