"""Fine-tuning as `prune`, `cluster` and `quantize` do it: in one round, or in two where a goal is missed.

with reproducible(seed):
    user = UserModule(module)            # first: it registers the user's own layers
    model = keras_models.load(given)
    rounds = Rounds(model, given, user, examples, folder, asked)
    before = rounds.scores(model)
    model, facts = rounds.learn(model)
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, KerasModel
from tfopt.training.compile_like_module import compile_like, scores, sources_of
from tfopt.training.fit_loop import fit_model
from tfopt.training.second_round import SECOND_ROUND, Recovery, SecondRound
from tfopt.training.user_module import UserModule


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings:
    """What every fine-tuning can be asked for, under the names of the components' parameters.

    Attributes:
        recovery: Their ``recover`` and ``goals``.
    """

    label: str
    epochs: int
    recovery: Recovery
    batch_size: int
    learning_rate: float | None
    seed: int


class FineTuner:
    """The module, the examples and the goals that a model is fine-tuned with.

    Attributes:
        sources: Of `sources_of`.
        second: Decides whether there is a second round.
    """

    def __init__(
        self, model: Any, given: KerasModel, user: UserModule, examples: Examples, folder: Path, asked: FineTuningSettings
    ) -> None:
        """Compile the model, and measure it where there may be a second round.

        Args:
            model: Loaded; nothing was done to it yet.
            given: Where it came from.
            user: The module that it was trained with.
            examples: What is learnt from.
            folder: Where ``history.json`` and ``logs/`` are written.
            asked: How to learn.

        Raises:
            ComponentError: When the module, the examples, the goals and the model do not fit.
        """
        self.user, self.folder, self.asked = user, folder, asked
        self.compile(model)
        self.sources = sources_of(model, examples, asked.label, held_out=asked.recovery.epochs > 0)
        self.second = SecondRound(asked.recovery, given, examples, model, self.sources)

    def compile(self, model: Any) -> Any:
        """Compile a model as the module does, its optimizer and schedule at their beginning, and return it."""
        compile_like(model, self.user, self.asked.learning_rate)
        return model

    def evaluate(self, model: Any) -> dict[str, float]:
        """The loss and metrics of a compiled model on ``eval``."""
        return scores(model, self.sources)

    def fine_tune(self, learner: Any) -> tuple[Any, dict[str, Any]]:
        """Fine-tune a compiled model; return it with its best weights, and what the card says of the way there.

        Raises:
            ComponentError: When a loss is NaN or infinite, or the model raises.
        """
        asked = self.asked

        def tuned(folder: Path, epochs: int, seed: int) -> dict[str, Any]:
            given: dict[str, Any] = {"epochs": epochs, "batch_size": asked.batch_size, "patience": epochs, "seed": seed}
            return fit_model(learner, self.user, self.sources, folder, **given)

        def again(learner: Any) -> tuple[Any, dict[str, Any]]:
            return self.compile(learner), tuned(self.folder / SECOND_ROUND, asked.recovery.epochs, asked.seed + 1)

        first = tuned(self.folder, asked.epochs, asked.seed)
        learner, later, recovery = self.second.run(learner, again)
        history = later or first
        facts = {"best_epoch": history["best_epoch"], "epochs": len(history["epochs"])}
        return learner, facts | ({"recovery": recovery} if recovery else {})
