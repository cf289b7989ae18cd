"""Pods with the security context that tfopt compiles, as Kubernetes admits, schedules, limits and runs them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import get, log_of, wait_for
from tests.cluster.images import KINDS, write_image
from tests.cluster.kubeflow import apply, kubectl
from tests.cluster.registry import registry

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.usefixtures("node")]
OVERLAYS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "overlays"
# What KFP's API server and driver make of `tfopt compile`: test_kubeflow.py compares it.
SECURITY = {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
COUNT = ["python", "-m", "tfopt.run", "tests.toys:count", "--data", "/etc/passwd", "--report", "/tmp/report"]
ALLOCATE = ["python", "-c", "content = b'x' * (1 << 30); print(len(content))"]


def step(command: list[str], memory: str | None = "1Gi", **changes: Any) -> dict[str, Any]:
    """Return a pod that runs a command in the image ``tf`` with a read-only root."""
    container = {
        "name": "main",
        "image": KINDS["tf"],
        "command": command,
        "securityContext": {**SECURITY, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if memory:
        container["resources"] = {name: {"cpu": "500m", "memory": memory} for name in ("requests", "limits")}
    specification = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "containers": [container],
    }
    for key, value in changes.items():
        target = container if key in ("image", "resources", "securityContext") else specification
        target[key] = value
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "step"}, "spec": specification}


def state_of(namespace: str) -> dict[str, Any]:
    """Return the state of the pod's container."""
    statuses = get("pod", "step", namespace)["status"].get("containerStatuses", [{}])
    return statuses[0].get("state", {})


def finished(namespace: str) -> dict[str, Any]:
    return wait_for(lambda: state_of(namespace).get("terminated"))


def unschedulable(namespace: str) -> str:
    def reason() -> str | None:
        conditions = get("pod", "step", namespace)["status"].get("conditions", [])
        return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), None)

    return wait_for(reason)


def test_a_component_runs_restricted_with_a_read_only_root(namespace):
    apply([step(COUNT)], namespace)
    ended = finished(namespace)
    assert ended["exitCode"] == 0, log_of("step", namespace)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"securityContext": {**SECURITY, "runAsUser": 0}}, "runAsUser=0"),
        ({"securityContext": {"runAsNonRoot": True}}, "allowPrivilegeEscalation != false"),
        ({"volumes": [{"name": "tmp", "hostPath": {"path": "/tmp"}}]}, "restricted volume types"),
    ],
)
def test_the_profile_refuses_what_tfopt_does_not_compile(changes, refusal, namespace):
    with pytest.raises(RuntimeError, match="violates PodSecurity") as refused:
        apply([step(COUNT, **changes)], namespace)
    assert refusal in str(refused.value)


def test_a_step_beyond_its_limit_is_killed(namespace):
    apply([step(ALLOCATE, memory="256Mi")], namespace)
    ended = finished(namespace)
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_a_missing_image_is_reported(namespace):
    apply([step(COUNT, image="registry.example/tfopt-tf:missing")], namespace)
    waiting = wait_for(lambda: state_of(namespace).get("waiting", {}).get("message"))
    assert "registry.example/tfopt-tf:missing" in waiting


def test_a_node_selector_that_nothing_matches_is_reported(namespace):
    apply([step(COUNT, nodeSelector={"pool": "gpu"})], namespace)
    assert "didn't match Pod's node affinity/selector" in unschedulable(namespace)


def test_a_gpu_on_a_node_without_one_is_reported(namespace):
    resources = {"limits": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    apply([step(COUNT, resources=resources)], namespace)
    assert "Insufficient nvidia.com/gpu" in unschedulable(namespace)


@pytest.mark.parametrize("is_busy", [False, True])
def test_benchmark_in_a_guaranteed_pod_reports_its_limits_and_claims_no_difference_of_equal_models(
    is_busy, digits_model, digits_lite, namespace, tmp_path
):
    """The image has the models, and is pulled by its digest; `benchmark` measures a model, its copy and its export."""
    trees = {"/models/first": digits_model, "/models/second": digits_model, "/models/lite": digits_lite}
    archive = write_image(tmp_path, KINDS["tf"], trees=trees)
    words = "--baseline /models/first --candidates /models/second /models/lite --benchmark /tmp/out --seconds 4"
    command = f"python -m tfopt.run benchmark {words} --batch-sizes 1 >&2 && echo && cat /tmp/out/benchmark.json"
    beyond = f"python -m tfopt.run benchmark {words} --threads 2"
    neighbor = step(["python", "-c", "import os; os.fork()\nwhile True: pass"], memory=None)
    neighbor["metadata"]["name"] = "neighbor"
    with registry(archive) as image:
        resources = {name: {"cpu": "1", "memory": "3Gi"} for name in ("requests", "limits")}
        changes = {"image": image.format(kind="tf"), "resources": resources}
        apply([step(["sh", "-c", f"{beyond}; {command}"], **changes), *([neighbor] if is_busy else [])], namespace)
        assert wait_for(lambda: state_of(namespace).get("terminated"), 400)["exitCode"] == 0, log_of("step", namespace)
    assert get("pod", "step", namespace)["status"]["qosClass"] == "Guaranteed"
    log = log_of("step", namespace)
    assert "threads=2" in log and "at most 1, the cores this process may use" in log
    report = json.loads(log[log.index("\n{") :])
    print(report["environment"]["load"], [model["speedup"] for model in report["models"]])
    assert report["environment"]["cgroup"] == {"cpu_cores": 1.0, "memory_bytes": 3 << 30}
    assert (report["threads"], report["environment"]["container"]) == (1, "kubernetes")
    second, lite = (model["speedup"]["1"]["verdict"] for model in report["models"][1:])
    assert second in ("within noise", "unstable")
    assert lite in ("faster", "unstable")


def test_the_manifests_for_profiles_are_applied_with_quota_and_defaults():
    """The overlay `gpu` contains `multi-user`: namespace, accounts, volumes, quota, defaults, policy, and a job."""
    kubectl("apply", "-k", str(OVERLAYS / "gpu"))
    try:
        kubectl("label", "namespace", "tfopt", "--overwrite", "pod-security.kubernetes.io/enforce=restricted")
        apply([step(COUNT, memory=None)], "tfopt")
        (container,) = get("pod", "step", "tfopt")["spec"]["containers"]
        assert container["resources"] == {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "100m", "memory": "128Mi"},
        }
        assert wait_for(lambda: state_of("tfopt").get("terminated"))["exitCode"] == 0
        kubectl("delete", "pod", "step", "--namespace", "tfopt")
        with pytest.raises(RuntimeError, match="exceeded quota: tfopt"):
            apply([step(COUNT, memory="65Gi")], "tfopt")
        selector = ["--namespace", "tfopt", "--selector", "job-name=gpu-check", "--output", "json"]
        assert "gpu-check" in wait_for(lambda: kubectl("get", "pods", *selector))
        assert get("pvc", "tfopt-models", "tfopt")["status"]["phase"] == "Pending"  # no volumes of this kind here
    finally:
        kubectl("delete", "namespace", "tfopt", "--wait=false")
