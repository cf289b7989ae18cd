"""The table that ends a run in the terminal: each model's measurements, and why it was or was not selected."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfopt import formatting
from tfopt.artifacts import Benchmark, Decision, Evaluation
from tfopt.cli.terminal.tables import OutputConsole, plain_table
from tfopt.measurement.evidence import describe_evaluation
from tfopt.measurement.model_measurements import Estimate, ModelMeasurements, join_reports, main_metric
from tfopt.reports.benchmark_report import SpeedupEstimate
from tfopt.reports.decision_report import ConstantRow, ModelDecision

SHOWN_LOADS = ("capacity", "cost")  # columns, where they were measured
MOST_EXPLAINED = 4  # lines on unstable speeds


def print_summary(
    decision: Decision, evaluation: Evaluation, benchmark: Benchmark, console: Console | None = None
) -> None:
    """Print the table, the reason of the decision, and warnings."""
    console = console or OutputConsole()
    report, quality = decision.load(), evaluation.load()
    rows = report.models
    models = join_reports([(row.name, row.digest, row.format) for row in rows], quality, benchmark.load())
    console.print(_table(rows, models, main_metric(quality), console.width // 4, report.constant))
    lines = [(f"\n{report.reason}", "bold"), *((text, "yellow") for text in _explanations(rows, models))]
    lines += [(f"{row.name}: {warning}", "yellow") for row in rows if row.passed for warning in row.warnings]
    lines += [(f"regression: {regression}", "yellow") for regression in report.history.regressions]
    if scale := formatting.scale(main_metric(quality), quality.label):
        lines.append((f"{formatting.title(main_metric(quality))} is {scale}", "dim"))
    if report.confidence == "interval":
        lines.append((describe_evaluation(quality), "dim"))
    else:
        lines.append(("goals were compared with measured values (confidence=estimate): nothing is proven", "yellow"))
    lines += [(f"note: {note}", "yellow") for note in report.notes]
    if quality.chosen_on_it:
        warning = "evaluated on the examples that the best epochs were chosen on (split eval); a split test avoids this"
        lines.append((warning, "dim"))
    lines += [
        (f"{model.name}: {note}", "dim") for model in models if model.evaluation for note in model.evaluation.notes
    ]
    if not report.blessed:
        lines.append(("not blessed: it will not be pushed", "red"))
    for text, style in lines:
        console.print(Text(formatting.visible(text), style=style))


def _explanations(rows: list[ModelDecision], models: list[ModelMeasurements]) -> list[str]:
    """Explain rows without measurements, and what *unstable* means."""
    lines = _by_text((row.name, row.reasons[0]) for row, model in zip(rows, models, strict=True) if model.error)
    if any(row.format == "not_made" for row in rows):
        lines.append("what was not made is tried again when the model, the parameters, the code or a package changes")
    disturbed = _by_text((model.name, f"speed {text}") for model in models if (text := model.disturbance("latency")))
    if len(disturbed) <= MOST_EXPLAINED:  # with more, the reason of the decision has the number of models
        lines += disturbed
    if disturbed:
        lines.append("unstable: on an idle machine the speed may be any other; it meets no goal and selects no model")
    return lines


def _by_text(explanations: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each text, after the names of all models that it explains."""
    names: dict[str, list[str]] = {}
    for name, text in explanations:
        names.setdefault(text, []).append(name)
    return [f"{', '.join(models)}: {text}" for text, models in names.items()]


def _table(
    rows: list[ModelDecision], models: list[ModelMeasurements], metric: str, letters: int, constant: ConstantRow | None
) -> Table:
    """Return the table; `letters` is the length of a name, more where two names would become the same."""
    table = plain_table()
    names = formatting.shorten_names([row.name for row in rows], letters)
    # The constant model's name, a sentence, takes several lines rather than the room of the results.
    table.add_column("model", max_width=max(20, *map(len, names)))
    loads = [name for name in SHOWN_LOADS if any(name in model.metrics for model in models)]
    for title in (formatting.title(metric), "change", "latency", "speed", "size", *loads):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("result", ratio=1, overflow="fold")
    for name, row, model in zip(names, rows, models, strict=True):
        style = "green" if row.chosen else "" if row.passed else "dim"
        table.add_row(
            *(Text(formatting.visible(cell)) for cell in (name, *_cells(row, model, metric, loads))), style=style
        )
    if constant:
        cells = (
            constant.name,
            formatting.amount(metric, constant.value),
            *"----",
            *("-" for _ in loads),
            "a constant answer, for comparison",
        )
        table.add_row(*(Text(formatting.visible(cell)) for cell in cells), style="dim")
    return table


def _cells(row: ModelDecision, model: ModelMeasurements, metric: str, loads: Sequence[str]) -> list[str]:
    """Return the cells of a row after the name; the page has intervals, formats and all reasons."""
    metrics = model.metrics
    change = model.change(metric) if model.baseline and metric in metrics else None
    speedup = None if model.error else model.speedup(model.small_batch)
    return [
        formatting.amount(metric, *_ends(metrics[metric])) if metric in metrics else "-",
        formatting.change(metric, *_ends(change)).removesuffix(" points") if change else "-",
        formatting.amount("latency", metrics["latency"].value) if "latency" in metrics else "-",
        _speed(speedup),
        formatting.data_size(metrics["size"].value) if "size" in metrics else "-",
        *(formatting.amount(name, metrics[name].value) if name in metrics else "-" for name in loads),
        f"selected: {row.summary}" if row.chosen else row.summary or row.reasons[0],
    ]


def _speed(speedup: SpeedupEstimate | None) -> str:
    if not speedup:
        return "-"
    return speedup.verdict if speedup.is_unstable else formatting.ratio(*_ends(speedup))


def _ends(estimate: Estimate | SpeedupEstimate) -> tuple[float, float | None, float | None]:
    return estimate.value, estimate.low, estimate.high
