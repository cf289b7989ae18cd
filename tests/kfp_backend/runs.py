"""Small pipelines, and what Kubeflow Pipelines and a run on this machine record and write of a run."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2

REPOSITORY = Path(__file__).parents[2]
COUNTS = '''
from tests import toys
from tfopt.artifacts import Files
from tfopt.component import Input
from tfopt.trace import Steps


def counts(
    steps: Steps, data: Input[Files], *, unit: str = "bytes", notes: tuple[str, ...] = (), limit: int | None = None
) -> None:
    """Count twice, and add with the first count twice.

    Args:
        steps: Adds the steps.
        data: A file.
        unit: Of the count.
        notes: Any texts.
        limit: The largest count.
    """
    first = steps(toys.count, id="first", data=data, unit=unit, notes=notes, limit=limit)
    second = steps(toys.count, id="second", data=data, scale=0.5, loud=True)
    reports = [first.outputs["report"], second.outputs["report"]]
    steps(toys.add, id="total", reports=reports, extra=first.outputs["report"], start=3)
'''
FAILING = '''
from tests import toys
from tfopt.artifacts import Files
from tfopt.component import Input
from tfopt.trace import Steps


def failing(steps: Steps, data: Input[Files], *, how: str = "refuse") -> None:
    """Fail, and count after that.

    Args:
        steps: Adds the steps.
        data: A file.
        how: The way to fail.
    """
    failed = steps(toys.fail, id="first", data=data, how=how)
    steps(toys.add, id="after", reports=[failed.outputs["report"]])
'''
VALUES = ["unit=lines", 'notes=["a", "b: {{$}}", "ü\\"x"]', "limit=7"]


def install_sdk(folder: Path, end: str) -> dict[str, str]:
    """Install the oldest or the newest of KFP's SDKs that pyproject.toml allows; return an environment with it.

    The other packages are those of this environment.
    """
    extra = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]["kfp"]
    ranges = dict(re.fullmatch(r"(kfp[\w-]*)>=(\S+)", each).groups() for each in extra if each.startswith("kfp"))
    packages = []
    for name in ("kfp", "kfp-kubernetes", "kfp-pipeline-spec", "kfp-server-api"):
        least, _, bound = ranges.get(name, ranges["kfp"]).partition(",")
        packages.append(f"{name}=={least}" if end == "oldest" else f"{name}{bound}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *packages]
    subprocess.run(command, check=True)
    return {**os.environ, "PYTHONPATH": f"{folder}:{REPOSITORY}"}


def write_pipeline(folder: Path, text: str) -> str:
    """Write a pipeline to a file with the name of its function; return the file."""
    name = re.search(r"^def (\w+)", text, re.MULTILINE)[1]
    (folder / f"{name}.py").write_text(text)
    return str(folder / f"{name}.py")


def upload_rows(store, folder: Path, scheme: str) -> tuple[Path, str]:
    """Write a file of nine lines, and upload it; return the file and its address."""
    file = folder / "rows.csv"
    file.write_text("row\n" * 9)
    key = f"inputs/{folder.name}/rows.csv"
    store.upload_file(str(file), "mlpipeline", key)
    return file, f"{scheme}://mlpipeline/{key}"


def content(store, uri: str) -> dict[str, str]:
    """Return the files at an address by relative path."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    listed = store.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
    return {
        entry["Key"].removeprefix(key).lstrip("/"): store.get_object(Bucket=bucket, Key=entry["Key"])["Body"]
        .read()
        .decode()
        for entry in listed
    }


def run_locally(folder: Path, pipeline: str, words: list[str]) -> dict[str, dict[str, Any]]:
    """Run a pipeline on this machine; return the report and the recorded metadata of each step."""
    root = folder / "local"
    command = [
        sys.executable,
        "-m",
        "tfopt.run",
        "run",
        write_pipeline(folder, pipeline),
        "--root",
        str(root),
        "--json",
    ]
    done = subprocess.run([*command, *words], check=True, capture_output=True, text=True)
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(root / "metadata.sqlite")
    artifacts = {artifact.uri: artifact for artifact in metadata_store.MetadataStore(config).get_artifacts()}
    steps = {}
    for step, result in json.loads(done.stdout).items():
        ((name, uri),) = result["outputs"].items()
        steps[step] = {
            "files": {file.name: file.read_text() for file in Path(uri).iterdir()},
            "output": name,
            "count": artifacts[uri].custom_properties["count"].int_value,
        }
    return steps


def metadata_client(host: str, port: int = 8080) -> metadata_store.MetadataStore:
    """Return a client of KFP's metadata server."""
    return metadata_store.MetadataStore(metadata_store_pb2.MetadataStoreClientConfig(host=host, port=port))


def read_tasks(client: metadata_store.MetadataStore, run_id: str) -> dict[str, dict[str, Any]]:
    """Read the state, the values and the outputs of each task of a run."""
    context = client.get_context_by_type_and_name("system.PipelineRun", run_id)
    tasks = {}
    for execution in client.get_executions_by_context(context.id):
        values = {key: _value(value) for key, value in execution.custom_properties.items()}
        name = values.get("display_name") or values.get("task_name") or "root"
        state = metadata_store_pb2.Execution.State.Name(execution.last_known_state)
        tasks[name] = {"state": state, "values": values, "outputs": _outputs(client, execution.id)}
    return tasks


def _outputs(client: metadata_store.MetadataStore, execution: int) -> dict[str, Any]:
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
        return json.loads(json_format.MessageToJson(value.struct_value))
    return getattr(value, kind)
