"""Compare the records and decisions of two runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from tfopt.artifacts import Decision
from tfopt.cli.terminal.tables import OutputConsole, plain_table
from tfopt.formatting import amount, title, visible
from tfopt.reports.decision_report import DecisionReport
from tfopt.run_records.run_record import RunRecord
from tfopt.value_types import JsonObject

MODEL = "model "  # begins the kind of a difference in the metrics of a model


@dataclass(frozen=True)
class Difference:
    """A value that two runs do not have in common."""

    kind: str  # ``run``, ``parameter``, ``source``, ``content``, ``code``, ``package``, ``decision`` or ``model NAME``
    name: str
    values: tuple[Any, Any]  # the value in each run; None if the run does not have it


def compare_runs(first: tuple[Path, RunRecord], second: tuple[Path, RunRecord]) -> list[Difference]:
    """Return the differences of two runs, each given as its folder and record."""
    records, decisions = (first[1], second[1]), (_decision(*first), _decision(*second))
    return [
        Difference(kind, name, values)
        for kind, sides in (
            ("run", [_run_facts(record) for record in records]),
            ("parameter", [record.parameters for record in records]),
            ("source", [record.sources for record in records]),
            ("content", _contents(*records)),
            ("code", [record.code for record in records]),
            ("package", [record.packages for record in records]),
            ("decision", [_decision_facts(report) for report in decisions]),
            ("decision", [{"pushed": record.pushed} for record in records]),
        )
        for name, values in _differences(*sides)
    ] + list(_model_differences(*decisions))


def print_differences(differences: Sequence[Difference], runs: Sequence[str]) -> None:
    """Print a table with a line for each difference that its digits show, and a column for each run."""
    table = plain_table()
    for column in ("kind", "name", *runs):
        table.add_column(Text(visible(column)), overflow="fold")
    kind = ""
    for difference in differences:
        name = title(difference.name) if difference.kind.startswith(MODEL) else difference.name
        before, now = (_text(difference, value) for value in difference.values)
        if before != now:
            cells = ("" if difference.kind == kind else difference.kind, name, before, now)
            table.add_row(*(Text(visible(cell)) for cell in cells))
            kind = difference.kind
    console = OutputConsole()
    console.print(table)
    if any(difference.kind.startswith(MODEL) for difference in differences):
        note = "measurements vary from run to run; the reports have their intervals (tfopt open RUN)"
        console.print(Text(f"\n{note}", style="dim"))


def _run_facts(record: RunRecord) -> JsonObject:
    names = ("pipeline", "state", "error", "engine", "host", "version", "python")
    return {"tfopt" if name == "version" else name: getattr(record, name) for name in names}


def _contents(first: RunRecord, second: RunRecord) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the digests of the sources of both runs; those of two engines cannot be compared."""
    names = first.inputs.keys() & second.inputs.keys() if first.engine == second.engine else set()
    return {name: first.inputs[name] for name in names}, {name: second.inputs[name] for name in names}


def _decision(root: Path, record: RunRecord) -> DecisionReport | None:
    return Decision((root / record.report).parent).load() if record.report else None


def _decision_facts(report: DecisionReport | None) -> JsonObject:
    return {"selected": report.selected, "blessed": report.blessed} if report else {}


def _model_differences(first: DecisionReport | None, second: DecisionReport | None) -> Iterator[Difference]:
    """Yield the metrics of each model, by its name, that differ, and whether it met all goals."""
    sides = [
        {model.name: {**model.metrics, "passed": model.passed} for model in report.models} if report else {}
        for report in (first, second)
    ]
    for model in dict.fromkeys([*sides[0], *sides[1]]):
        for name, values in _differences(*(side.get(model, {}) for side in sides)):
            yield Difference(f"{MODEL}{model}", name, values)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in dict.fromkeys([*first, *second]):
        values = (first.get(name), second.get(name))
        if values[0] != values[1]:
            yield name, values


def _text(difference: Difference, value: Any) -> str:
    if value is None:
        return "-"
    if difference.kind.startswith(MODEL) and not isinstance(value, bool):
        return amount(difference.name, value)
    if difference.kind in ("content", "code"):
        return str(value).split()[-1][:12]  # enough of a digest
    return value if isinstance(value, str) else json.dumps(value)
