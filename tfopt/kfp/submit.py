"""A DAG handed to a Kubeflow Pipelines server: its pipeline, its version, its run, and waiting for the run's end."""

import hashlib
import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kfp_server_api

import tfopt
from tfopt.dag.dag import Dag
from tfopt.errors import ComponentError
from tfopt.kfp import compiler as kfp
from tfopt.kfp.client import Server
from tfopt.kfp.images import Images
from tfopt.kfp.pod_options import Options

SCHEMES = ("gs://", "s3://", "minio://", "oci://")  # what KFP's importer can open
_ENDED = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELED")
_PATIENCE = 20  # polls in a row that may fail before waiting is given up

log = logging.getLogger("tfopt")


@dataclass(frozen=True)
class Upload:
    """A DAG on the server, ready to run: which experiment, pipeline and version, with which values."""

    experiment: str
    pipeline: str
    version: str
    values: dict[str, Any]


def upload(
    server: Server, dag: Dag, values: Mapping[str, Any], images: Images, options: Options, experiment: str | None = None
) -> Upload:
    """Compile a DAG and put it on the server, where the same YAML is one version however often it is sent.

    Args:
        server: Where to.
        dag: What.
        values: A value for each source (an address that the cluster can read) and parameter.
        images: What its steps run in.
        options: How its steps run.
        experiment: The experiment's name; the pipeline's when None.

    Raises:
        ComponentError: When a value does not fit, the DAG does not compile, or the server refuses.
    """
    name, given = kfp.pipeline_name(dag), arguments(dag, values)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pipeline.yaml")
        kfp.compile_pipeline(dag, file, images, options, given=values)
        version = f"{tfopt.__version__}-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
        pipeline_id = _pipeline(server, name, dag.description)
        known = server.all(
            server.client.list_pipeline_versions, "pipeline_versions", version, pipeline_id=pipeline_id
        ) or [_new_version(server, file, pipeline_id, version)]
    with server.asked("create an experiment"):
        place = server.client.create_experiment(experiment or name, namespace=server.namespace)
    return Upload(place.experiment_id, pipeline_id, known[0].pipeline_version_id, given)


def arguments(dag: Dag, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the compiled pipeline's parameters.

    Raises:
        ComponentError: On a wrong value, or a source that only this machine can read.
    """
    for name, value in values.items():
        if name in dag.sources and not str(value).startswith(SCHEMES):
            raise ComponentError(
                f"--set {name}={value}",
                f"an address that the cluster can read: {', '.join(SCHEMES)}",
                "copy it to your object store and pass its address there",
            )
    checked = dag.values(values)
    return {f"{name}_uri" if name in dag.sources else name: checked[name] for name in values}


def run(server: Server, uploaded: Upload, name: str, options: Options) -> str:
    """Start a run and return its id."""
    with server.asked(f"start {name}"):
        started = server.client.run_pipeline(
            uploaded.experiment,
            name,
            params=uploaded.values,
            pipeline_id=uploaded.pipeline,
            version_id=uploaded.version,
            pipeline_root=options.root,
            service_account=options.service_account,
        )
    return str(started.run_id)


def wait(server: Server, run_id: str, seconds: float = 5.0) -> str:
    """Tell each change of state of a run and its steps until the run ends; return its last state.

    A server that is away for a while is waited for; the run goes on without us.

    Raises:
        ComponentError: When the server stays away, or no longer lets us in.
    """
    told: dict[str, str] = {}
    failures = 0
    while True:
        try:
            with server.asked(f"watch run {run_id}"):
                found = server.client.get_run(run_id)
            failures = 0
        except ComponentError as error:
            failures += 1
            if not _passing(error) or failures > _PATIENCE:
                raise
            log.info("%s; asking again", error.received)
            time.sleep(seconds)
            continue
        _tell_steps(found, told)
        state = str(found.state or "PENDING")
        if told.get("") != state:
            log.info("run %s: %s%s", run_id, state.lower(), f": {found.error.message}" if found.error else "")
            told[""] = state
        if state in _ENDED:
            return state
        time.sleep(seconds)


def _pipeline(server: Server, name: str, description: str) -> str:
    known = server.all(server.client.list_pipelines, "pipelines", name, namespace=server.namespace)
    if known:
        return str(known[0].pipeline_id)
    wanted = kfp_server_api.V2beta1Pipeline(
        name=name, display_name=name, description=description, namespace=server.namespace
    )
    with server.asked(f"create pipeline {name}"):
        return str(server.client.pipelines.pipeline_service_create_pipeline(pipeline=wanted).pipeline_id)


def _new_version(server: Server, file: Path, pipeline_id: str, version: str) -> Any:
    with server.asked(f"upload version {version}"):
        return server.client.upload_pipeline_version(str(file), version, pipeline_id=pipeline_id)


def _tell_steps(found: Any, told: dict[str, str]) -> None:
    """Each step's changes; KFP's own drivers and groups, which have no name of ours, are left out."""
    for task in (found.run_details.task_details if found.run_details else None) or []:
        state, name = str(task.state or ""), str(task.display_name or "")
        if not state or name in ("root", "executor") or name.endswith("-driver") or told.get(task.task_id) == state:
            continue
        told[task.task_id] = state
        log.info("%s: %s%s", name, state.lower(), f": {task.error.message}" if task.error else "")


def _passing(error: ComponentError) -> bool:
    cause = error.__cause__
    return not isinstance(cause, kfp_server_api.ApiException) or (cause.status or 0) >= 500
