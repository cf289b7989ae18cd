"""Fine-tuning for `prune`, `cluster` and `quantize`: one round, and a second round if a goal is missed."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.declaration.step_order import applied_steps
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, read_goals
from tfopt.measurement.model_measurements import ModelMeasurements, from_quality
from tfopt.metric_table import HIGHER_IS_BETTER
from tfopt.reports.evaluation_report import Metric
from tfopt.training.compute.fused_batch_norm import fuse_batch_norms
from tfopt.training.datasets.dataset import Source
from tfopt.training.distillation import UnsupportedLossError
from tfopt.training.fine_tuning_inputs import FineTuningSettings, TeacherSettings
from tfopt.training.fit_loop import History, evaluate_model, evaluate_source, fit_model
from tfopt.training.model_assembly import Assembly, check_compiled, check_same_keras
from tfopt.training.teacher_predictions import prepare_distillation
from tfopt.training.training_setup import TrainingSetup, find_files
from tfopt.training.user_module import UserModule
from tfopt.value_types import JsonObject

HELD_OUT = "held"  # the examples of `train` that are held out
SECOND_ROUND = "second_round"  # the folder of its history
Metrics = dict[str, float]

log = logging.getLogger(__name__)


class FineTuner:
    """The module, the examples and the goals that a model is fine-tuned with."""

    def __init__(
        self,
        model: Any,
        parent: KerasModel,
        user: UserModule,
        examples: Examples,
        folder: Path,
        settings: FineTuningSettings,
        seed: int,
    ) -> None:
        """Compile the model, as loaded from the parent, and evaluate it if there may be a second round.

        ``history.json`` and ``logs/`` are written into the folder. The seed determines the order of the examples; the
        second round uses ``seed + 1``. Raise ComponentError if the module, the examples, the goals and the model do not
        fit.
        """
        self.user, self.folder, self.settings, self.seed = user, folder, settings, seed
        self.compile(model)
        self.sources = read_splits(model, examples, settings.label, held_out=settings.recover > 0)
        self.second = SecondRound(settings, parent, examples, model, self.sources)
        self._distill: Callable[[Any], AbstractContextManager[None]] = lambda model: nullcontext()

    @contextmanager
    def distillation(
        self, teacher: Model | None, model: Any, settings: TeacherSettings, *, is_required: bool = True
    ) -> Iterator[JsonObject]:
        """Train by distillation, if there is a teacher, and yield facts for the model card.

        The compiled model has the outputs of those that will be fine-tuned. Raise ComponentError if the teacher and the
        model do not fit, or the module's loss has no form for a teacher; if the teacher is not required, such a loss is
        used without it.
        """
        if teacher is None or not settings.alpha:
            yield {}
            return
        with TemporaryDirectory(prefix="tfopt-teacher-") as folder:
            place, train, facts = Path(folder, "outputs"), self.sources["train"], JsonObject()
            try:
                self.sources["train"], self._distill, facts = prepare_distillation(
                    *(teacher, model, train, place, self.user.path),
                    temperature=settings.temperature,
                    alpha=settings.alpha,
                )
            except UnsupportedLossError as error:
                if is_required:
                    raise
                log.info("trained on the labels alone: %s", error.received)
            yield facts

    def compile(self, model: Any) -> Any:
        """Compile a model as the module does, with a new optimizer and schedule, and return it."""
        compile_like(model, self.user, self.settings.learning_rate)
        fuse_batch_norms(model)
        return model

    def evaluate(self, model: Any) -> dict[str, float]:
        """Return the loss and metrics of a compiled model on ``eval``."""
        return evaluate_model(model, self.sources)

    def fit(self, model: Any, folder: Path, epochs: int, seed: int, **options: Any) -> History:
        """Train a compiled model without early stopping; ``options`` are those of `fit_model`."""
        options |= {"epochs": epochs, "batch_size": self.settings.batch_size, "patience": epochs, "seed": seed}
        with self._distill(model):
            return fit_model(model, self.user, self.sources, folder, **options)

    def fine_tune(self, model: Any) -> tuple[Any, JsonObject]:
        """Fine-tune a compiled model; return it with its best weights, and the facts for its model card.

        Raises:
            ComponentError: If a loss is NaN or infinite, or the model raises.
        """
        settings = self.settings

        def fit_again(model: Any) -> tuple[Any, History]:
            return self.compile(model), self.fit(model, self.folder / SECOND_ROUND, settings.recover, self.seed + 1)

        first = self.fit(model, self.folder, settings.epochs, self.seed)
        model, second, recovery = self.second.run(model, fit_again)
        history = second or first
        facts: JsonObject = {"best_epoch": history["best_epoch"], "epochs": len(history["epochs"])}
        return model, facts | ({"recovery": recovery} if recovery else {})


class SecondRound:
    """Evaluate a fine-tuned model on held-out examples, and fine-tune it again if it misses a goal.

    Every tenth example of the split ``train`` is held out of both rounds. Only these examples decide whether there is a
    second round, and which of the two models is used (docs/adr/0009-second-round-of-fine-tuning.md). The split
    ``eval``, on which the model is evaluated in the end, is not used for it: selecting between two models there would
    make its metrics look better than they are.
    """

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
        metrics of the first baseline are used instead, from the model card. Raise ComponentError if none of the goals
        is on a metric of the module.
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

        Return the better model, the history of the second round (None if the first model is used), and the facts for
        the model card.
        """
        if not self.epochs:
            return model, None, {}
        first = evaluate_source(model, self.held_out)
        facts: JsonObject = {"data": self.data, "records": self.held_out.count, "baseline": self.baseline}
        facts["first"] = first
        measured, count = _measured(first, _measured(self.baseline)), self.held_out.count
        failures = [(goal, goal.failure(measured, proven=False, examples=count)) for goal in self.goals]
        missed = [(goal, failure) for goal, failure in failures if failure]
        if not missed:
            return model, None, facts
        (goal, failure), *_ = missed
        log.info("a second round of %d epochs, since on %d held-out examples it %s", self.epochs, count, failure)
        weights = model.get_weights()
        tuned, history_of_second = fit_again(model)
        second = evaluate_source(tuned, self.held_out)
        is_better = _measured(second, _measured(first)).gain(goal.metric).value > 0
        used = "second" if is_better else "first"
        facts |= {"missed": failure, "metric": goal.metric, "second": second, "epochs": self.epochs, "kept": used}
        before, after = first[goal.metric], second[goal.metric]
        log.info("%s %.4g -> %.4g on them: the %s model is used", goal.metric, before, after, used)
        if is_better:
            return tuned, history_of_second, facts
        model.set_weights(weights)
        return model, None, facts


