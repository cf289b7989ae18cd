"""Report artifacts: folders with a JSON file, and in some cases an HTML report."""

import json
import os
from typing import Any, Generic, TypeVar

from tfopt.artifacts import notebook_html
from tfopt.artifacts.base import Artifact
from tfopt.errors import ComponentError
from tfopt.formatting import amount, change, data_size, ratio, title
from tfopt.reports import report_schema
from tfopt.reports.benchmark_report import BenchmarkReport, ModelBenchmark
from tfopt.reports.comparison_report import ComparisonReport
from tfopt.reports.decision_report import BlessingReport, DecisionReport
from tfopt.reports.drift_report import DriftReport
from tfopt.reports.evaluation_report import EvaluationReport, ModelEvaluation
from tfopt.reports.inspection_report import InspectionReport
from tfopt.reports.pushed_report import PushedReport
from tfopt.reports.recipe_report import RecipeReport
from tfopt.reports.replay_report import ReplayReport
from tfopt.reports.report_schema import VersionedReport
from tfopt.reports.sensitivity_report import SensitivityReport
from tfopt.reports.serving_report import ServingReport
from tfopt.reports.training_plan import TrainingPlanReport
from tfopt.value_types import JsonObject

Content = TypeVar("Content", bound=VersionedReport)


class Report(Artifact, Generic[Content]):
    """A folder with one JSON file, and in some cases an HTML report."""

    file = "report.json"  # name of the JSON file
    schema: type[Content]  # the dataclass of its content
    contents = "a folder with its JSON report"

    def __init_subclass__(cls, file: str = "", schema: type[Content] | None = None, contents: str = "") -> None:
        """Declare a report by its files and its dataclass; ``contents`` is for one with other files, too."""
        if file and schema:
            cls.file, cls.schema = file, schema
            cls.contents = contents or f"a folder with {f'{file} and {cls.page}' if cls.page else file}"

    def check(self) -> None:
        """Raise ComponentError unless the JSON file exists."""
        if not (self.path / self.file).is_file():
            received = f"{self.uri}: no {self.file}"
            raise ComponentError(received, self.contents, "pass the output of the step that writes it")

    def _facts(self) -> dict[str, object]:
        content = self.read() if (self.path / self.file).is_file() else {}
        return {name: value for name, value in content.items() if isinstance(value, str | int | float)}

    def load(self) -> Content:
        """Read the JSON file into its dataclass.

        Raises:
            ComponentError: If it has another version, or does not fit the dataclass.
        """
        return report_schema.load(self.schema, self.path / self.file)

    def read(self) -> dict[str, Any]:
        """Read the JSON file; see `report_schema.read` for its errors."""
        return report_schema.read(self.path / self.file)

    def write(self, report: Content | JsonObject) -> None:
        """Write the JSON file; NaN is rejected because other JSON parsers do not accept it."""
        content = report if isinstance(report, dict) else report_schema.dump(report)
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / self.file).write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


class Evaluation(Report[EvaluationReport], file="evaluation.json", schema=EvaluationReport):
    """The output of `evaluate`, ``evaluation.json``: metrics, differences from the baseline, parity, slices."""

    def _repr_html_(self) -> str:
        if not (self.path / self.file).is_file():
            return super()._repr_html_()
        report = self.load()
        names = list(dict.fromkeys(name for model in report.models for name in model.metrics))
        columns = ["model", *map(title, names), "remarks"]
        rows = [
            [model.name, *(_metric(model, name) for name in names), model.error or "; ".join(model.notes)]
            for model in report.models
        ]
        counted = f"{report.counts.evaluated:,} examples of split {report.split}"
        notes = "".join(f"; note: {note}" for note in report.notes)
        return notebook_html.table(f"Evaluation on {counted}, differences to {report.baseline}{notes}", columns, rows)


