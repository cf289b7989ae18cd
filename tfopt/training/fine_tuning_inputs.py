"""Parameters of components that fine-tune, and checks of their inputs made before anything heavy is imported."""

from dataclasses import dataclass
from typing import Annotated

from tfopt.artifacts import Examples, Model, PythonModule
from tfopt.declaration.parameters import Between, Reads
from tfopt.errors import ComponentError
from tfopt.measurement.goals import GOAL_MAPPING, read_goals
from tfopt.training.user_module import check_syntax

WITH_TEACHER = " with a teacher"  # in the names of models


@dataclass(frozen=True)
class FineTuningSettings:
    """Parameters that every fine-tuning component has.

    Attributes:
        label: The label feature.
        epochs: Number of passes over the split ``train``.
        recover: Epochs of a second round of fine-tuning, which runs if the model misses a goal on examples of ``train``
            that are held out of both rounds. When 0: no second round.
        goals: Goals on the held-out examples, such as "accuracy max_degradation 0.5%"; quality is the module's first
            metric.
        batch_size: Examples per step.
        learning_rate: Learning rate that replaces the one of the module's optimizer, which a schedule may have reduced
            to almost zero.
    """

    label: str = "label"
    epochs: Annotated[int, Between(1, None)] = 5
    recover: Annotated[int, Between(0, None)] = 0
    goals: Annotated[tuple[str, ...], Reads(read_goals, ("quality max_degradation 1%",), GOAL_MAPPING)] = (
        "quality max_degradation 1%",
    )
    batch_size: Annotated[int, Between(1, None)] = 64
    learning_rate: Annotated[float, Between(0, None)] | None = 1e-4


@dataclass(frozen=True)
class TeacherSettings:
    """Parameters of distillation.

    Attributes:
        alpha: Fraction of the teacher in the loss; the rest is the labels'. When 0: no teacher.
        temperature: Divisor of the logits of teacher and student before they are compared.
    """

    alpha: Annotated[float, Between(0, 1)] = 0.7
    temperature: Annotated[float, Between(1, 100)] = 4.0


def check_teacher(teacher: Model | None, settings: TeacherSettings, module: PythonModule | None) -> None:
    """Raise ComponentError if a teacher is passed that would not be used."""
    if teacher is not None and module is None:
        fix = "pass module=PATH and examples=PATH, or leave the teacher out"
        raise ComponentError("a teacher without a module", "a module to fine-tune with", fix)
    if teacher is not None and settings.alpha == 0:
        raise ComponentError("a teacher and alpha=0", "a fraction of the teacher in the loss", "leave one of them out")


def check_fine_tuning_inputs(
    examples: Examples | None, module: PythonModule | None, *, verb: str, recover: int = 0
) -> None:
    """Raise ComponentError if the splits ``train`` and ``eval`` are missing, or the module has a syntax error.

    The same if there is a second round (``recover``) without a module. Without one, nothing is fine-tuned. The error
    says what the component can do then: ``verb``.
    """
    if module is None:
        if recover:
            received = f"recover={recover} without a module"
            raise ComponentError(received, "a module to fine-tune with", "pass module=PATH and examples=PATH")
        return
    if examples is None:
        received = "a module without examples"
        fix = f"pass examples=PATH, or leave the module out to {verb} without fine-tuning"
        raise ComponentError(received, "examples to fine-tune on, with the splits train and eval", fix)
    for split in ("train", "eval"):
        examples.split(split)
    check_syntax(module.path)
