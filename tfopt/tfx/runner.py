"""Execution of a DAG on this machine by TFX's Beam or local runner, with SQLite metadata in the run's folder."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from absl import logging as absl_logging
from tfx.dsl.components.base import base_node
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline

from tfopt.artifacts import Artifact
from tfopt.dag.dag import Dag, PipelineInput, Step, StepOutput, Value, Wire
from tfopt.dag.outcome import Outcome, RunOutcome
from tfopt.dag.run_events import StepEnded, publish, report_end, report_start
from tfopt.data.beam_runner import worker_errors
from tfopt.errors import ComponentError
from tfopt.processes.preloaded_processes import preloading
from tfopt.storage.owned_files import is_own
from tfopt.storage.remote_files import content_digest, is_remote
from tfopt.storage.run_folder import METADATA, locked_run
from tfopt.storage.scratch import scratch_folder
from tfopt.tfx.cached_executions import DIGEST, artifacts_of, executions_of, reject_unusable
from tfopt.tfx.components import IMPLEMENTATION, TYPES, Executor, node

SOURCE_DIGEST = "digest"  # custom property of an imported source


def run(
    dag: Dag,
    values: Mapping[str, Any],
    root: Path,
    *,
    engine: Literal["beam", "local"] = "beam",
    beam_args: Sequence[str] = (),
) -> RunOutcome:
    """Run a DAG to its end and return the outcome of each step, in order.

    The arguments are those of `tfopt.process_engine.runner.run`. The root contains ``metadata.sqlite``, too.

    Raises:
        ComponentError: If a value is not allowed, or a step raises it.
    """
    with scratch_folder(), locked_run(root):
        if os.path.lexists(root / METADATA) and not is_own(root / METADATA):  # it could name any file as a result
            received = f"{root / METADATA}: a link, or a file of another user"
            raise ComponentError(received, "metadata that this user's runs wrote", "pass another folder with --root")
        values = dag.values(values)
        dag = dag.with_sources(values)
        tfx_dag = pipeline(dag, values, root, beam_args=beam_args)
        codes = {node.exec_properties.get(IMPLEMENTATION) for node in tfx_dag.components}
        reject_unusable(tfx_dag.metadata_connection_config, codes, IMPLEMENTATION)
        Executor.failure = None
        progress = _Progress(dag, values, tfx_dag.metadata_connection_config)
        with progress.reporting(), preloading(is_run=True, will_fork=dag.has_concurrent_steps):
            try:
                with worker_errors():
                    import_runner(engine)().run(tfx_dag)
            except Exception as error:
                if Executor.failure is None:
                    raise
                raise Executor.failure from error
        return RunOutcome({step: progress.outcome(step) for step in dag.steps})


def pipeline(
    dag: Dag, values: Mapping[str, Any], root: Path, *, beam_args: Sequence[str] = ()
) -> tfx_pipeline.Pipeline:
    """Build the TFX pipeline of a DAG. Sources are imported by content: a changed file is a new artifact.

    For remote files, names, sizes and modification times represent the content.
    """
    values = dag.values(values)
    dag = dag.with_sources(values)
    sources = {name: _importer(source, values[name]) for name, source in dag.sources.items() if values[name]}
    nodes: dict[str, base_node.BaseNode] = {}
    for step in dag.steps.values():
        wires = {name: _channel(wire, sources, nodes) for name, wire in step.inputs.items()}
        nodes[step.id] = node(step.component, **wires, **step.resolve(values)).with_id(step.id)
    return tfx_pipeline.Pipeline(
        pipeline_name=dag.name,
        pipeline_root=str(root / "artifacts"),
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(root / METADATA)),
        components=[*sources.values(), *nodes.values()],
        enable_cache=True,
        beam_pipeline_args=list(beam_args),
    )


def _importer(source: PipelineInput, uri: str) -> Importer:
    digest = source_digest(source, uri)
    properties = {SOURCE_DIGEST: digest} if digest else {}
    # without a digest it is imported again, and no step that uses it is reused
    importer = Importer(uri, TYPES[source.type], reimport=digest is None, custom_properties=properties)
    return importer.with_id(source.name)


def source_digest(source: PipelineInput, uri: str) -> str | None:
    """Return the digest that is a property of an imported source; None if a remote file has none."""
    return content_digest(uri) if is_remote(uri) else source.type(uri).digest


def _channel(wire: Wire, sources: Mapping[str, Importer], nodes: Mapping[str, base_node.BaseNode]) -> Any:
    if isinstance(wire, tuple):
        return [_channel(item, sources, nodes) for item in wire]
    if isinstance(wire, StepOutput):
        return nodes[wire.step].outputs[wire.output]
    return sources[wire.name].outputs["result"]


def import_runner(engine: str) -> Any:
    """Import the class of TFX's runner, which takes seconds, and return it."""
    if engine == "local":
        from tfx.orchestration.local.local_dag_runner import LocalDagRunner

        return LocalDagRunner
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner

    return BeamDagRunner


