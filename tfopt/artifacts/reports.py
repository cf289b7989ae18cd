"""Report artifacts: folders with a JSON file, and in some cases an HTML report."""

import json
import os
from typing import Any, Generic, TypeVar

from tfopt.artifacts import report_schema
from tfopt.artifacts.base import Artifact
from tfopt.artifacts.benchmark_report import BenchmarkReport
from tfopt.artifacts.comparison_report import ComparisonReport
from tfopt.artifacts.decision_report import BlessingReport, DecisionReport
from tfopt.artifacts.evaluation_report import EvaluationReport
from tfopt.artifacts.inspection_report import InspectionReport
from tfopt.artifacts.pushed_report import PushedReport
from tfopt.artifacts.recipe_report import RecipeReport
from tfopt.artifacts.report_schema import VersionedReport
from tfopt.artifacts.serving_report import ServingReport
from tfopt.artifacts.training_plan import TrainingPlanReport
from tfopt.errors import ComponentError

Content = TypeVar("Content", bound=VersionedReport)


class Report(Artifact, Generic[Content]):
    """A folder with one JSON file, and in some cases an HTML report.

    Attributes:
        file: Name of the JSON file.
        schema: The dataclass of its content.
    """

    file = "report.json"
    schema: type[Content]
    contents = "a folder with its JSON report"

    def check(self) -> None:
        """Raise ComponentError unless the JSON file exists."""
        if not (self.path / self.file).is_file():
            raise ComponentError(
                f"{self.uri}: no {self.file}", self.contents, "pass the output of the step that writes it"
            )

    def load(self) -> Content:
        """Read the JSON file into its dataclass.

        Raises:
            ComponentError: If it has another version, or does not fit the dataclass.
        """
        return report_schema.load(self.schema, self.path / self.file)

    def read(self) -> dict[str, Any]:
        """Read the JSON file; see `report_schema.read` for its errors."""
        return report_schema.read(self.path / self.file)

    def write(self, report: Content | dict[str, Any]) -> None:
        """Write the JSON file; NaN is rejected because other JSON parsers do not accept it."""
        content = report if isinstance(report, dict) else report_schema.dump(report)
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / self.file).write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


class Evaluation(Report[EvaluationReport]):
    """The output of `evaluate`, ``evaluation.json``: metrics, differences from the baseline, parity, slices."""

    file = "evaluation.json"
    schema = EvaluationReport
    contents = "a folder with evaluation.json"


class Benchmark(Report[BenchmarkReport]):
    """The output of `benchmark`: speed and size in ``benchmark.json``, raw samples in ``samples.parquet``."""

    file = "benchmark.json"
    schema = BenchmarkReport
    contents = "a folder with benchmark.json"


class Inspection(Report[InspectionReport]):
    """The output of `inspect_model`: the structure of a model, ``inspection.json`` and ``report.html``."""

    file = "inspection.json"
    schema = InspectionReport
    page = "report.html"
    contents = "a folder with inspection.json and report.html"


class Decision(Report[DecisionReport]):
    """The output of `select_model`: the selected model and the reasons, ``decision.json`` and ``report.html``."""

    file = "decision.json"
    schema = DecisionReport
    page = "report.html"
    contents = "a folder with decision.json and report.html"


class Recipe(Report[RecipeReport]):
    """The output of `tune_recipe`: the best steps and all trials, ``recipe.json`` and ``report.html``."""

    file = "recipe.json"
    schema = RecipeReport
    page = "report.html"
    contents = "a folder with recipe.json and report.html"


class TrainingPlan(Report[TrainingPlanReport]):
    """The output of `profile_training`: bottlenecks and faster settings, ``plan.json`` and ``report.html``."""

    file = "plan.json"
    schema = TrainingPlanReport
    page = "report.html"
    contents = "a folder with plan.json and report.html"


class Comparison(Report[ComparisonReport]):
    """The output of `compare_backbones`: cost and accuracy, ``comparison.json`` and ``report.html``."""

    file = "comparison.json"
    schema = ComparisonReport
    page = "report.html"
    contents = "a folder with comparison.json and report.html"


class Blessing(Report[BlessingReport]):
    """Permission to push the selected model: TFX's marker file BLESSED or NOT_BLESSED, and the reason.

    The blessing of TFX's Evaluator is the marker file alone.
    """

    file = "blessing.json"
    schema = BlessingReport
    contents = "a folder with BLESSED or NOT_BLESSED, and blessing.json"

    def check(self) -> None:
        """Raise ComponentError unless there is a marker file or a report."""
        if self._marker is None:
            super().check()

    def load(self) -> BlessingReport:
        """Read the report; without one, return what the marker file states, for a model that is not named."""
        if self._marker is None or os.path.lexists(self.path / self.file):
            return super().load()
        return BlessingReport(self._marker == "BLESSED", f"TFX's Evaluator wrote {self._marker}", model_digest=None)

    @property
    def _marker(self) -> str | None:
        return next((name for name in ("BLESSED", "NOT_BLESSED") if (self.path / name).is_file()), None)


class InfraBlessing(Report[ServingReport]):
    """The result of a serving test: TFX's marker file INFRA_BLESSED or INFRA_NOT_BLESSED, and the reason."""

    file = "infra_blessing.json"
    schema = ServingReport
    contents = "a folder with INFRA_BLESSED or INFRA_NOT_BLESSED and infra_blessing.json"


class Pushed(Report[PushedReport]):
    """The version folder that a model was pushed to, ``pushed.json``."""

    file = "pushed.json"
    schema = PushedReport
    contents = "a folder with pushed.json"
