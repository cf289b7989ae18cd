"""Pipelines of tfopt on KFP's servers and Argo's controller, in pods under the profile ``restricted``."""

import re

import pytest

from tests.cluster.conftest import set_values
from tests.cluster.kubeflow import NAMESPACE, apply, kubectl
from tests.cluster.submission import Submission, containers
from tests.cluster.test_pods import SECURITY
from tests.kfp_backend.runs import COUNTS, VALUES, content, run_locally

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.usefixtures("servers")]


def test_a_run_in_restricted_pods_writes_and_records_what_a_local_run_does(submit, store, data, tmp_path):
    local = run_locally(tmp_path, COUNTS, set_values(f"data={data[0]}", *VALUES))
    submitted = submit(COUNTS, *set_values(f"data={data[1]}", *VALUES))
    assert submitted.wait() == 0, submitted.errors()
    steps = submitted.pods()
    assert len(steps) == len(local) == 3
    for pod in steps:
        (main,) = [each for each in containers(pod) if each["name"] == "main"]
        assert main["securityContext"].items() >= SECURITY.items()
        assert pod["spec"]["serviceAccountName"] == "tfopt-runner"
        assert main["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi"}
    tasks = submitted.tasks()
    for step, expected in local.items():
        output = tasks[step]["outputs"][expected["output"]]
        assert content(store, output["uri"]) == expected["files"]
        assert output["metadata"].get("count", 0) == expected["count"]


WAITING = {  # by what the commands of the message show
    "didn't match Pod's node affinity/selector": ("first:node.pool=gpu",),
    "registry.example/tfopt-tf:missing": ("first:image=registry.example/tfopt-tf:missing", "first:user=nonroot"),
    "Insufficient nvidia.com/gpu": ("first:gpu=1", "first:image=gpu"),
    "exceeded quota: none": ("first:gpu=1", "first:image=gpu", "first:gpu_type=example.com/gpu"),
}


def test_a_step_whose_pod_cannot_start_ends_the_wait_with_the_commands_that_show_why(data, tmp_path):
    hard = {"requests.example.com/gpu": "0"}
    apply([{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": hard}}])
    words = (*set_values(f"data={data[1]}"), "--start-timeout", "20s")
    submissions = {}
    for number, (cause, options) in enumerate(WAITING.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        submissions[cause] = Submission(folder, COUNTS, *words, options=options)
    for cause, submitted in submissions.items():
        assert submitted.wait() == 1, cause
        commands = re.findall(r"`(kubectl describe .*?)`", submitted.errors())
        assert "a pod of" in submitted.errors() and len(commands) == 2, cause
        assert any(cause in kubectl(*command.split()[1:]) for command in commands), cause
        submitted.terminate()
    kubectl("delete", "resourcequota", "none", "--namespace", NAMESPACE)


def test_an_image_of_ones_own_without_a_user_is_refused_by_the_profile(submit, data):
    words = set_values(f"data={data[1]}")
    options = ("first:image=registry.example/mine:1",)
    submitted = submit(COUNTS, *words, "--start-timeout", "20s", options=options)
    assert submitted.wait() == 1
    assert "runAsNonRoot != true" in submitted.reasons()
