"""Running a DAG on this machine with TFX: BeamDagRunner or LocalDagRunner, and SQLite metadata in the run's folder."""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from absl import logging as absl_logging
from tfx.dsl.components.base import base_node
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline

from tfopt.artifacts import Artifact
from tfopt.artifacts.storage import is_remote, state_at
from tfopt.dag.dag import Dag, PipelineInput, Step, StepOutput, Wire
from tfopt.tfx.components import TYPES, Executor, node

log = logging.getLogger("tfopt")


@dataclass
class Outcome:
    """What one step of a finished run left.

    Attributes:
        reused: True when an earlier run's outputs were taken.
        seconds: How long it took in this run.
        outputs: Its artifacts by name.
    """

    reused: bool
    seconds: float
    outputs: dict[str, Artifact]


def run(
    dag: Dag,
    values: Mapping[str, Any],
    root: Path,
    *,
    engine: Literal["beam", "local"] = "beam",
    beam_args: Sequence[str] = (),
) -> dict[str, Outcome]:
    """Run a DAG to its end and return what each step left, in order.

    Args:
        dag: From `tfopt.dag.dag.load` or `trace`.
        values: A path for each source, a value for each parameter (defaults where left out).
        root: The run's folder: artifacts and ``metadata.sqlite``. Steps whose inputs, parameters and code have not
            changed since an earlier run there are reused.
        engine: Which of TFX's runners walks the DAG.
        beam_args: Arguments for the Beam components' pipelines.

    Raises:
        ComponentError: On a wrong value, or a step's own.
    """
    root.mkdir(parents=True, exist_ok=True)
    built = pipeline(dag, values, root, beam_args=beam_args)
    progress = _Progress(dag)
    logging.getLogger("absl").addHandler(progress)
    verbosity, printed = absl_logging.get_verbosity(), absl_logging.get_absl_handler().level
    absl_logging.set_verbosity(absl_logging.INFO)  # below that the runners do not say where they are
    absl_logging.get_absl_handler().setLevel(max(printed, logging.WARNING))  # but nobody wants to read it all
    Executor.failure = None
    try:
        _runner(engine).run(built)
    except Exception as error:
        if Executor.failure is None:
            raise
        raise Executor.failure from error
    finally:
        absl_logging.set_verbosity(verbosity)
        absl_logging.get_absl_handler().setLevel(printed)
        logging.getLogger("absl").removeHandler(progress)
    return _outcomes(dag, root)


def pipeline(
    dag: Dag, values: Mapping[str, Any], root: Path, *, beam_args: Sequence[str] = ()
) -> tfx_pipeline.Pipeline:
    """Build the TFX pipeline of a DAG, with its sources imported by content: a changed file is a new artifact.

    At an address, names, sizes and times of change stand for the content.
    """
    known = dag.values(values)
    sources = {name: _importer(source, known[name]) for name, source in dag.sources.items() if known[name]}
    nodes: dict[str, base_node.BaseNode] = {}
    for step in dag.steps.values():
        wires = {name: channel for name, wire in step.inputs.items() if (channel := _channel(wire, sources, nodes))}
        nodes[step.id] = node(step.component, **wires, **dag.resolve(step, known)).with_id(step.id)
    return tfx_pipeline.Pipeline(
        pipeline_name=dag.name,
        pipeline_root=str(root / "artifacts"),
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(root / "metadata.sqlite")),
        components=[*sources.values(), *nodes.values()],
        enable_cache=True,
        beam_pipeline_args=list(beam_args),
    )


def _importer(source: PipelineInput, uri: str) -> Importer:
    state = state_at(uri) if is_remote(uri) else source.type(uri).digest
    importer = Importer(
        source_uri=uri,
        artifact_type=TYPES[source.type],
        custom_properties={"digest": state} if state else {},
        reimport=state is None,  # then nothing made of it is reused
    )
    return importer.with_id(source.name)


def _channel(wire: Wire, sources: Mapping[str, Importer], nodes: Mapping[str, base_node.BaseNode]) -> Any:
    if isinstance(wire, tuple):
        return [_channel(item, sources, nodes) for item in wire]
    if isinstance(wire, StepOutput):
        return nodes[wire.step].outputs[wire.output]
    return sources[wire.name].outputs["result"] if wire.name in sources else None


def _runner(engine: str) -> Any:
    if engine == "local":
        from tfx.orchestration.local.local_dag_runner import LocalDagRunner

        return LocalDagRunner()
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner

    return BeamDagRunner()


class _Progress(logging.Handler):
    """Turns what TFX's runners log of their nodes into one line a step, with its time."""

    def __init__(self, dag: Dag) -> None:
        super().__init__()
        self._dag = dag
        self._started, self._reused = 0.0, False

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        found = re.fullmatch(r"(?:node|Component) (\S+) is (running|finished)\.", message)
        if message.startswith("A cached execution"):
            self._reused = True
        elif found and found[1] in self._dag.steps:
            self._tell(found[1], found[2])

    def _tell(self, step: str, state: str) -> None:
        number = f"[{list(self._dag.steps).index(step) + 1}/{len(self._dag.steps)}]"
        if state == "running":
            self._started, self._reused = time.monotonic(), False
            log.info("%s %s …", number, step)
        else:
            how = "reused" if self._reused else f"done in {time.monotonic() - self._started:.1f} s"
            log.info("%s %s: %s", number, step, how)


def _outcomes(dag: Dag, root: Path) -> dict[str, Outcome]:
    """Read from the metadata store what each step's newest execution left."""
    config = metadata.sqlite_metadata_connection_config(str(root / "metadata.sqlite"))
    with metadata.Metadata(config) as handle:
        return {step.id: _outcome(handle.store, dag, step) for step in dag.steps.values()}


def _outcome(store: Any, dag: Dag, step: Step) -> Outcome:
    context = store.get_context_by_type_and_name("node", f"{dag.name}.{step.id}")
    newest = max(store.get_executions_by_context(context.id), key=lambda execution: execution.id)
    events = [event for event in store.get_events_by_execution_ids([newest.id]) if event.type == event.OUTPUT]
    made = store.get_artifacts_by_id([event.artifact_id for event in events])
    uris = {artifact.id: artifact.uri for artifact in made}
    found = {event.path.steps[0].key: uris[event.artifact_id] for event in events}
    seconds = (newest.last_update_time_since_epoch - newest.create_time_since_epoch) / 1000
    outputs = {name: port.type(found[name]) for name, port in step.component.outputs.items()}
    return Outcome(newest.last_known_state == newest.CACHED, seconds, outputs)
