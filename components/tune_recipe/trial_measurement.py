"""What a made model is worth: measured against the parent by `evaluate` and `benchmark`, held against the goals."""

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt import formatting as wording
from tfopt.artifacts import Benchmark, Decision, Evaluation, Examples, Model, unique_names
from tfopt.component import find
from tfopt.measurement.goals import QUALITY, Goal, resolve_goals
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports, main_metric
from tfopt.measurement.significance import is_significantly_better

MISSED = 1.0  # what a missed goal costs, in halvings of the objective and more: any model that meets them is better
GIVEN_UP, NOT_MADE = 8.0, 10.0


@dataclass(frozen=True)
class Question:
    """What is asked of a recipe: the component's parameters."""

    goals: Sequence[Goal]
    objective: str
    label: str
    output: str | None
    seconds: float
    batch_sizes: Sequence[str]
    threads: int
    seed: int


@dataclass(frozen=True)
class Judged:
    """A model that was measured.

    Attributes:
        measured: As both reports saw it, its parent too.
        main_metric: Of the evaluation.
        goals: Settled.
        objective: The metric to be best at.
        examples: How many it was judged on.
    """

    measured: ModelMeasurements
    main_metric: str
    goals: Sequence[Goal]
    objective: str
    examples: int

    @property
    def failures(self) -> list[str]:
        """How it misses the goals that it misses; the error of what could not be measured."""
        if self.measured.error:
            return [self.measured.error]
        found = (goal.failure(self.measured, proven=True, examples=self.examples) for goal in self.goals)
        return [failure for failure in found if failure]

    @property
    def proven(self) -> bool:
        """Whether it is better than its parent at the objective beyond doubt."""
        if self.measured.error or self.objective not in self.measured.metrics:
            return False
        return is_significantly_better(self.measured, self.objective)

    @property
    def score(self) -> float:
        """What the sampler makes small: the objective next to the parent's, in powers of two, and the misses."""
        if self.measured.error or self.objective not in self.measured.metrics or not self.measured.parent:
            return NOT_MADE
        before = self.measured.parent.value(self.objective)
        after = before + self.measured.change(self.objective).value
        sign = -1 if self.measured.higher_is_better(self.objective) else 1
        return MISSED * len(self.failures) + sign * math.log2(max(after, 1e-9) / max(before, 1e-9))

    @property
    def beside_parent(self) -> dict[str, float] | None:
        """Quality gained, in the main metric's unit, and how many times as fast and as large it is as its parent.

        None where one of them was not measured.
        """
        found = self.measured
        ratio = None if found.error else found.speedup(found.small_batch)
        if ratio is None or self.main_metric not in found.metrics or not found.parent:
            return None
        size = found.value("size") / max(1.0, found.parent.value("size"))
        return {"quality": found.gain(self.main_metric).value, "speed": ratio.value, "size": size}

    def in_words(self) -> str:
        """What was found, in a line."""
        if self.measured.error:
            return f"could not be measured: {self.measured.error}"
        ratio = self.measured.speedup(self.measured.small_batch)
        speed = f"{wording.ratio(ratio.value)} as fast ({ratio.verdict}), " if ratio else ""
        moved = wording.change(self.main_metric, self.measured.change(self.main_metric).value)
        met = "meets the goals" if not self.failures else self.failures[0]
        return f"{speed}{wording.title(self.main_metric)} {moved}; {met}"


class Judge:
    """Measures models beside their parent, by the components that do so, found by name."""

    def __init__(self, parent: Model, examples: Examples, question: Question) -> None:
        """Measure beside this parent, on these examples."""
        self.parent, self.examples, self.question = parent, examples, question

    def judge(self, children: Sequence[Model], place: Path) -> list[Judged]:
        """Evaluate and benchmark some models; the reports stay below ``place``.

        Raises:
            ComponentError: When the parent cannot be measured, or examples, label or goals do not fit.
        """
        asked, listed = self.question, [self.parent, *children]
        models: Any = {"baseline": self.parent, "candidates": list(children), "examples": self.examples}
        with _quietly():
            find("evaluate")(
                **models,
                evaluation=place / "evaluation",
                label=asked.label,
                output=asked.output,
                split="eval",  # a search that chose on the split kept for judging would spoil it
                seed=asked.seed,
            )
            find("benchmark")(
                **models,
                benchmark=place / "benchmark",
                seconds=asked.seconds,
                batch_sizes=list(asked.batch_sizes),
                threads=asked.threads,
                seed=asked.seed,
            )
        quality, speed = Evaluation(place / "evaluation").load(), Benchmark(place / "benchmark").load()
        rows = [(n, m.digest, m.format) for n, m in zip(unique_names(listed), listed, strict=True)]
        measured, main = join_reports(rows, quality, speed), main_metric(quality)
        goals = resolve_goals(asked.goals, main, measured[0].metrics)
        objective = main if asked.objective == QUALITY else asked.objective
        return [Judged(one, main, goals, objective, quality.counts.evaluated) for one in measured[1:]]

    def decide(self, children: Sequence[Model], place: Path) -> dict[str, Any]:
        """Have `select_model` choose between models that were judged below ``place``, and return its decision."""
        with _quietly():
            find("select_model")(
                baseline=self.parent,
                candidates=list(children),
                **{name: place / name for name in ("evaluation", "benchmark", "selected", "decision", "blessing")},
                goals=[goal.text for goal in self.question.goals],
                objective=self.question.objective,
            )
        return Decision(place / "decision").read()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep the progress of the components to themselves: the search says a line for each trial."""
    log = logging.getLogger("tfopt")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
