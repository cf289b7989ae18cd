"""Read earlier executions from a metadata store, and check them before TFX reuses them.

TFX reuses an execution with the same inputs, properties and code if its outputs exist. It does not look at their
content, and cannot know that an output is the row of a model that could not be made, but may be in another attempt.
"""

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ml_metadata.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.orchestration import metadata

from tfopt.artifacts import Artifact, Model
from tfopt.dag.dag import Dag, Step
from tfopt.dag.planned_step import ATTEMPT_FAILED, OUTPUTS_CHANGED
from tfopt.errors import MachineError
from tfopt.storage.remote_files import is_remote

DIGEST = "content_digest"  # custom property of an output
DAMAGED = ("not a database", "malformed")  # in SQLite's messages
REUSABLE = (mlmd.Execution.COMPLETE, mlmd.Execution.CACHED)
Artifacts = list[tuple[str, mlmd.Artifact]]


def reject_unusable(config: Any, implementations: Collection[str], property_name: str) -> None:
    """Mark executions as failed whose outputs were removed or changed, or hold a failure that need not last.

    Only those are examined whose custom property `property_name` is one of `implementations`: TFX reuses no others.

    Raises:
        MachineError: If the store is damaged.
    """
    with contextlib.ExitStack() as stack:
        try:
            store = stack.enter_context(metadata.Metadata(config)).store
        except RuntimeError as error:
            if not any(sign in str(error) for sign in DAMAGED):  # a full disk, for example, has an error of its own
                raise
            raise damaged_store(config.sqlite.filename_uri, error) from error
        executions = {
            execution.id: execution
            for execution in store.get_executions()
            if execution.last_known_state in REUSABLE
            and execution.custom_properties[property_name].string_value in implementations
        }
        events = store.get_events_by_execution_ids(list(executions))
        outputs = [event for event in events if event.type == mlmd.Event.OUTPUT]
        artifacts = store.get_artifacts_by_id(list({event.artifact_id for event in outputs}))
        unusable = {artifact.id for artifact in artifacts if defect(artifact)}
        rejected = [executions[id] for id in {event.execution_id for event in outputs if event.artifact_id in unusable}]
        for execution in rejected:
            execution.last_known_state = mlmd.Execution.FAILED
        store.put_executions(rejected)


def executions_of(store: MetadataStore, dag: Dag, step: Step) -> list[mlmd.Execution]:
    """Return the executions of a step, newest first."""
    context = store.get_context_by_type_and_name("node", f"{dag.name}.{step.id}")
    executions = store.get_executions_by_context(context.id) if context else []
    return sorted(executions, key=lambda execution: -execution.id)


def artifacts_of(store: MetadataStore, execution: mlmd.Execution) -> tuple[Artifacts, Artifacts]:
    """Return the inputs and the outputs of an execution, each with its name; a list input has several artifacts."""
    events = store.get_events_by_execution_ids([execution.id])
    stored = {artifact.id: artifact for artifact in store.get_artifacts_by_id([event.artifact_id for event in events])}
    named = [(event.type, event.path.steps[0].key, stored[event.artifact_id]) for event in events]
    inputs, outputs = (
        [(name, artifact) for type, name, artifact in named if type == side]
        for side in (mlmd.Event.INPUT, mlmd.Event.OUTPUT)
    )
    return inputs, outputs


def damaged_store(file: str, error: RuntimeError) -> MachineError:
    """Convert ML Metadata's error about a file that is not its store."""
    fix = "use another --root, or remove the file, and no earlier result is reused"
    return MachineError(f"{file}: {str(error).split(' query:')[0]}", "the metadata store of earlier runs", fix)


def defect(artifact: Any) -> str | None:
    """Return why an output must not be reused; None if it may be."""
    recorded = artifact.custom_properties[DIGEST].string_value if DIGEST in artifact.custom_properties else ""
    if not recorded or is_remote(artifact.uri):  # of an earlier version, or not of this machine
        return None
    if not Path(artifact.uri).exists():
        return OUTPUTS_CHANGED
    if Model(artifact.uri).is_worth_another_attempt:
        return ATTEMPT_FAILED
    return None if Artifact(artifact.uri).content_digest == str(recorded) else OUTPUTS_CHANGED
