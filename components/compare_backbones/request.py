"""What is asked, and what of it can be refused or answered before anything is built."""

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfopt.artifacts import Examples
from tfopt.artifacts.formats import FORMATS
from tfopt.components.compare_backbones.backbones import Backbone
from tfopt.components.compare_backbones.example_facts import check_features, classes_of, facts_of, stored_size
from tfopt.components.compare_backbones.reading import Size, read_size
from tfopt.errors import ComponentError, nearest
from tfopt.measurement.goals import QUALITY, Goal

SPEED = ("latency", "latency_p90", "latency_p99", "size", "size_gzipped", "memory", "load")  # known before training
LEARNT = {  # what `evaluate` measures
    "classification": ("accuracy", "top_5_accuracy", "log_loss", "auc"),
    "regression": ("mean_absolute_error", "mean_squared_error"),
}
USUAL = (224, 224, 3)


@dataclass(frozen=True, kw_only=True)
class Question:
    """The component's parameters.

    Attributes:
        classes: How many numbers the head gives.
        stored: The size of the images in the examples.
        taken: The size of what the backbone takes.
        missing: Why a format is left out, by its name.
    """

    backbones: Sequence[Backbone]
    task: str
    image: str
    label: str
    formats: Sequence[str]
    goals: Sequence[Goal]
    objective: str
    proven: bool
    epochs: int
    records: int
    batch_size: int
    seconds: float
    threads: int
    seed: int
    classes: int = 0
    stored: Size = USUAL
    taken: Size = USUAL
    missing: Mapping[str, str] = field(default_factory=dict)

    def settled(self, examples: Examples | None, classes: int | None, input_size: str | None) -> "Question":
        """What is asked of these examples, with the runtimes that are there.

        Raises:
            ComponentError: When something of it cannot be.
        """
        taken = read_size(input_size) if input_size else None
        facts = facts_of(examples) if examples else {}
        if facts:
            check_features(examples, facts, self.image, self.label)
        stored = stored_size(facts, self.image, taken) if examples else taken or USUAL
        asked = replace(
            self,
            classes=classes_of(facts, self.task, self.label, classes),
            stored=stored,
            taken=taken or stored,
            missing={name: why for name in self.formats if (why := _why_missing(name))},
        )
        asked.check(trained=examples is not None)
        return asked

    def check(self, *, trained: bool) -> None:
        """Refuse what cannot be measured. See `settled`."""
        if self.stored[2] != self.taken[2]:
            raise ComponentError(
                f"input_size={_words(self.taken)}, and images of {_words(self.stored)}",
                "as many channels: images are resized, not coloured",
                f"pass input_size={self.taken[0]}x{self.taken[1]}x{self.stored[2]}",
            )
        if not re.fullmatch(r"\w+", self.image):
            raise ComponentError(f"image={self.image!r}", "a name of letters, digits and _", "rename that feature")
        _check_sides(self.backbones, self.taken)
        if not self.present:
            raise ComponentError("; ".join(self.missing.values()), "a runtime that is installed", "add saved_model")
        cores = len(os.sched_getaffinity(0))
        if self.threads > cores:
            raise ComponentError(f"threads={self.threads}", f"at most {cores}, the cores here", f"pass threads={cores}")
        if self.task == "classification" and self.classes < 2:
            raise ComponentError(f"classes={self.classes}", "two or more", "pass task=regression for a number")
        if not trained and self.objective == QUALITY:
            raise ComponentError(
                "objective=quality without examples", "examples to learn from", "pass examples, or objective=latency"
            )
        for goal in self.goals:
            _check_goal(goal, self.task, trained=trained)

    @property
    def present(self) -> list[str]:
        """The formats that are measured."""
        return [name for name in self.formats if name not in self.missing]


def _why_missing(name: str) -> str | None:
    package = FORMATS[name].import_name
    there = importlib.util.find_spec(package) is not None
    return None if there else f"{name}: the package {package} is not installed"


def _check_sides(backbones: Sequence[Backbone], taken: Size) -> None:
    small = [backbone for backbone in backbones if min(taken[:2]) < backbone.family.least]
    if small:
        least = max(backbone.family.least for backbone in small)
        named = ", ".join(f"{backbone} (at least {backbone.family.least})" for backbone in small)
        raise ComponentError(
            f"images of {_words(taken)} for {named}",
            f"sides of {least} or more",
            f"pass input_size={max(least, taken[0])}x{max(least, taken[1])}x{taken[2]}: images are resized in the "
            "model; or leave those backbones out",
        )


def _check_goal(goal: Goal, task: str, *, trained: bool) -> None:
    if goal.kind == "max_regression":
        raise ComponentError(f"goal {goal.text!r}", "a goal without a past", "leave it to select_model")
    known = (QUALITY, *LEARNT[task], *SPEED)
    if goal.metric not in known:
        raise ComponentError(f"goal {goal.text!r}", f"one of {', '.join(known)}", nearest(goal.metric, known))
    if goal.kind != "threshold" and goal.metric in SPEED and not trained:
        raise ComponentError(
            f"goal {goal.text!r} without examples",
            "a threshold: the others compare with the backbone that learnt best",
            f"write {goal.metric} threshold NUMBER, or pass examples",
        )


def _words(size: Size) -> str:
    return "x".join(map(str, size))
