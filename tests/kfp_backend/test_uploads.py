"""Give every compiled pipeline and component to KFP's own API server, which validates and compiles it to a workflow."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import Client
from kfp_server_api import ApiException

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
COMPILED = sorted((Path(__file__).parents[2] / "deploy" / "kfp").rglob("*.yaml"))
COMPILED = [file for file in COMPILED if file.name != "metadata.yaml"]
VALUES = {"STRING": "s3://mlpipeline/source", "LIST": [], "NUMBER_INTEGER": 1, "NUMBER_DOUBLE": 1.0, "BOOLEAN": True}


@pytest.fixture(scope="module")
def client(backend) -> Client:
    return Client(backend.url)


def start(client: Client, file: Path, name: str) -> str:
    """Upload a file as a pipeline, start a run of it, and return the id of the run."""
    pipeline = client.upload_pipeline(str(file), name)
    version = client.list_pipeline_versions(pipeline.pipeline_id).pipeline_versions[0]
    experiment = client.create_experiment("uploads").experiment_id
    ids = {"pipeline_id": pipeline.pipeline_id, "version_id": version.pipeline_version_id}
    return client.run_pipeline(experiment, name, params=required_values(file), **ids).run_id


def required_values(file: Path) -> dict[str, Any]:
    parameters = documents(file)[0]["root"].get("inputDefinitions", {}).get("parameters", {})
    required = {name: entry for name, entry in parameters.items() if "defaultValue" not in entry}
    return {name: VALUES[entry["parameterType"]] for name, entry in required.items() if not entry.get("isOptional")}


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def steps_of_workflow(backend, run_id: str) -> set[str]:
    """Return the tasks of the pipeline's own DAG in the workflow that the server created for a run."""
    (workflow,) = [
        created
        for created in backend.cluster.of_kind("workflows")
        if created["metadata"]["labels"]["pipeline/runid"] == run_id
    ]
    (root,) = [template for template in workflow["spec"]["templates"] if template["name"] == "root"]
    return {task["name"] for task in root["dag"]["tasks"]}


def tasks_and_drivers(file: Path) -> set[str]:
    """Return the tasks of a compiled file, and a driver for each that is not an importer."""
    tasks = documents(file)[0]["root"]["dag"]["tasks"]
    steps = {name for name, task in tasks.items() if not task["componentRef"]["name"].startswith("comp-importer")}
    return set(tasks) | {f"{name}-driver" for name in steps}


@pytest.mark.parametrize("file", COMPILED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_the_server_compiles_every_step_of_a_file_to_a_workflow(backend, client, file):
    run_id = start(client, file, f"{file.parent.name}-{file.stem}".replace("_", "-"))
    assert steps_of_workflow(backend, run_id) == tasks_and_drivers(file)


def test_the_server_refuses_a_schema_that_it_does_not_know(backend, client, tmp_path):
    file = next(file for file in COMPILED if file.name == "retrain.yaml")
    (tmp_path / "old.yaml").write_text(file.read_text().replace("schemaVersion: 2.1.0", "schemaVersion: 2.0.0"))
    with pytest.raises(ApiException, match="Failed to create a pipeline"):
        client.upload_pipeline(str(tmp_path / "old.yaml"), "old")
    assert "KFP only supports schema version 2.1.0" in (backend.folder / "apiserver.log").read_text()


def test_the_server_refuses_a_wire_to_a_step_that_does_not_exist(client, tmp_path):
    file = next(file for file in COMPILED if file.name == "retrain.yaml")
    changed = file.read_text().replace("producerTask: train\n", "producerTask: absent\n")
    (tmp_path / "wire.yaml").write_text(changed)
    with pytest.raises(ApiException, match="absent"):
        start(client, tmp_path / "wire.yaml", "wire")
