"""The running node, and namespaces in it. `make test-cluster` starts the node, and runs these tests there."""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.cluster import kubeflow
from tests.cluster.kubeflow import KEYS, address_of, apply, kubectl
from tests.cluster.node import FOLDER, what_is_missing
from tests.cluster.submission import Submission
from tests.kfp_backend.runs import upload_rows

CLAIM = "models"


@pytest.fixture(scope="session")
def node() -> None:
    """Skip tests outside of the node's namespaces."""
    if os.environ.get("KUBECONFIG") != str(FOLDER / "admin.kubeconfig"):
        pytest.skip(what_is_missing() or "not in the node's namespaces: make test-cluster")


@pytest.fixture
def namespace(node: None) -> Iterator[str]:
    """Create a namespace with the profile ``restricted``."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "labels": kubeflow.PROFILE}
    apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def servers(node: None) -> None:
    """Start KFP's servers and Argo's controller."""
    if reason := kubeflow.what_is_missing():
        pytest.skip(reason)
    kubeflow.install()


@pytest.fixture(scope="session")
def volume(servers: None) -> Path:
    """Create a volume in a folder of the node, and a claim for it; return the folder."""
    return create_volume(CLAIM, kubeflow.NAMESPACE)


def create_volume(name: str, namespace: str) -> Path:
    """Create a folder of the node, a volume and a claim of one name; return the folder."""
    path = FOLDER / name
    path.mkdir(exist_ok=True)
    path.chmod(0o777)  # for the user of the images
    modes, storage = ["ReadWriteOnce"], {"storage": "1Gi"}
    specification = {"accessModes": modes, "capacity": storage, "hostPath": {"path": str(path)}, "storageClassName": ""}
    persistent = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": specification}
    requested = {"accessModes": modes, "resources": {"requests": storage}, "storageClassName": "", "volumeName": name}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": requested}
    apply([persistent, claim], namespace)
    return path


@pytest.fixture(scope="session")
def store(servers: None) -> Any:
    """Return a client of the bucket that the runs use."""
    return bucket()


def bucket() -> Any:
    """Create the bucket that the runs use, if it does not exist, and return a client."""
    keys = {"aws_access_key_id": KEYS["accesskey"], "aws_secret_access_key": KEYS["secretkey"]}
    client = boto3.client("s3", endpoint_url=f"http://{address_of('seaweedfs', 9000)}", region_name="us-east-1", **keys)
    client.create_bucket(Bucket="mlpipeline")
    return client


@pytest.fixture
def data(store, tmp_path) -> tuple[Path, str]:
    """Return a file of nine lines, and its address in the bucket of the runs."""
    return upload_rows(store, tmp_path, "minio")  # KFP has an endpoint for this scheme without a configuration


def upload_folder(client: Any, folder: Path, key: str) -> str:
    """Upload a folder, and return its address."""
    for file in (file for file in folder.rglob("*") if file.is_file()):
        client.upload_file(str(file), "mlpipeline", f"{key}/{file.relative_to(folder)}")
    return f"minio://mlpipeline/{key}"


@pytest.fixture
def submit(tmp_path) -> Callable[..., Submission]:
    """Return a function that starts ``tfopt submit --wait``."""
    return partial(Submission, tmp_path)


def get(kind: str, name: str, namespace: str) -> Any:
    """Return an object."""
    return json.loads(kubectl("get", kind, name, "--namespace", namespace, "--output", "json"))


def wait_for(condition: Callable[[], Any], seconds: float = 120, pause: float = 1) -> Any:
    """Return the first value of a condition that is true; raise TimeoutError with the last one."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{condition}: {value}")
        time.sleep(pause)
    return value


def set_values(*values: str) -> list[str]:
    """Return the arguments of a command that set the values of parameters."""
    return [word for value in values for word in ("--set", value)]


def log_of(pod: str, namespace: str) -> str:
    done = subprocess.run(
        ["kubectl", "logs", pod, "--namespace", namespace], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
