"""Execution of a DAG in this process, one step after another, with results and their records in the run's folder."""

import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Artifact, storage
from tfopt.artifacts.run_folder import locked_run
from tfopt.artifacts.scratch import scratch_folder
from tfopt.dag.dag import Dag, Step, Value
from tfopt.dag.outcome import Outcome, RunOutcome, log_end, log_start
from tfopt.data import beam_runner
from tfopt.process_engine.result_cache import StepResults
from tfopt.processes.call_server import call_servers


def run(dag: Dag, values: Mapping[str, Any], root: Path, *, beam_args: Sequence[str] = ()) -> RunOutcome:
    """Run a DAG to its end and return the outcome of each step, in order.

    Args:
        dag: A DAG from `tfopt.dag.tracing`.
        values: A path for each source, and values of parameters; the others have their defaults.
        root: The run's folder. Steps of an earlier run there are reused if the content of their inputs, their
            parameters and their code have not changed. A second run in it waits for the first one.
        beam_args: Arguments for the Beam components' pipelines.

    Raises:
        ComponentError: If a value is not allowed, or a step raises it. Finished steps are reused by the next run.
    """
    values, root = dag.values(values), root.absolute()
    outcomes = RunOutcome()
    with (
        scratch_folder(),
        locked_run(root),
        beam_runner.runner_arguments(beam_args),
        call_servers(is_run=True),
    ):
        artifacts: dict[Value, Artifact] = {
            source: source.type(values[name]) for name, source in dag.sources.items() if values[name] is not None
        }
        digests = {source: source_digest(artifact) for source, artifact in artifacts.items()}
        for step in dag.steps.values():
            log_start(dag, step.id)
            outcome = _run_step(step, artifacts, digests, dag.resolve(step, values), root)
            log_end(dag, step.id, reused=outcome.reused, seconds=outcome.seconds)
            outcomes[step.id] = outcome
            for name, output in step.outputs.items():
                artifacts[output] = outcome.outputs[name]
                digests[output] = outcome.outputs[name].content_digest
    return outcomes


def _run_step(
    step: Step,
    artifacts: Mapping[Value, Artifact],
    digests: Mapping[Value, str | None],
    parameters: Mapping[str, Any],
    root: Path,
) -> Outcome:
    """Return the outcome of a step: an earlier result if there is one, else that of an execution."""
    start, component = time.monotonic(), step.component
    present = present_inputs(step, artifacts)
    inputs = {name: [digests[value] for value in values] for name, values in present.items()}
    results = StepResults(root, step, inputs, component.check(parameters))
    outputs = results.reuse()
    if outputs is not None:
        return Outcome(True, time.monotonic() - start, outputs, inputs)
    paths = {name: [artifacts[value].uri for value in values] for name, values in present.items()}
    arguments = {name: listed if component.inputs[name].many else listed[0] for name, listed in paths.items()}
    outputs = component(**arguments, **results.new_targets(), **parameters)
    results.store(outputs, time.monotonic() - start)
    return Outcome(False, time.monotonic() - start, outputs, inputs)


def present_inputs(step: Step, available: Container[Value]) -> dict[str, list[Value]]:
    """Return the artifacts of each input of a step; an optional source without a path is not available."""
    wires = {name: wire if isinstance(wire, tuple) else (wire,) for name, wire in step.inputs.items()}
    present = {name: [value for value in wire if value in available] for name, wire in wires.items()}
    return {name: values for name, values in present.items() if values}


def source_digest(artifact: Artifact) -> str | None:
    """Return a digest of a source's name, which may determine how it is read, and content; None if it is unknown."""
    if not storage.is_remote(artifact.uri):
        return f"{artifact.path.name} {artifact.content_digest}"
    digest = storage.content_digest(artifact.uri)
    return digest and f"{artifact.uri} {digest}"
