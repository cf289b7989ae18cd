"""A teacher put to work: asked about what the student learns from, and listened to while it learns."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.components.train.distillation import distilled
from tfopt.components.train.settings import Settings
from tfopt.components.train.subjects import subjects
from tfopt.components.train.teacher_predictions import ask
from tfopt.training.dataset import Source


def taught(
    teacher: Model | None,
    model: Any,
    source: Source,
    folder: Path,
    module: Path,
    settings: Settings,
    class_weight: Mapping[int, float] | None,
) -> tuple[Source, AbstractContextManager[None], dict[str, Any]]:
    """Return what the student learns from, the block in which it learns, and what the card says of its teacher.

    Args:
        teacher: None for none.
        model: The student, compiled.
        source: The examples.
        folder: Where the answers are kept meanwhile.
        module: Its module, for errors.
        settings: As the component was called.
        class_weight: How much an example of each class counts.

    Raises:
        ComponentError: When the two do not fit, or the student cannot be taught.
    """
    if teacher is None:
        return source, nullcontext(), {}
    learnt = subjects(model, module)
    answers, forms = ask(teacher, learnt, source.files, source.count, folder)
    how = {"temperature": settings.temperature, "alpha": settings.alpha}
    facts = {"name": teacher.name, "format": teacher.format, "digest": teacher.digest, **how, "answers": forms}
    facts |= {key: teacher.card[key] for key in ("component",) if key in teacher.card}
    listening = distilled(model, learnt, forms, **how, class_weight=class_weight)
    return replace(source, answers=answers), listening, {"teacher": facts}
