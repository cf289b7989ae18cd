"""Test the Kubernetes manifests: kustomize builds them, all fields are valid, and rights are minimal."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tfopt

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
FOLDERS = ["base", *(f"overlays/{path.name}" for path in sorted((MANIFESTS / "overlays").iterdir()))]
BIN = Path(sys.executable).parent


def build(folder: str) -> str:
    words = [BIN / "kubectl", "kustomize", MANIFESTS / folder]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def objects(folder: str) -> dict[tuple[str, str], dict]:
    return {
        (manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in yaml.safe_load_all(build(folder))
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_builds_it_and_every_field_is_valid(folder, tmp_path):
    (tmp_path / "all.yaml").write_text(build(folder))
    words = [BIN / "kubernetes-validate", "--strict", "--no-warn", "-k", "1.37.0", tmp_path / "all.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelled_field_is_detected(tmp_path):
    (tmp_path / "all.yaml").write_text(build("base").replace("accessModes", "accesModes"))
    words = [BIN / "kubernetes-validate", "--strict", "--no-warn", "-k", "1.37.0", tmp_path / "all.yaml"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_roles_name_their_verbs_resources_and_secrets(folder):
    manifests = objects(folder)
    assert not {kind for kind, _ in manifests} & {"ClusterRole", "ClusterRoleBinding"}
    for (kind, _), role in manifests.items():
        for rule in role.get("rules", []) if kind == "Role" else []:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if {"secrets", "configmaps"} & set(rule["resources"]):
                assert rule["resourceNames"]
                assert rule["verbs"] == ["get"]


def test_each_role_is_bound_to_its_service_account():
    manifests = objects("overlays/multi-user")
    for name in ("tfopt-runner", "tfopt-submitter"):
        binding = manifests["RoleBinding", name]
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "tfopt"}]
        assert ("Role", name) in manifests
        assert ("ServiceAccount", name) in manifests


def test_the_submitter_role_allows_all_calls_of_submit_and_schedule():
    """Compare with the verb and resource that Kubeflow's API server checks for each call of the kfp client."""
    calls = "".join((ROOT / "tfopt" / "kfp" / f"{name}.py").read_text() for name in ("submit", "recurring_runs"))
    permissions = {
        "list_pipelines": ("list", "pipelines"),
        "pipeline_service_create_pipeline": ("create", "pipelines"),
        "create_experiment": ("create", "experiments"),
        "run_pipeline": ("create", "runs"),
        "get_run": ("get", "runs"),
        "list_runs": ("list", "runs"),
        "create_recurring_run": ("create", "jobs"),
        "list_recurring_runs": ("list", "jobs"),
        "delete_recurring_run": ("delete", "jobs"),
        "enable_recurring_run": ("enable", "jobs"),
        "disable_recurring_run": ("disable", "jobs"),
    }
    rules = objects("base")["Role", "tfopt-submitter"]["rules"]
    for call, (verb, resource) in permissions.items():
        assert call in calls
        assert any(verb in rule["verbs"] and resource in rule["resources"] for rule in rules)
    expected = {*permissions, "list_pipeline_versions", "upload_pipeline_version"}
    assert set(re.findall(r"client\.(?:pipelines\.)?(\w+)", calls)) - {"pipelines"} <= expected


def test_the_single_user_overlay_has_no_quota_and_no_policy():
    kinds = {kind for kind, _ in objects("overlays/single-user")}
    assert not kinds & {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy"}


def test_every_overlay_is_in_one_namespace():
    for folder, namespace in (("single-user", "kubeflow"), ("multi-user", "tfopt"), ("gpu", "tfopt")):
        manifests = objects(f"overlays/{folder}")
        assert {one["metadata"].get("namespace", namespace) for one in manifests.values()} == {namespace}


def test_the_gpu_overlay_has_gpus_and_runs_the_image_of_this_version():
    manifests = objects("overlays/gpu")
    assert manifests["ResourceQuota", "tfopt"]["spec"]["hard"]["requests.nvidia.com/gpu"] == "2"
    pod = manifests["Job", "gpu-check"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"tfopt-gpu:{tfopt.__version__}"
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert objects("overlays/multi-user")["ResourceQuota", "tfopt"]["spec"]["hard"]["requests.nvidia.com/gpu"] == "0"


def test_every_pod_has_requests_and_every_step_fits_into_the_quota():
    from tfopt.component import components

    manifests = objects("overlays/multi-user")
    (limits,) = manifests["LimitRange", "tfopt"]["spec"]["limits"]
    assert limits["defaultRequest"]
    assert limits["default"]
    hard = manifests["ResourceQuota", "tfopt"]["spec"]["hard"]
    for component in components().values():
        assert component.resources.cpu <= float(hard["requests.cpu"])
        assert int(component.resources.memory.removesuffix("Gi")) <= int(hard["requests.memory"].removesuffix("Gi"))
