"""The backend for all tests of this folder, and what they read from it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.kfp_backend.backend import ADDRESS, KEYS, Backend, what_is_missing

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def backend(tmp_path_factory) -> Iterator[Backend]:
    if reason := what_is_missing():
        pytest.skip(reason)
    os.environ["PYTHONPATH"] = str(REPOSITORY)  # steps find the components of tests
    with Backend(tmp_path_factory.mktemp("backend")) as running:
        yield running


@pytest.fixture(scope="session")
def store(backend):
    """Return a client of the bucket that the runs use."""
    names = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    return boto3.client("s3", endpoint_url=backend.storage, region_name="us-east-1", **names)


@pytest.fixture(scope="session")
def recorded(backend):
    """Return a function that reads what KFP recorded of a run: the state, the values and the outputs of each task."""
    from ml_metadata.metadata_store import metadata_store
    from ml_metadata.proto import metadata_store_pb2

    client = metadata_store.MetadataStore(metadata_store_pb2.MetadataStoreClientConfig(host=ADDRESS, port=8080))

    def read(run_id: str) -> dict[str, dict[str, Any]]:
        context = client.get_context_by_type_and_name("system.PipelineRun", run_id)
        tasks = {}
        for execution in client.get_executions_by_context(context.id):
            values = {key: _value(value) for key, value in execution.custom_properties.items()}
            name = values.get("display_name") or values.get("task_name") or "root"
            state = metadata_store_pb2.Execution.State.Name(execution.last_known_state)
            tasks[name] = {"state": state, "values": values, "outputs": _outputs(client, execution.id)}
        return tasks

    return read


def _outputs(client: Any, execution: int) -> dict[str, Any]:
    from ml_metadata.proto import metadata_store_pb2

    outputs = {}
    events = client.get_events_by_execution_ids([execution])
    events = [event for event in events if event.type == metadata_store_pb2.Event.OUTPUT]
    artifacts = {
        artifact.id: artifact for artifact in client.get_artifacts_by_id([event.artifact_id for event in events])
    }
    for event in events:
        artifact = artifacts[event.artifact_id]
        metadata = {key: _value(value) for key, value in artifact.custom_properties.items()}
        outputs[event.path.steps[0].key] = {"type": artifact.type, "uri": artifact.uri, "metadata": metadata}
    return outputs


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "struct_value":
        from google.protobuf import json_format

        return json.loads(json_format.MessageToJson(value.struct_value))
    return getattr(value, kind)
