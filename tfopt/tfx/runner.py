"""Execution of a DAG on this machine by TFX's Beam or local runner, with SQLite metadata in the run's folder."""

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from absl import logging as absl_logging
from tfx.dsl.components.base import base_node
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline

from tfopt.dag.dag import Dag, PipelineInput, Step, StepOutput, Wire
from tfopt.dag.outcome import Outcome, RunOutcome, log_end, log_start
from tfopt.data.beam_runner import worker_errors
from tfopt.errors import ComponentError
from tfopt.processes.preloaded_processes import preloading
from tfopt.storage.owned_files import is_own
from tfopt.storage.remote_files import content_digest, is_remote
from tfopt.storage.run_folder import METADATA, locked_run
from tfopt.storage.scratch import scratch_folder
from tfopt.tfx.cached_executions import artifacts_of, executions_of, reject_unusable
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
        tfx_dag = pipeline(dag, values, root, beam_args=beam_args)
        codes = {node.exec_properties.get(IMPLEMENTATION) for node in tfx_dag.components}
        reject_unusable(tfx_dag.metadata_connection_config, codes, IMPLEMENTATION)
        Executor.failure = None
        with _logged_progress(dag), preloading(is_run=True, will_fork=dag.has_concurrent_steps):
            try:
                with worker_errors():
                    import_runner(engine)().run(tfx_dag)
            except Exception as error:
                if Executor.failure is None:
                    raise
                raise Executor.failure from error
        with metadata.Metadata(tfx_dag.metadata_connection_config) as handle:
            return RunOutcome({step.id: _outcome(handle.store, dag, step) for step in dag.steps.values()})


def pipeline(
    dag: Dag, values: Mapping[str, Any], root: Path, *, beam_args: Sequence[str] = ()
) -> tfx_pipeline.Pipeline:
    """Build the TFX pipeline of a DAG. Sources are imported by content: a changed file is a new artifact.

    For remote files, names, sizes and modification times represent the content.
    """
    values = dag.values(values)
    sources = {name: _importer(source, values[name]) for name, source in dag.sources.items() if values[name]}
    nodes: dict[str, base_node.BaseNode] = {}
    for step in dag.steps.values():
        wires = {name: channel for name, wire in step.inputs.items() if (channel := _channel(wire, sources, nodes))}
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
    return sources[wire.name].outputs["result"] if wire.name in sources else None


def import_runner(engine: str) -> Any:
    """Import the class of TFX's runner, which takes seconds, and return it."""
    if engine == "local":
        from tfx.orchestration.local.local_dag_runner import LocalDagRunner

        return LocalDagRunner
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner

    return BeamDagRunner


@contextlib.contextmanager
def _logged_progress(dag: Dag) -> Iterator[None]:
    """Log the progress of the steps, which TFX's runners report in absl's log at level INFO."""
    progress, handler = _Progress(dag), absl_logging.get_absl_handler()
    verbosity, level = absl_logging.get_verbosity(), handler.level
    logging.getLogger("absl").addHandler(progress)
    absl_logging.set_verbosity(absl_logging.INFO)
    handler.setLevel(max(level, logging.WARNING))  # the other messages at level INFO are not printed
    try:
        yield
    finally:
        absl_logging.set_verbosity(verbosity)
        handler.setLevel(level)
        logging.getLogger("absl").removeHandler(progress)


class _Progress(logging.Handler):
    """A handler that turns the log messages of TFX's runners into one line per step, with its time."""

    def __init__(self, dag: Dag) -> None:
        super().__init__()
        self._dag = dag
        self._started, self._reused = 0.0, False

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        match = re.fullmatch(r"(?:node|Component) (\S+) is (running|finished)\.", message)
        if message.startswith("A cached execution"):
            self._reused = True
        elif match and match[1] in self._dag.steps and match[2] == "running":
            self._started, self._reused = time.monotonic(), False
            log_start(self._dag, match[1])
        elif match and match[1] in self._dag.steps:
            log_end(self._dag, match[1], reused=self._reused, seconds=time.monotonic() - self._started)


def _outcome(store: Any, dag: Dag, step: Step) -> Outcome:
    """Read the newest execution of a step."""
    newest = executions_of(store, dag, step)[0]
    read, written = artifacts_of(store, newest)
    inputs: dict[str, list[str | None]] = {}
    for name, artifact in read:
        inputs.setdefault(name, []).append(artifact.custom_properties[SOURCE_DIGEST].string_value or None)
    seconds = (newest.last_update_time_since_epoch - newest.create_time_since_epoch) / 1000
    uris = {name: artifact.uri for name, artifact in written}
    outputs = {name: port.type(uris[name]) for name, port in step.component.outputs.items()}
    return Outcome(newest.last_known_state == newest.CACHED, seconds, outputs, inputs)
