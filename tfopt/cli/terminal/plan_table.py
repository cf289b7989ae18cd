"""The output of ``tfopt plan``: a line for each step, and the expected time of the run."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from tfopt.cli.terminal.tables import OutputConsole, plain_table
from tfopt.dag.planned_step import PlannedStep
from tfopt.formatting import duration, visible
from tfopt.value_types import JsonObject

STYLES = {"run": "bold", "depends": "yellow", "reuse": "dim"}


def plan_facts(steps: Mapping[str, PlannedStep], evidence: Sequence[str]) -> JsonObject:
    """Return a plan as plain values; ``evidence`` are sentences on the records of the evaluation."""
    seconds, without_time = _expected_time(steps)
    return {
        "steps": {
            name: {"action": step.action, "reasons": step.reasons, "seconds": step.seconds}
            for name, step in steps.items()
        },
        "seconds": seconds,
        "steps_without_time": without_time,
        "evidence": list(evidence),
    }


def _expected_time(steps: Mapping[str, PlannedStep]) -> tuple[float, int]:
    """Return the seconds that steps took before which are not reused, and the number of those that never ran."""
    times = [step.seconds for step in steps.values() if step.action != "reuse"]
    return sum(time or 0 for time in times), times.count(None)


def print_plan(steps: Mapping[str, PlannedStep], evidence: Sequence[str] = (), console: Console | None = None) -> None:
    """Print the table, the expected time, and sentences on the records of the evaluation."""
    console = console or OutputConsole()
    table = plain_table()
    for title in ("step", "action"):
        table.add_column(title, no_wrap=True)
    table.add_column("last took", justify="right", no_wrap=True)
    table.add_column("why", ratio=1, overflow="fold")
    for name, step in steps.items():
        time = "-" if step.seconds is None else duration(step.seconds)
        cells = (name, step.action, time, visible("; ".join(step.reasons)))
        table.add_row(*map(Text, cells), style=STYLES[step.action])
    console.print(table)
    console.print(Text(f"\n{_summary(steps)}", style="bold"))
    for sentence in evidence:
        console.print(Text(visible(sentence), style="dim"))


def _summary(steps: Mapping[str, PlannedStep]) -> str:
    (seconds, without_time), actions = _expected_time(steps), [step.action for step in steps.values()]
    parts = [f"{actions.count('run')} of {len(steps)} steps run"]
    if depending := actions.count("depends"):
        parts.append(f"{depending} more if the outputs of these change")
    if seconds:
        parts.append(f"{'up to ' if depending else ''}about {duration(seconds)}, as in earlier runs")
    if without_time:
        parts.append(f"{without_time} of them for the first time")
    return "; ".join(parts)
