"""What each output of a student can learn from a teacher: told by the loss that its module compiles it with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.training.targets import built_in, by_output, words_of

CLASSES = ("sparse_categorical_crossentropy", "categorical_crossentropy", "categorical_focal_crossentropy")
CHANCES = ("binary_crossentropy", "binary_focal_crossentropy")
VALUES = (
    *("mean_squared_error", "mse", "mean_absolute_error", "mae", "huber", "huber_loss", "log_cosh", "logcosh"),
    *("mean_absolute_percentage_error", "mape", "mean_squared_logarithmic_error", "msle"),
    *("cosine_similarity", "poisson"),
)
KINDS: dict[str, Literal["classes", "chances", "values"]] = {
    **dict.fromkeys(CLASSES, "classes"),
    **dict.fromkeys(CHANCES, "chances"),
    **dict.fromkeys(VALUES, "values"),
}


@dataclass(frozen=True)
class Subject:
    """One output that learns.

    Attributes:
        output: Its name.
        shape: Of one answer.
        kind: Classes that exclude each other, chances that do not, or values that are no chances.
        loss: As the module compiled it.
        logits: Whether the student's output is logits.
        weight: Of this output in the loss.
    """

    output: str
    shape: tuple[int, ...]
    kind: Literal["classes", "chances", "values"]
    loss: Any
    logits: bool
    weight: float


def subjects(model: Any, module: Path) -> list[Subject]:
    """Return what the outputs of a compiled model learn, those without a loss left out.

    Raises:
        ComponentError: When an output's loss or shape, or a training step of the module's own, leaves that open.
    """
    base = keras_models.library(model).Model
    own = [name for name in ("train_step", "compute_loss") if getattr(type(model), name) is not getattr(base, name)]
    if own:
        raise ComponentError(
            f"a teacher, and {type(model).__name__} of {module} with a {' and a '.join(own)} of its own",
            "the loss that compile() was given",
            "teach in the module, or leave the teacher out",
        )
    losses = by_output(model, model.loss)
    weights = by_output(model, model._compile_config.config.get("loss_weights"))
    shapes = {
        name: tuple(tensor.shape[1:])
        for name, tensor in zip(keras_models.served_names(model), model.outputs, strict=True)
    }
    return [
        _subject(output, shapes[output], loss, 1.0 if weights[output] is None else float(weights[output]))
        for output, loss in losses.items()
        if loss is not None
    ]


def _subject(output: str, shape: tuple[int | None, ...], loss: Any, weight: float) -> Subject:
    words = words_of(loss)
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    odd = [name for name, usual in (("axis", -1), ("ignore_class", None)) if config.get(name, usual) not in (usual,)]
    if not built_in(loss) or words not in KINDS or odd:
        raise ComponentError(
            f"a teacher, and output {output!r} with the loss {words}{''.join(f' and its {name}' for name in odd)}",
            f"one whose soft form is known: {', '.join((*CLASSES, *CHANCES))}, or that of a regression",
            "compile that output with such a loss, or leave the teacher out",
        )
    if None in shape:
        raise ComponentError(
            f"a teacher, and output {output!r} of shape {list(shape)}",
            "an output of one size for all examples",
            "give the model's inputs their sizes, or leave the teacher out",
        )
    sizes = tuple(int(size or 0) for size in shape)
    return Subject(output, sizes, KINDS[words], loss, bool(config.get("from_logits", False)), weight)
