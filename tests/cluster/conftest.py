"""The running node, and namespaces in it. `make test-cluster` starts the node, and runs these tests there."""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster import kubeflow
from tests.cluster.kubeflow import apply, kubectl
from tests.cluster.node import FOLDER, what_is_missing


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
    kubeflow.install()


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


def log_of(pod: str, namespace: str) -> str:
    done = subprocess.run(
        ["kubectl", "logs", pod, "--namespace", namespace], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
