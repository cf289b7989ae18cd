"""Run a DAG in this process and its children, with results and their records in the run's folder, or plan that."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tfopt.artifacts import Artifact
from tfopt.dag.dag import Dag, Step, Value
from tfopt.dag.outcome import Outcome, RunOutcome
from tfopt.dag.planned_step import Action, PlannedStep, after, why_run
from tfopt.dag.run_events import report_end, report_start, reporting_failure
from tfopt.data import beam_runner
from tfopt.process_engine.result_cache import StepResults
from tfopt.process_engine.scheduler import run_steps
from tfopt.processes.preloaded_processes import preloading
from tfopt.storage import remote_files
from tfopt.storage.run_folder import locked_run
from tfopt.storage.scratch import scratch_folder


def run(dag: Dag, values: Mapping[str, Any], root: Path, *, beam_args: Sequence[str] = (), jobs: int = 1) -> RunOutcome:
    """Run a DAG to its end and return the outcome of each step, in order.

    Args:
        dag: A DAG from `tfopt.dag.tracing`.
        values: A path for each source, and values of parameters; the others have their defaults.
        root: The run's folder. Steps of an earlier run there are reused if the content of their inputs, their
            parameters and their code have not changed. A second run in it waits for the first one.
        beam_args: Arguments for the Beam components' pipelines.
        jobs: Most steps at a time (see `tfopt.process_engine.scheduler`).

    Raises:
        ComponentError: If a value is not allowed, or a step raises it. Finished steps are reused by the next run.
    """
    values, root = dag.values(values), root.absolute()
    dag = dag.with_sources(values)
    ended: dict[str, Outcome] = {}
    with (
        scratch_folder(),
        locked_run(root),
        beam_runner.runner_arguments(beam_args),
        preloading(is_run=True, will_fork=dag.has_concurrent_steps),
    ):
        artifacts: dict[Value, Artifact] = {
            source: source.type(values[name]) for name, source in dag.sources.items() if values[name] is not None
        }
        digests = {source: source_digest(artifact) for source, artifact in artifacts.items()}

        def start(step: Step) -> Callable[[], Outcome]:
            present = step.listed_inputs
            inputs = {name: [digests[value] for value in listed] for name, listed in present.items()}
            opened = {name: [artifacts[value] for value in listed] for name, listed in present.items()}
            report_start(dag, step, values, opened)
            paths = {name: [artifact.uri for artifact in listed] for name, listed in opened.items()}
            parameters = step.resolve(values)
            # In this thread: Python 3.11 fails when two threads parse source code, which the digest of the code does.
            results = StepResults(root, step, inputs, step.component.check(parameters))
            return partial(_run_step, step, results, inputs, paths, parameters)

        def finish(step: Step, outcome: Outcome) -> None:
            outcome.digests = {name: output.content_digest for name, output in outcome.outputs.items()}
            report_end(dag, step.id, outcome)
            ended[step.id] = outcome
            for name, output in step.outputs.items():
                artifacts[output] = outcome.outputs[name]
                digests[output] = outcome.digests[name]

        run_steps(list(dag.steps.values()), start, finish, jobs)
    return RunOutcome({step: ended[step] for step in dag.steps})


def plan(dag: Dag, values: Mapping[str, Any], root: Path) -> dict[str, PlannedStep]:
    """Return what `run` with these arguments would do with each step; nothing is written.

    Raises:
        ComponentError: If a value is not allowed.
    """
    values, root = dag.values(values), root.absolute()
    dag = dag.with_sources(values)
    sources = {source: source.type(values[name]) for name, source in dag.sources.items() if values[name] is not None}
    digests: dict[Value, str | None] = {source: source_digest(artifact) for source, artifact in sources.items()}
    steps: dict[str, PlannedStep] = {}
    for step in dag.steps.values():
        inputs = step.listed_inputs
        content = {name: [digests[value] for value in listed] for name, listed in inputs.items()}
        results = StepResults(root, step, content, step.component.check(step.resolve(values)))
        outputs = results.find()
        digests |= {output: outputs[name].content_digest if outputs else None for name, output in step.outputs.items()}
        executions = results.executions()
        seconds = executions[0].seconds if executions else None
        if outputs:
            steps[step.id] = PlannedStep("reuse", [], seconds, {name: output.uri for name, output in outputs.items()})
            continue
        unknown = [(name, value) for name, listed in inputs.items() for value in listed if digests[value] is None]
        reasons, makers = why_run(step.component, map(results.differences, executions), unknown)
        action: Action = "depends" if makers and not reasons else "run"
        reasons = reasons or [after(makers) if makers else results.repetition()]
        steps[step.id] = PlannedStep(action, reasons, seconds)
    return steps


def _run_step(
    step: Step,
    results: StepResults,
    inputs: dict[str, list[str | None]],
    paths: Mapping[str, list[str]],
    parameters: Mapping[str, Any],
) -> Outcome:
    """Return the outcome of a step: an earlier result if there is one, else that of an execution."""
    component, start = step.component, time.monotonic()
    with reporting_failure(step.id):
        outputs = results.find(mark_used=True)
        if outputs is not None:
            return Outcome(True, time.monotonic() - start, outputs, inputs)
        arguments = {name: listed if component.inputs[name].many else listed[0] for name, listed in paths.items()}
        outputs = component(**arguments, **results.new_targets(), **parameters)
        results.store(outputs, time.monotonic() - start)
    return Outcome(False, time.monotonic() - start, outputs, inputs)


def source_digest(artifact: Artifact) -> str | None:
    """Return a digest of a source's name, which may determine how it is read, and content; None if it is unknown."""
    if not remote_files.is_remote(artifact.uri):
        return f"{artifact.path.name} {artifact.content_digest}"
    digest = remote_files.content_digest(artifact.uri)
    return digest and f"{artifact.uri} {digest}"
