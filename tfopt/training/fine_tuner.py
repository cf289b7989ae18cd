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

from tfopt.artifacts import Examples, KerasModel
from tfopt.training.compile_like_module import compile_like, evaluate_model, read_splits
from tfopt.training.compute.fused_batch_norm import fuse_batch_norms
from tfopt.training.fine_tuning_inputs import FineTuningSettings
from tfopt.training.fit_loop import History, fit_model
from tfopt.training.second_round import SECOND_ROUND, SecondRound
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
