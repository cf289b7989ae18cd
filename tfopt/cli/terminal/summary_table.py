"""The table that ends a run in the terminal: each model's measurements, and why it was or was not selected."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfopt import formatting
from tfopt.artifacts import Benchmark, Decision, Evaluation
from tfopt.cli.terminal.tables import OutputConsole, plain_table
from tfopt.measurement.evidence import describe_evaluation
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports, main_metric
from tfopt.reports.benchmark_report import SpeedupEstimate
from tfopt.reports.decision_report import ConstantRow, ModelDecision


def print_summary(
    decision: Decision, evaluation: Evaluation, benchmark: Benchmark, console: Console | None = None
) -> None:
    """Print the table, the reason of the decision, and warnings.

    Args:
        decision: The selected model.
        evaluation: The quality of the models.
        benchmark: The speed and size of the models.
        console: The output; the standard output if None.
    """
    console = console or OutputConsole()
    report, quality = decision.load(), evaluation.load()
    rows = report.models
    models = join_reports([(row.name, row.digest, row.format) for row in rows], quality, benchmark.load())
    console.print(_table(rows, models, main_metric(quality), console.width // 4, report.constant))
    console.print(Text(formatting.visible(f"\n{report.reason}"), style="bold"))
    for row in rows:
        for warning in row.warnings if row.passed else ():
            console.print(Text(formatting.visible(f"{row.name}: {warning}"), style="yellow"))
    for regression in report.history.regressions:
        console.print(Text(formatting.visible(f"regression: {regression}"), style="yellow"))
    if report.confidence != "interval":
        warning = "goals were compared with measured values (confidence=estimate): nothing is proven"
        console.print(Text(warning, style="yellow"))
    else:
        console.print(Text(formatting.visible(describe_evaluation(quality)), style="dim"))
    for note in report.notes:
        console.print(Text(formatting.visible(f"note: {note}"), style="yellow"))
    if quality.chosen_on_it:
        warning = "evaluated on the examples that the best epochs were chosen on (split eval); a split test avoids this"
        console.print(Text(warning, style="dim"))
    for model in models:
        for note in model.evaluation.notes if model.evaluation else ():
            console.print(Text(formatting.visible(f"{model.name}: {note}"), style="dim"))
    if not report.blessed:
        console.print(Text("not blessed: it will not be pushed", style="red"))


def _table(
    rows: list[ModelDecision], models: list[ModelMeasurements], metric: str, letters: int, constant: ConstantRow | None
) -> Table:
    """Return the table; `letters` is the length of a name, more where two names would become the same."""
    table = plain_table()
    table.add_column("model", no_wrap=True)
    for title in (formatting.title(metric), "change", "latency", "speed", "size"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("result", ratio=1, overflow="fold")
    names = formatting.shorten_names([row.name for row in rows], letters)
    for name, row, model in zip(names, rows, models, strict=True):
        style = "green" if row.chosen else "" if row.passed else "dim"
        table.add_row(*(Text(formatting.visible(cell)) for cell in (name, *_cells(row, model, metric))), style=style)
    if constant:
        cells = (constant.name, formatting.amount(metric, constant.value), *"----", "a constant answer, for comparison")
        table.add_row(*(Text(formatting.visible(cell)) for cell in cells), style="dim")
    return table


def _cells(row: ModelDecision, model: ModelMeasurements, metric: str) -> list[str]:
    """Return the cells of a row after the name; the page has intervals, formats and all reasons."""
    metrics = model.metrics
    change = model.change(metric) if model.baseline and metric in metrics else None
    speedup = None if model.error else model.speedup(model.small_batch)
    return [
        formatting.amount(metric, metrics[metric].value) if metric in metrics else "-",
        formatting.change(metric, change.value).removesuffix(" points") if change else "-",
        formatting.amount("latency", metrics["latency"].value) if "latency" in metrics else "-",
        _speed(speedup),
        formatting.data_size(metrics["size"].value) if "size" in metrics else "-",
        _result(row),
    ]


def _speed(speedup: SpeedupEstimate | None) -> str:
    if not speedup:
        return "-"
    return speedup.verdict if speedup.is_unstable else formatting.ratio(speedup.value)


def _result(row: ModelDecision) -> str:
    return f"selected: {row.summary}" if row.chosen else row.summary or row.reasons[0]
