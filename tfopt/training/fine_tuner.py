"""Fine-tuning for `prune`, `cluster` and `quantize`: one round, and a second round if a goal is missed.

with reproducible(seed):
    user = UserModule(module)            # first: it registers the user's own layers
    model = keras_models.load(parent)
    tuner = FineTuner(model, parent, user, examples, folder, settings, seed)
    before = tuner.evaluate(model)
    model, facts = tuner.fine_tune(model)
"""

from pathlib import Path
from typing import Any

from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.training.compute.fused_batch_norm import fuse_batch_norms
from tfopt.training.datasets.dataset import Source
from tfopt.training.fine_tuning_inputs import FineTuningSettings
from tfopt.training.fit_loop import History, evaluate_model, fit_model
from tfopt.training.model_assembly import Assembly, check_compiled, check_same_keras
from tfopt.training.second_round import HELD_OUT, SECOND_ROUND, SecondRound
from tfopt.training.training_setup import TrainingSetup, find_files
from tfopt.training.user_module import UserModule
from tfopt.value_types import JsonObject


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
        second round uses ``seed + 1``.

        Raises:
            ComponentError: If the module, the examples, the goals and the model do not fit.
        """
        self.user, self.folder, self.settings, self.seed = user, folder, settings, seed
        self.compile(model)
        self.sources = read_splits(model, examples, settings.label, held_out=settings.recover > 0)
        self.second = SecondRound(settings, parent, examples, model, self.sources)

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


def compile_like(model: Any, user: UserModule, learning_rate: float | None) -> None:
    """Compile a loaded model with the arguments of ``compile`` in the module's ``build_model()``; keep its weights.

    A learning rate replaces the optimizer's own, which a schedule may have reduced to almost zero.

    Raises:
        ComponentError: If the module's model uses the other Keras, is not compiled, or does not fit this model.
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
        raise ComponentError(
            f"module {user.path}: its loss and metrics do not fit {model.name}: {first_line(error)}",
            "the module that the model was trained with",
            "pass that one, or name the model's outputs as the module does",
        ) from error


def read_splits(model: Any, examples: Examples, label: str, *, held_out: bool = False) -> dict[str, Source]:
    """Return the sources that a compiled model reads the splits ``train`` and ``eval`` from.

    With ``held_out``, every tenth example of ``train`` is in the source `HELD_OUT` instead.

    Raises:
        ComponentError: If a split is missing or damaged, or the model and the examples do not fit.
    """
    files, stored = find_files(examples, ("train", "eval"), label)
    sources = TrainingSetup(files, stored, label, Assembly(model, None, model)).read_sources()
    if held_out:
        sources["train"], sources[HELD_OUT] = sources["train"].hold_out()
    return sources
