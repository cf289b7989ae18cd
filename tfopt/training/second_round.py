"""A second round of fine-tuning for a model that misses a goal (docs/adr/0009-second-round-of-fine-tuning.md).

Every tenth example of the split ``train`` is held out of both rounds. Only these examples decide whether there is a
second round, and which of the two models is used. The split ``eval``, on which the model is evaluated in the end, is
not used for it: selecting between two models there would make its metrics look better than they are.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfopt.artifacts import Examples, Model
from tfopt.declaration.step_order import applied_steps
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, read_goals
from tfopt.measurement.model_measurements import ModelMeasurements, from_quality
from tfopt.metric_table import HIGHER_IS_BETTER
from tfopt.reports.evaluation_report import Metric
from tfopt.training.datasets.dataset import Source
from tfopt.training.fine_tuning_inputs import FineTuningSettings
from tfopt.training.fit_loop import History, evaluate_source
from tfopt.value_types import JsonObject

HELD_OUT = "held"  # the examples of `train` that are held out
SECOND_ROUND = "second_round"  # the folder of its history

log = logging.getLogger(__name__)

Metrics = dict[str, float]


class SecondRound:
    """Evaluate a fine-tuned model on held-out examples, and fine-tune it again if it misses a goal."""

    def __init__(
        self,
        settings: FineTuningSettings,
        parent: Model,
        examples: Examples,
        baseline: Any,
        sources: Mapping[str, Source],
    ) -> None:
        """Evaluate the baseline, if a second round is requested.

        It is the parent, loaded, compiled and not yet changed. If a component with a second round made the parent, the
        metrics of the first baseline are used instead, from the model card.

        Raises:
            ComponentError: If none of the goals is on a metric of the module.
        """
        self.epochs, self.data = settings.recover, examples.digest if settings.recover else ""
        if self.epochs:
            self.held_out = sources[HELD_OUT]
            self.baseline = _first_baseline(parent, self.data) or evaluate_source(baseline, self.held_out)
            self.goals = _name_metrics(read_goals(settings.goals), self.baseline)

    def run(
        self, model: Any, fit_again: Callable[[Any], tuple[Any, History]]
    ) -> tuple[Any, History | None, JsonObject]:
        """Run the second round, which returns a compiled model and its history, if the first model misses a goal.

        Returns:
            The better model, the history of the second round (None if the first model is used), and the facts for the
            model card.
        """
        if not self.epochs:
            return model, None, {}
        first = evaluate_source(model, self.held_out)
        facts: JsonObject = {"data": self.data, "records": self.held_out.count, "baseline": self.baseline}
        facts["first"] = first
        missed = [(goal, failure) for goal in self.goals if (failure := self._failure(goal, first))]
        if not missed:
            return model, None, facts
        (goal, failure), *_ = missed
        epochs, count = self.epochs, self.held_out.count
        log.info("a second round of %d epochs, since on %d held-out examples it %s", epochs, count, failure)
        weights = model.get_weights()
        tuned, history_of_second = fit_again(model)
        second = evaluate_source(tuned, self.held_out)
        is_better = _gain(goal.metric, second, first) > 0
        used = "second" if is_better else "first"
        facts |= {"missed": failure, "metric": goal.metric, "second": second, "epochs": epochs, "kept": used}
        before, after = first[goal.metric], second[goal.metric]
        log.info("%s %.4g -> %.4g on them: the %s model is used", goal.metric, before, after, used)
        if is_better:
            return tuned, history_of_second, facts
        model.set_weights(weights)
        return model, None, facts

    def _failure(self, goal: Goal, metrics: Metrics) -> str | None:
        measured = _measured(metrics, _measured(self.baseline))
        return goal.failure(measured, proven=False, examples=self.held_out.count)


def _first_baseline(parent: Model, data: str) -> Metrics | None:
    """Return the metrics of the first baseline in the lineage that was evaluated on the same examples."""
    recoveries = (step.recovery for step in applied_steps(parent))
    return next((dict(recovery["baseline"]) for recovery in recoveries if recovery and recovery["data"] == data), None)


def _name_metrics(goals: Sequence[Goal], metrics: Metrics) -> list[Goal]:
    """Return the goals on metrics of the module, with the module's metric names."""
    quality = next((name for name in metrics if not name.endswith("loss")), "loss")
    named = {goal: _metric_name(goal.metric, quality, metrics) for goal in goals}
    matches = [replace(goal, metric=name) for goal, name in named.items() if name]
    if not matches:
        raise ComponentError(
            f"recover with the goals {', '.join(goal.text for goal in goals) or 'none'}",
            f"one on {QUALITY}, or on one of {', '.join(metrics)}, which the module's model is compiled with",
            'write for example "quality max_degradation 1%", or compile the module\'s model with that metric',
        )
    return matches


def _metric_name(metric: str, quality: str, metrics: Metrics) -> str | None:
    if metric == QUALITY:
        return quality
    return next((name for name in metrics if name == metric or name.endswith(f"_{metric}")), None)


def _measured(values: Metrics, baseline: ModelMeasurements | None = None) -> ModelMeasurements:
    metrics = {name: Metric(value, value, value, name.endswith(HIGHER_IS_BETTER)) for name, value in values.items()}
    return from_quality(metrics, baseline)


def _gain(metric: str, values: Metrics, baseline: Metrics) -> float:
    return _measured(values, _measured(baseline)).gain(metric).value