class _Progress(logging.Handler):
    """A handler that turns the log messages of TFX's runners, one step after another, into events."""

    def __init__(self, dag: Dag, values: Mapping[str, Any], connection: Any) -> None:
        super().__init__()
        self._dag, self._values, self._connection = dag, values, connection
        self._artifacts: dict[Value, Artifact] = {
            source: source.type(values[name]) for name, source in dag.sources.items() if values[name]
        }
        self._outcomes: dict[str, Outcome] = {}
        self._running = ""

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Report the steps, which TFX's runners log with absl at level INFO."""
        handler = absl_logging.get_absl_handler()
        verbosity, level = absl_logging.get_verbosity(), handler.level
        logging.getLogger("absl").addHandler(self)
        absl_logging.set_verbosity(absl_logging.INFO)
        handler.setLevel(max(level, logging.WARNING))  # the other messages at level INFO are not printed
        try:
            yield
        except BaseException as error:
            if self._running:
                publish(StepEnded(self._running, error=error))
            raise
        finally:
            absl_logging.set_verbosity(verbosity)
            handler.setLevel(level)
            logging.getLogger("absl").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        match = re.fullmatch(r"(?:node|Component) (\S+) is (running|finished)\.", record.getMessage())
        step = self._dag.steps.get(match[1]) if match else None
        if match and step and match[2] == "running":
            self._running = step.id
            inputs = step.listed_inputs
            opened = {name: [self._artifacts[value] for value in listed] for name, listed in inputs.items()}
            report_start(self._dag, step, self._values, opened)
        elif step:
            self._running = ""
            outcome = self.outcome(step.id)
            self._artifacts |= {output: outcome.outputs[name] for name, output in step.outputs.items()}
            report_end(self._dag, step.id, outcome)

    def outcome(self, step: str) -> Outcome:
        """Return the outcome of a step that has ended, from its newest execution."""
        if step not in self._outcomes:
            with metadata.Metadata(self._connection) as handle:
                self._outcomes[step] = _outcome(handle.store, self._dag, self._dag.steps[step])
        return self._outcomes[step]


def _outcome(store: Any, dag: Dag, step: Step) -> Outcome:
    """Read the newest execution of a step."""
    newest = executions_of(store, dag, step)[0]
    read, written = artifacts_of(store, newest)
    named = {
        name: _stored_digest(artifact, SOURCE_DIGEST) or _stored_digest(artifact, DIGEST) for name, artifact in read
    }
    keys = {port.name: port.keys(named) for port in step.component.inputs.values()}
    inputs = {name: [named[key] for key in listed] for name, listed in keys.items() if listed}
    seconds = (newest.last_update_time_since_epoch - newest.create_time_since_epoch) / 1000
    uris = {name: artifact.uri for name, artifact in written}
    outputs = {name: port.type(uris[name]) for name, port in step.component.outputs.items()}
    digests = {name: _stored_digest(artifact, DIGEST) for name, artifact in written}
    return Outcome(newest.last_known_state == newest.CACHED, seconds, outputs, inputs, digests)


def _stored_digest(artifact: Any, name: str) -> str | None:
    return artifact.custom_properties[name].string_value or None
