"""Report artifacts: folders with a JSON file, and in some cases an HTML report."""

import json
from typing import Any

from tfopt.artifacts.base import Artifact
from tfopt.errors import ComponentError


class Report(Artifact):
    """A folder with one JSON file, and in some cases an HTML report."""

    file = "report.json"
    contents = "a folder with its JSON report"

    def check(self) -> None:
        """Raise ComponentError unless the JSON file exists."""
        if not (self.path / self.file).is_file():
            raise ComponentError(
                f"{self.uri}: no {self.file}", self.contents, "pass the output of the step that writes it"
            )

    def read(self) -> dict[str, Any]:
        """Read the JSON file."""
        content: dict[str, Any] = json.loads((self.path / self.file).read_text())
        return content

    def write(self, content: dict[str, Any]) -> None:
        """Write the JSON file; NaN is rejected because other JSON parsers do not accept it."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / self.file).write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


class Evaluation(Report):
    """The output of `evaluate`, ``evaluation.json``: metrics, differences from the baseline, parity, slices."""

    file = "evaluation.json"
    contents = "a folder with evaluation.json"


class Benchmark(Report):
    """The output of `benchmark`: speed and size in ``benchmark.json``, raw samples in ``samples.parquet``."""

    file = "benchmark.json"
    contents = "a folder with benchmark.json"


class Inspection(Report):
    """The output of `inspect_model`: the structure of a model, ``inspection.json`` and ``report.html``."""

    file = "inspection.json"
    page = "report.html"
    contents = "a folder with inspection.json and report.html"


class Decision(Report):
    """The output of `select_model`: the selected model and the reasons, ``decision.json`` and ``report.html``."""

    file = "decision.json"
    page = "report.html"
    contents = "a folder with decision.json and report.html"


class Recipe(Report):
    """The output of `tune_recipe`: the best steps and all trials, ``recipe.json`` and ``report.html``."""

    file = "recipe.json"
    page = "report.html"
    contents = "a folder with recipe.json and report.html"


class TrainingPlan(Report):
    """The output of `profile_training`: bottlenecks and faster settings, ``plan.json`` and ``report.html``."""

    file = "plan.json"
    page = "report.html"
    contents = "a folder with plan.json and report.html"


class Comparison(Report):
    """The output of `compare_backbones`: cost and accuracy, ``comparison.json`` and ``report.html``."""

    file = "comparison.json"
    page = "report.html"
    contents = "a folder with comparison.json and report.html"


class Blessing(Report):
    """Permission to push the selected model: TFX's marker file BLESSED or NOT_BLESSED, and the reason."""

    file = "blessing.json"
    contents = "a folder with BLESSED or NOT_BLESSED and blessing.json"


class InfraBlessing(Report):
    """The result of a serving test: TFX's marker file INFRA_BLESSED or INFRA_NOT_BLESSED, and the reason."""

    file = "infra_blessing.json"
    contents = "a folder with INFRA_BLESSED or INFRA_NOT_BLESSED and infra_blessing.json"


class Pushed(Report):
    """The version folder that a model was pushed to, ``pushed.json``."""

    file = "pushed.json"
    contents = "a folder with pushed.json"
