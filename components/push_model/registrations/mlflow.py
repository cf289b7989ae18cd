"""Record a version as a run of MLflow, with metrics, tags and files, and as a version of a registered model."""

import os
from typing import Any

from tfopt.components.push_model.registrations.kind import Kind, PushedVersion
from tfopt.storage import remote_files

WITHDRAWN = "tfopt.withdrawn"  # a tag
FOLDER = "model"  # of the run's artifacts
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",  # seconds; by default two minutes, and seven repetitions
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # of MLflow's authors
}


def register(address: str, version: PushedVersion) -> str:
    """Record the run and the registered version, unless an earlier attempt did; return the run's name and ID.

    The experiment and the registered model have the name of the version. A run that a killed attempt left unfinished
    is completed.
    """
    client = _client(address)
    experiment = client.get_experiment_by_name(version.name)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(version.name)
    run = _find_run(client, experiment_id, version)
    run = run or client.create_run(experiment_id, tags=version.tags, run_name=f"{version.name} {version.number}")
    run_id = run.info.run_id
    if run.info.status != "FINISHED":
        baseline = {f"baseline/{metric}": value for metric, value in version.baseline_metrics.items()}
        for metric, value in {**version.metrics, **baseline}.items():
            client.log_metric(run_id, metric, value, step=version.number)
        client.log_artifacts(run_id, remote_files.local_copy(version.path), FOLDER)
    _register_version(client, run_id, version)
    client.set_terminated(run_id, "FINISHED")
    return f"run {run_id} of the experiment {version.name}"


def update(address: str, version: PushedVersion, served: PushedVersion | None, withdrawn: str | None) -> str:
    """Tag the run and the registered version of a withdrawn version, or remove the tags of a restored one."""
    client = _client(address)
    experiment = client.get_experiment_by_name(version.name)
    run = _find_run(client, experiment.experiment_id, version) if experiment else None
    if run is None:
        return "nothing: the version is not registered"
    registered = client.search_model_versions(f"run_id = '{run.info.run_id}'")
    if withdrawn:
        client.set_tag(run.info.run_id, WITHDRAWN, withdrawn)
        for model_version in registered:
            client.set_model_version_tag(version.name, model_version.version, WITHDRAWN, withdrawn)
    elif WITHDRAWN in run.data.tags:
        client.delete_tag(run.info.run_id, WITHDRAWN)
        for model_version in registered:
            client.delete_model_version_tag(version.name, model_version.version, WITHDRAWN)
    return f"tags of run {run.info.run_id} and its model version"


def _client(address: str) -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=address, registry_uri=address)


def _find_run(client: Any, experiment_id: str, version: PushedVersion) -> Any:
    keys = ("tfopt.version", "tfopt.digest", "tfopt.destination")
    quoted = {key: version.tags[key].replace("'", "\\'") for key in keys}
    condition = " and ".join(f"tags.`{key}` = '{value}'" for key, value in quoted.items())
    return next(iter(client.search_runs([experiment_id], condition, max_results=1)), None)


def _register_version(client: Any, run_id: str, version: PushedVersion) -> None:
    from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

    try:
        client.create_registered_model(version.name)
    except Exception as error:
        if getattr(error, "error_code", None) != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
            raise
    if not client.search_model_versions(f"run_id = '{run_id}'"):
        source = client.get_run(run_id).info.artifact_uri
        client.create_model_version(
            version.name, remote_files.join(source, FOLDER), run_id, tags=version.tags, description=version.reason
        )


KIND = Kind(register, package="mlflow", update=update)
