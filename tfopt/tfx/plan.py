"""Decide for each step of a DAG what TFX's runners would do with it, from the metadata store in the run's folder.

TFX reuses an execution of the same step with the same properties and the same input artifacts. It compares artifacts,
not their content: an output that is made again is a new artifact, so that each step after a step that runs runs too.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from tfopt.component import Component
from tfopt.dag.dag import Dag, PipelineInput, Step, Value
from tfopt.dag.planned_step import PlannedStep, after, why_run
from tfopt.execution import code_digest
from tfopt.execution.code_digest import Code
from tfopt.formatting import changes
from tfopt.storage.run_folder import METADATA
from tfopt.tfx.cached_executions import REUSABLE, artifacts_of, damaged_store, defect, executions_of
from tfopt.tfx.components import CODE_PARTS, COMPONENT, TYPES, decoded_parameters, execution_properties, split_lists
from tfopt.tfx.runner import SOURCE_DIGEST, source_digest

NEW = -1  # identifier of an artifact that the run will register; no artifact has it


@dataclass(frozen=True)
class _Execution:
    """An earlier execution of a step; its time is None if it reused the outputs of another one."""

    properties: Mapping[str, Any]
    inputs: dict[str, int]
    outputs: dict[str, mlmd.Artifact]
    seconds: float | None


def plan(dag: Dag, values: Mapping[str, Any], root: Path) -> dict[str, PlannedStep]:
    """Return what `tfopt.tfx.runner.run` with these arguments would do with each step; nothing is written.

    Raises:
        ComponentError: If a value is not allowed.
        MachineError: If the metadata store cannot be read.
    """
    values = dag.values(values)
    dag = dag.with_sources(values)
    store = _open(root / METADATA)
    # Identifiers of the artifacts that the steps will get; None if it is unknown.
    uris = {source: values[name] for name, source in dag.sources.items() if values[name] is not None}
    ids: dict[Value, int | None] = {source: _source_id(store, source, uri) for source, uri in uris.items()}
    steps: dict[str, PlannedStep] = {}
    for step in dag.steps.values():
        executions = list(_executions(store, dag, step))
        properties = execution_properties(step.component, step.resolve(values))
        inputs = {name: value for name, (_, value) in split_lists(step.component, step.inputs)}
        reused, reasons = _decide(step.component, properties, inputs, ids, executions)
        outputs = reused.outputs if reused else {}
        ids |= {output: outputs[name].id if reused else None for name, output in step.outputs.items()}
        seconds = next((execution.seconds for execution in executions if execution.seconds is not None), None)
        addresses = {name: output.uri for name, output in outputs.items()}
        steps[step.id] = PlannedStep("reuse" if reused else "run", reasons, seconds, addresses)
    return steps


def _decide(
    component: Component,
    properties: Mapping[str, Any],
    inputs: Mapping[str, Value],
    ids: Mapping[Value, int | None],
    executions: list[_Execution],
) -> tuple[_Execution | None, list[str]]:
    """Return the execution whose outputs a step will get, or why there is none."""
    artifacts = {name: ids.get(value) for name, value in inputs.items()}
    unknown = [value for value in inputs.values() if ids.get(value) is None]
    differences = [_differences(component, properties, artifacts, execution) for execution in executions]
    equal = [execution for execution, lines in zip(executions, differences, strict=True) if not lines]
    defects = [next(filter(None, map(defect, execution.outputs.values())), None) for execution in equal]
    if component.cache != "never" and not unknown and None in defects:
        return equal[defects.index(None)], []
    named = [(value.name if isinstance(value, PipelineInput) else "", value) for value in unknown]
    reasons, steps = why_run(component, differences, named)
    if steps:
        reasons.append(after(steps))
    return None, reasons or [str(defects[0])]


def _differences(
    component: Component, properties: Mapping[str, Any], inputs: Mapping[str, int | None], execution: _Execution
) -> list[str]:
    """List how an earlier execution differs from a step; inputs that are unknown count as equal."""
    lines, before = [], execution.properties
    if before.get(COMPONENT) != properties[COMPONENT]:
        lines.append(f"component changed: {before.get(COMPONENT)} -> {properties[COMPONENT]}")
    for name in sorted({*execution.inputs, *inputs}):
        if (name in inputs) != (name in execution.inputs) or inputs[name] not in (None, execution.inputs[name]):
            lines.append(f"{name} changed")
    lines += changes("parameter ", decoded_parameters(component, before), decoded_parameters(component, properties))
    if before.get(CODE_PARTS) != properties[CODE_PARTS]:
        earlier = Code(**json.loads(before[CODE_PARTS])) if CODE_PARTS in before else None
        lines += code_digest.differences(earlier, Code(**json.loads(properties[CODE_PARTS])))
    return lines


def _open(file: Path) -> metadata_store.MetadataStore | None:
    if not file.exists():
        return None
    config = mlmd.ConnectionConfig()
    config.sqlite.filename_uri = str(file)
    config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READONLY
    try:
        return metadata_store.MetadataStore(config)
    except RuntimeError as error:
        raise damaged_store(str(file), error) from error


def _source_id(store: Any, source: PipelineInput, uri: str) -> int | None:
    """Return the artifact that TFX's importer takes: the newest with address, type and digest of the source."""
    digest = source_digest(source, uri)
    if digest is None:
        return None
    candidates = [
        artifact
        for artifact in (store.get_artifacts_by_uri(uri) if store else [])
        if artifact.type == TYPES[source.type].TYPE_NAME
        and artifact.custom_properties[SOURCE_DIGEST].string_value == digest
    ]
    return max(candidates, key=lambda artifact: artifact.create_time_since_epoch).id if candidates else NEW


def _executions(store: Any, dag: Dag, step: Step) -> Iterator[_Execution]:
    """Yield the completed executions of a step, newest first."""
    for execution in executions_of(store, dag, step) if store else ():
        if execution.last_known_state not in REUSABLE:
            continue
        inputs, outputs = artifacts_of(store, execution)
        if any(artifact.state != mlmd.Artifact.LIVE for _, artifact in outputs):
            continue
        stored_values = [*execution.properties.items(), *execution.custom_properties.items()]
        properties = {name: getattr(value, value.WhichOneof("value")) for name, value in stored_values}
        time = (execution.last_update_time_since_epoch - execution.create_time_since_epoch) / 1000
        is_own = execution.last_known_state == mlmd.Execution.COMPLETE
        ids = {name: artifact.id for name, artifact in inputs}
        yield _Execution(properties, ids, dict(outputs), time if is_own else None)
