"""What comes out: judgements, each a folder with JSON for machines and what people look at beside it."""

import json
from typing import Any

from tfopt.artifacts.base import Artifact
from tfopt.errors import ComponentError


class Report(Artifact):
    """A folder with one JSON file for machines, and what people look at beside it."""

    file = "report.json"
    contents = "a folder with its JSON report"

    def check(self) -> None:
        """Raise ComponentError unless the JSON is there."""
        if not (self.path / self.file).is_file():
            raise ComponentError(
                f"{self.uri}: no {self.file}", self.contents, "give the output of the step that makes it"
            )

    def read(self) -> dict[str, Any]:
        """Return the JSON."""
        content: dict[str, Any] = json.loads((self.path / self.file).read_text())
        return content

    def write(self, content: dict[str, Any]) -> None:
        """Write the JSON; NaN is refused, since no other reader would take it."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / self.file).write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


class Evaluation(Report):
    """How well each model predicts, ``evaluation.json``: metrics, differences to the baseline, parity, slices."""

    file = "evaluation.json"
    contents = "a folder with evaluation.json"


class Benchmark(Report):
    """How fast and how large each model is, ``benchmark.json`` and the raw samples in ``samples.parquet``."""

    file = "benchmark.json"
    contents = "a folder with benchmark.json"


class Inspection(Report):
    """What a model consists of, ``inspection.json``, and ``report.html`` for people."""

    file = "inspection.json"
    page = "report.html"
    contents = "a folder with inspection.json and report.html"


class Decision(Report):
    """Which model was chosen and why, ``decision.json``, and ``report.html`` for people."""

    file = "decision.json"
    page = "report.html"
    contents = "a folder with decision.json and report.html"


class Recipe(Report):
    """Which steps serve a model best, and what else was tried, ``recipe.json``, and ``report.html`` for people."""

    file = "recipe.json"
    page = "report.html"
    contents = "a folder with recipe.json and report.html"


class TrainingPlan(Report):
    """What a training waits for and which settings make it faster, ``plan.json``, and ``report.html`` for people."""

    file = "plan.json"
    page = "report.html"
    contents = "a folder with plan.json and report.html"


class Comparison(Report):
    """What light backbones cost and learn, ``comparison.json``, and ``report.html`` for people."""

    file = "comparison.json"
    page = "report.html"
    contents = "a folder with comparison.json and report.html"


class Blessing(Report):
    """Whether the chosen model may be pushed: TFX's marker file BLESSED or NOT_BLESSED, and the reason."""

    file = "blessing.json"
    contents = "a folder with BLESSED or NOT_BLESSED and blessing.json"


class InfraBlessing(Report):
    """Whether a model can be served: TFX's marker file INFRA_BLESSED or INFRA_NOT_BLESSED, and the reason."""

    file = "infra_blessing.json"
    contents = "a folder with INFRA_BLESSED or INFRA_NOT_BLESSED and infra_blessing.json"


class Pushed(Report):
    """Where the model went, ``pushed.json``."""

    file = "pushed.json"
    contents = "a folder with pushed.json"
