"""The end of a run in the terminal: every model in a table, and which was chosen or why not."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfopt import formatting as wording
from tfopt.artifacts import Benchmark, Decision, Evaluation
from tfopt.measurement.model_measurements import Measured, join, main_metric

WIDTH = 100


def print_summary(
    decision: Decision, evaluation: Evaluation, benchmark: Benchmark, console: Console | None = None
) -> None:
    """Print the table and the verdict.

    Args:
        decision: What was chosen.
        evaluation: How well the models predict.
        benchmark: How fast and how large they are.
        console: Where to; the standard output when not given.
    """
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH  # a file or a pipe has no width of its own
    content, quality = decision.read(), evaluation.read()
    listed = content["models"]
    measured = join([(row["name"], row["digest"], row["format"]) for row in listed], quality, benchmark.read())
    metric = main_metric(quality)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("model", max_width=16, overflow="fold")
    for title in (wording.title(metric).replace(" ", "\n"), "difference", "latency", "speed", "size"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("chosen, or why not", ratio=1, overflow="fold")
    for row, model in zip(listed, measured, strict=True):
        style = "green" if row["chosen"] else "" if row["passed"] else "dim"
        table.add_row(*(Text(cell) for cell in _cells(row, model, metric)), style=style)
    console.print(table)
    console.print(Text(f"\n{content['reason']}", style="bold"))
    for said in content["history"]["regressions"]:
        console.print(Text(f"regression: {said}", style="yellow"))
    if quality.get("chosen_on_it"):
        told = "judged on the examples that best epochs were chosen on (split eval): with a split test, on that"
        console.print(Text(told, style="dim"))
    for model in measured:
        for note in model.quality.get("notes") or []:
            console.print(Text(f"{model.name}: {note}", style="dim"))
    if not content["blessed"]:
        console.print(Text("not blessed: it will not be pushed", style="red"))


def _cells(row: Mapping[str, Any], model: Measured, metric: str) -> list[str]:
    """Each cell has the figure above, and what qualifies it below."""
    known = model.metrics
    moved = model.change(metric) if model.parent and metric in known else None
    ratio = None if model.error else model.speedup(model.small_batch)
    return [
        f"{row['name']}\n{_kind(row)}",
        wording.amount(metric, known[metric].value) if metric in known else "-",
        f"{wording.change(metric, moved.value)}\n{wording.change_between(metric, moved.low, moved.high)}"
        if moved
        else "-",
        wording.amount("latency", known["latency"].value) if "latency" in known else "-",
        f"{wording.times(ratio['value'])}\n{ratio['verdict']}" if ratio else "-",
        f"{wording.data_size(known['size'].value)}\n{wording.data_size(known['size_gzipped'].value)} gz"
        if "size" in known and "size_gzipped" in known
        else "-",
        _status(row),
    ]


def _kind(row: Mapping[str, Any]) -> str:
    """The format; a parent's too where it is no SavedModel, since a Keras file is timed as Keras runs it."""
    kind = str(row["format"]).replace("_", " ")
    if not row["parent"]:
        return kind
    return "parent" if kind == "saved model" else f"parent, {kind}"


def _status(row: Mapping[str, Any]) -> str:
    if row["chosen"]:
        return "chosen"
    first, *more = row["reasons"]
    said = f"{first} (and {len(more)} more)" if more else first
    return said if row["passed"] else f"rejected: {said}"
