"""Decisions of `select_model` on written reports, for its tests."""

from collections.abc import Callable
from pathlib import Path

from tests.reports import Row, make_models, write_reports
from tfopt.artifacts import Model
from tfopt.components.select_model.component import select_model
from tfopt.components.select_model.decide import decide as decide_between
from tfopt.components.select_model.parameters import Criteria
from tfopt.reports.report_schema import dump

ONE_POINT = ["accuracy max_degradation 0.01"]


def decide(rows: list[Row], folder: Path, edit: Callable[[dict], None] | None = None, **parameters) -> dict:
    """Run the component on these rows and return ``decision.json``; ``edit`` changes ``evaluation.json`` before."""
    models = make_models(rows, folder / "models")
    evaluation, benchmark = write_reports(rows, models, folder, samples=False)
    if edit:
        content = evaluation.read()
        edit(content)
        evaluation.write(content)
    outputs = select_model(
        baseline=models[0], candidates=models[1:], evaluation=evaluation, benchmark=benchmark,
        selected=folder / "selected", decision=folder / "decision", blessing=folder / "blessing",
        **{"goals": ONE_POINT} | parameters,
    )  # fmt: skip
    return outputs["decision"].read()


def decide_without_files(rows: list[Row], folder: Path, **parameters) -> dict:
    """Return ``decision.json`` as `decide` does, but write no selected model and no page with charts."""
    models = make_models(rows, folder / "models")
    evaluation, benchmark = (report.load() for report in write_reports(rows, models, folder, samples=False))
    criteria = Criteria(**{"goals": ONE_POINT} | parameters)
    _, report = decide_between([Model(model) for model in models], evaluation, benchmark, criteria, [])
    return dump(report)


def reason(decision: dict, name: str) -> str:
    """Return the reasons of a model as one text."""
    return "; ".join(next(row["reasons"] for row in decision["models"] if row["name"] == name))
