"""Decide for each step of a DAG, before anything runs, if an earlier result will be reused, and if not, why."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfopt.dag.dag import Dag, Step, Value
from tfopt.dag.planned_step import Action, PlannedStep, after, why_run
from tfopt.process_engine.result_cache import Execution, StepResults
from tfopt.process_engine.runner import present_inputs, source_digest


def plan(dag: Dag, values: Mapping[str, Any], root: Path) -> dict[str, PlannedStep]:
    """Return what `tfopt.process_engine.runner.run` with these arguments would do with each step; nothing is written.

    Raises:
        ComponentError: If a value is not allowed.
    """
    values, root = dag.values(values), root.absolute()
    sources = {source: source.type(values[name]) for name, source in dag.sources.items() if values[name] is not None}
    digests: dict[Value, str | None] = {source: source_digest(artifact) for source, artifact in sources.items()}
    steps: dict[str, PlannedStep] = {}
    for step in dag.steps.values():
        inputs = present_inputs(step, digests)
        content = {name: [digests[value] for value in listed] for name, listed in inputs.items()}
        results = StepResults(root, step, content, step.component.check(step.resolve(values)))
        outputs = results.find()
        digests |= {output: outputs[name].content_digest if outputs else None for name, output in step.outputs.items()}
        executions = results.executions()
        seconds = executions[0].seconds if executions else None
        if outputs:
            steps[step.id] = PlannedStep("reuse", [], seconds, {name: output.uri for name, output in outputs.items()})
        else:
            unknown = [(name, value) for name, listed in inputs.items() for value in listed if digests[value] is None]
            steps[step.id] = PlannedStep(*_action(step, results, executions, unknown), seconds)
    return steps


def _action(
    step: Step, results: StepResults, executions: list[Execution], unknown: list[tuple[str, Value]]
) -> tuple[Action, list[str]]:
    """Return what happens with a step without a result to reuse, and why; `unknown` are inputs without a digest."""
    reasons, steps = why_run(step.component, map(results.differences, executions), unknown)
    if reasons:
        return "run", reasons
    return ("depends", [after(steps)]) if steps else ("run", [results.repetition()])