def compile_like(model: Any, user: UserModule, learning_rate: float | None) -> None:
    """Compile a loaded model with the arguments of ``compile`` in the module's ``build_model()``; keep its weights.

    A learning rate replaces the optimizer's own, which a schedule may have reduced to almost zero. Raise ComponentError
    if the module's model uses the other Keras, is not compiled, or does not fit this model.
    """
    built = user.call("build_model")
    fix = "pass the module that the model was trained with"
    check_same_keras(f"module {user.path}", built, model, "as the model to fine-tune", fix)
    check_compiled(built, user)
    config = {key: value for key, value in built._compile_config.config.items() if key != "steps_per_execution"}
    optimizer = keras_models.library(model).optimizers.get(config.pop("optimizer"))
    if learning_rate is not None:
        optimizer = type(optimizer).from_config({**optimizer.get_config(), "learning_rate": learning_rate})
    try:
        model.compile(optimizer, **config)
    except Exception as error:
        received = f"module {user.path}: its loss and metrics do not fit {model.name}: {first_line(error)}"
        fix = "pass that one, or name the model's outputs as the module does"
        raise ComponentError(received, "the module that the model was trained with", fix) from error


def read_splits(model: Any, examples: Examples, label: str, *, held_out: bool = False) -> dict[str, Source]:
    """Return the sources that a compiled model reads the splits ``train`` and ``eval`` from.

    With ``held_out``, every tenth example of ``train`` is in the source `HELD_OUT` instead. Raise ComponentError if a
    split is missing or damaged, or the model and the examples do not fit.
    """
    files, stored = find_files(examples, ("train", "eval"), label)
    sources = TrainingSetup(files, stored, label, Assembly(model, None, model)).read_sources()
    if held_out:
        sources["train"], sources[HELD_OUT] = sources["train"].hold_out()
    return sources


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
