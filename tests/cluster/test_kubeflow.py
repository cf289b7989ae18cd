"""Pipelines of tfopt on KFP's servers and Argo's controller, in pods under the profile ``restricted``."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.cluster.images import KINDS
from tests.cluster.kubeflow import KEYS, NAMESPACE, address_of, kubectl
from tests.cluster.test_pods import SECURITY
from tests.kfp_backend.test_runs import COUNTS, VALUES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.usefixtures("servers")]
IMAGE = KINDS["tf"].replace("tfopt-tf", "tfopt-{kind}")
SMALL = ["cpu=500m", "memory=1Gi", "service_account=tfopt-runner", "retries=0"]


@pytest.fixture(scope="module")
def store() -> Any:
    """Return a client of the bucket that the runs use."""
    keys = {"aws_access_key_id": KEYS["accesskey"], "aws_secret_access_key": KEYS["secretkey"]}
    client = boto3.client("s3", endpoint_url=f"http://{address_of('seaweedfs', 9000)}", region_name="us-east-1", **keys)
    client.create_bucket(Bucket="mlpipeline")
    return client


@pytest.fixture
def data(store, tmp_path) -> tuple[Path, str]:
    """Return a file of nine lines, and its address in the bucket of the runs."""
    file = tmp_path / "rows.csv"
    file.write_text("row\n" * 9)
    key = f"inputs/{tmp_path.name}/rows.csv"
    store.upload_file(str(file), "mlpipeline", key)
    return file, f"minio://mlpipeline/{key}"  # KFP has an endpoint for this scheme without a configuration


@pytest.fixture
def submit(tmp_path) -> Iterator[Any]:
    """Return a function that runs ``tfopt submit --wait`` in a process; it returns the process."""

    def run(pipeline: str, *words: str, options: tuple[str, ...] = (), seconds: float = 600):
        name = re.search(r"^def (\w+)", pipeline, re.MULTILINE)[1]
        file = tmp_path / f"{name}.py"
        file.write_text(pipeline)
        command = [sys.executable, "-m", "tfopt.cli.main", "submit", str(file)]
        command += ["--endpoint", f"http://{address_of('ml-pipeline', 8888)}", "--image", IMAGE, "--wait", "--json"]
        command += [word for option in (*SMALL, *options) for word in ("--kfp-option", option)]
        environment = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.run(
            [*command, *words], capture_output=True, text=True, check=False, timeout=seconds, env=environment
        )

    yield run


def files(store, uri: str) -> dict[str, str]:
    """Return the files at an address by relative path."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    listed = store.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
    return {
        entry["Key"].removeprefix(key).lstrip("/"): store.get_object(Bucket=bucket, Key=entry["Key"])["Body"]
        .read()
        .decode()
        for entry in listed
    }


def run_id(done: "subprocess.CompletedProcess[str]") -> str:
    return json.loads(done.stdout)["run"]


def workflow(run: str) -> dict[str, Any]:
    selector = ["--namespace", NAMESPACE, "--selector", f"pipeline/runid={run}", "--output", "json"]
    (item,) = json.loads(kubectl("get", "workflows", *selector))["items"]
    return item


def pods(run: str) -> list[dict[str, Any]]:
    """Return the pods of a run's steps, without KFP's drivers."""
    selector = ["--namespace", NAMESPACE, "--selector", f"pipeline/runid={run}", "--output", "json"]
    listed = json.loads(kubectl("get", "pods", *selector))["items"]
    return [pod for pod in listed if any(each["image"] == KINDS["tf"] for each in pod["spec"]["containers"])]


def test_a_run_completes_in_restricted_pods_with_our_account_and_limits(submit, data):
    values = [word for value in VALUES for word in ("--set", value)]
    done = submit(COUNTS, "--set", f"data={data[1]}", *values)
    assert done.returncode == 0, done.stderr
    steps = pods(run_id(done))
    assert len(steps) == 3
    for pod in steps:
        (main,) = [each for each in pod["spec"]["containers"] if each["name"] == "main"]
        assert main["securityContext"].items() >= SECURITY.items()
        assert pod["spec"]["serviceAccountName"] == "tfopt-runner"
        assert main["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi"}


def test_a_step_that_no_node_can_run_ends_the_wait_with_the_commands_that_show_why(submit, data):
    words = ["--set", f"data={data[1]}", "--start-timeout", "20s"]
    done = submit(COUNTS, *words, options=("first:node.pool=gpu",))
    assert done.returncode == 1
    assert "a pod of" in done.stderr and "--namespace kubeflow --selector pipeline/runid=" in done.stderr


def test_an_image_of_ones_own_without_a_user_is_refused_by_the_profile(submit, data):
    words = ["--set", f"data={data[1]}", "--start-timeout", "20s"]
    done = submit(COUNTS, *words, options=("first:image=registry.example/mine:1",))
    assert done.returncode == 1
