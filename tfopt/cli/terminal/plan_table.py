"""The output of ``tfopt plan``: a line for each step, the expected time of the run, and what its records can show."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from tfopt.artifacts import Examples
from tfopt.cli.terminal.tables import OutputConsole, plain_table
from tfopt.dag.dag import Dag, Step, StepOutput
from tfopt.dag.planned_step import PlannedStep, expected_time
from tfopt.data.feature_schema import read_manifest
from tfopt.formatting import duration, visible
from tfopt.measurement.evidence import describe_visible_loss, expected_main_metric
from tfopt.storage.remote_files import is_remote
from tfopt.value_types import JsonObject

STYLES = {"run": "bold", "depends": "yellow", "reuse": "dim"}


def plan_facts(steps: Mapping[str, PlannedStep], evidence: Sequence[str]) -> JsonObject:
    """Return a plan as plain values; ``evidence`` are sentences on the records of the evaluation."""
    seconds, without_time = expected_time(steps)
    return {
        "steps": {
            name: {"action": step.action, "reasons": step.reasons, "seconds": step.seconds}
            for name, step in steps.items()
        },
        "seconds": seconds,
        "steps_without_time": without_time,
        "evidence": list(evidence),
    }


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
    (seconds, without_time), actions = expected_time(steps), [step.action for step in steps.values()]
    parts = [f"{actions.count('run')} of {len(steps)} steps run"]
    if depending := actions.count("depends"):
        parts.append(f"{depending} more if the outputs of these change")
    if seconds:
        parts.append(f"{'up to ' if depending else ''}about {duration(seconds)}, as in earlier runs")
    if without_time:
        parts.append(f"{without_time} of them for the first time")
    return "; ".join(parts)


def describe_evidence(dag: Dag, values: Mapping[str, Any], planned: Mapping[str, PlannedStep]) -> list[str]:
    """Return a sentence for each different set of records that models are evaluated on: what it can show.

    A step that the plan reuses has made its examples, whose number of records is known.
    """
    steps = [step for step in dag.steps.values() if step.component.name == "evaluate"]
    return list(dict.fromkeys(_describe(step, values, planned) for step in steps))


def _describe(step: Step, values: Mapping[str, Any], planned: Mapping[str, PlannedStep]) -> str:
    wire: Any = step.inputs["examples"]  # one artifact
    candidates = step.inputs["candidates"]
    count = len(candidates) if isinstance(candidates, tuple) else 1
    is_made = isinstance(wire, StepOutput)
    source = planned[wire.step].outputs.get(wire.output) if is_made else values[wire.name]
    if source is None or is_remote(source):  # not there yet, or not near
        maker = wire.step if is_made else step.id
        return f"{maker} will print what the records that it makes can show about the goals of quality"
    source = Examples(source).uri
    manifest = read_manifest(source)
    splits, split = manifest.splits or {}, step.value("split", values)
    if split == "auto":
        split = "test" if "test" in splits else "eval"
    if split not in splits:
        return f"{step.id} will print what its records can show: {source} does not state how many they are"
    has_classes = any((manifest.label_counts or {}).values())
    metric = expected_main_metric(step.value("metrics", values), has_classes=has_classes)
    return f"split {split}: {describe_visible_loss(splits[split], count, metric)}"