class Benchmark(Report[BenchmarkReport], file="benchmark.json", schema=BenchmarkReport):
    """The output of `benchmark`: speed and size in ``benchmark.json``, raw samples in ``samples.parquet``."""

    def _repr_html_(self) -> str:
        if not (self.path / self.file).is_file():
            return super()._repr_html_()
        report = self.load()
        sizes = [str(size) for size in report.batch_sizes]
        columns = ["model", *(f"{fact}, batch size {size}" for size in sizes for fact in ("p50", "speed"))]
        rows = [
            [model.name, *(cell for size in sizes for cell in _speed(model, size)), *_rest(model)]
            for model in report.models
        ]
        caption = f"Latency with threads: {report.threads}; speed relative to {report.baseline}"
        return notebook_html.table(caption, [*columns, "size", "remarks"], rows)


class ReportWithPage(Report[Content], Generic[Content]):
    """A report with an HTML page, ``report.html``."""

    page = "report.html"


class Inspection(ReportWithPage[InspectionReport], file="inspection.json", schema=InspectionReport):
    """The output of `inspect_model`: the structure of a model, ``inspection.json`` and ``report.html``."""


class Decision(ReportWithPage[DecisionReport], file="decision.json", schema=DecisionReport):
    """The output of `select_model`: the selected model and the reasons, ``decision.json`` and ``report.html``."""


class Recipe(ReportWithPage[RecipeReport], file="recipe.json", schema=RecipeReport):
    """The output of `tune_recipe`: the best steps and all trials, ``recipe.json`` and ``report.html``."""


class TrainingPlan(ReportWithPage[TrainingPlanReport], file="plan.json", schema=TrainingPlanReport):
    """The output of `profile_training`: bottlenecks and faster settings, ``plan.json`` and ``report.html``."""


class Comparison(ReportWithPage[ComparisonReport], file="comparison.json", schema=ComparisonReport):
    """The output of `compare_backbones`: cost and accuracy, ``comparison.json`` and ``report.html``."""


class Replay(ReportWithPage[ReplayReport], file="replay.json", schema=ReplayReport):
    """The output of `replay`: answers and latency next to the served version's, ``replay.json`` and ``report.html``."""


class Drift(ReportWithPage[DriftReport], file="drift.json", schema=DriftReport):
    """The output of `check_drift`: nothing, recalibrate or retrain, ``drift.json`` and ``report.html``."""

    def exit_code(self) -> int:
        """Return 0 for nothing, 6 for recalibrate, 7 for retrain."""
        return {"nothing": 0, "recalibrate": 6, "retrain": 7}[self.load().decision]


class Sensitivities(ReportWithPage[SensitivityReport], file="sensitivities.json", schema=SensitivityReport):
    """The output of `measure_sensitivities`: losses by layer and precision, ``sensitivities.json`` and a page."""


class Blessing(
    Report[BlessingReport],
    file="blessing.json",
    schema=BlessingReport,
    contents="a folder with BLESSED or NOT_BLESSED, and blessing.json",
):
    """Permission to push the selected model: TFX's marker file BLESSED or NOT_BLESSED, and the reason.

    The blessing of TFX's Evaluator is the marker file alone.
    """

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


class InfraBlessing(
    Report[ServingReport],
    file="infra_blessing.json",
    schema=ServingReport,
    contents="a folder with INFRA_BLESSED or INFRA_NOT_BLESSED and infra_blessing.json",
):
    """The result of a serving test: TFX's marker file INFRA_BLESSED or INFRA_NOT_BLESSED, and the reason."""


class Pushed(Report[PushedReport], file="pushed.json", schema=PushedReport):
    """The version folder that a model was pushed to, ``pushed.json``."""


def _metric(model: ModelEvaluation, name: str) -> str:
    if name not in model.metrics:
        return "-"
    delta = f" ({change(name, model.delta[name].value)})" if name in model.delta else ""
    return amount(name, model.metrics[name].value) + delta


def _speed(model: ModelBenchmark, size: str) -> tuple[str, str]:
    latency, speedup = model.latency.get(size), model.speedup.get(size)
    compared = f"{ratio(speedup.value)}, {speedup.verdict}" if speedup else "-"
    if speedup and speedup.is_unstable:
        compared = "unstable: not compared"
    return amount("latency", latency.p50) if latency else "-", compared


def _rest(model: ModelBenchmark) -> tuple[str, str]:
    size = data_size(model.sizes["raw"]) if "raw" in model.sizes else "-"
    return size, model.error or "; ".join(model.notes)
