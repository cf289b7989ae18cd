"""The Kubernetes manifests: built by kustomize, valid to the letter, and no more rights than a step needs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tfopt

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
PLACES = ["base", *(f"overlays/{path.name}" for path in sorted((MANIFESTS / "overlays").iterdir()))]
BIN = Path(sys.executable).parent


def build(place: str) -> str:
    words = [BIN / "kubectl", "kustomize", MANIFESTS / place]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def objects(place: str) -> dict[tuple[str, str], dict]:
    return {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(build(place))}


@pytest.mark.parametrize("place", PLACES)
def test_kustomize_builds_it_and_kubernetes_would_take_every_field(place, tmp_path):
    (tmp_path / "all.yaml").write_text(build(place))
    words = [BIN / "kubernetes-validate", "--strict", "--no-warn", "-k", "1.37.0", tmp_path / "all.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelled_field_would_be_found(tmp_path):
    (tmp_path / "all.yaml").write_text(build("base").replace("accessModes", "accesModes"))
    words = [BIN / "kubernetes-validate", "--strict", "--no-warn", "-k", "1.37.0", tmp_path / "all.yaml"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("place", PLACES)
def test_nobody_gets_more_than_named_verbs_on_named_things(place):
    found = objects(place)
    assert not {kind for kind, _ in found} & {"ClusterRole", "ClusterRoleBinding"}
    for (kind, _), role in found.items():
        for rule in role.get("rules", []) if kind == "Role" else []:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if {"secrets", "configmaps"} & set(rule["resources"]):
                assert rule["resourceNames"]
                assert rule["verbs"] == ["get"]


def test_each_role_is_bound_to_its_own_account_in_its_namespace():
    found = objects("overlays/multi-user")
    for name in ("tfopt-runner", "tfopt-submitter"):
        binding = found["RoleBinding", name]
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "tfopt"}]
        assert ("Role", name) in found
        assert ("ServiceAccount", name) in found


def test_the_submitter_may_do_what_submit_and_schedule_ask_for():
    """Each call of the kfp client in tfopt, as the verb and resource that Kubeflow's API server asks Kubernetes for."""
    calls = "".join((ROOT / "tfopt" / "kfp" / f"{name}.py").read_text() for name in ("submit", "recurring_runs"))
    wanted = {
        "list_pipelines": ("list", "pipelines"),
        "pipeline_service_create_pipeline": ("create", "pipelines"),
        "create_experiment": ("create", "experiments"),
        "run_pipeline": ("create", "runs"),
        "get_run": ("get", "runs"),
        "create_recurring_run": ("create", "jobs"),
        "list_recurring_runs": ("list", "jobs"),
        "delete_recurring_run": ("delete", "jobs"),
        "enable_recurring_run": ("enable", "jobs"),
        "disable_recurring_run": ("disable", "jobs"),
    }
    rules = objects("base")["Role", "tfopt-submitter"]["rules"]
    for call, (verb, resource) in wanted.items():
        assert call in calls
        assert any(verb in rule["verbs"] and resource in rule["resources"] for rule in rules)
    known = {*wanted, "list_pipeline_versions", "upload_pipeline_version"}
    assert set(re.findall(r"client\.(?:pipelines\.)?(\w+)", calls)) - {"pipelines"} <= known


def test_a_single_user_server_is_given_no_quota_and_no_policy():
    kinds = {kind for kind, _ in objects("overlays/single-user")}
    assert not kinds & {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy"}


def test_every_overlay_is_whole_in_one_namespace():
    for place, namespace in (("single-user", "kubeflow"), ("multi-user", "tfopt"), ("gpu", "tfopt")):
        found = objects(f"overlays/{place}")
        assert {one["metadata"].get("namespace", namespace) for one in found.values()} == {namespace}


def test_the_gpu_overlay_has_gpus_and_runs_the_image_of_this_version():
    found = objects("overlays/gpu")
    assert found["ResourceQuota", "tfopt"]["spec"]["hard"]["requests.nvidia.com/gpu"] == "2"
    pod = found["Job", "gpu-check"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"tfopt-tensorrt:{tfopt.__version__}"
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert objects("overlays/multi-user")["ResourceQuota", "tfopt"]["spec"]["hard"]["requests.nvidia.com/gpu"] == "0"


def test_under_the_quota_every_pod_has_requests_and_every_step_fits():
    from tfopt.component import components

    found = objects("overlays/multi-user")
    (limits,) = found["LimitRange", "tfopt"]["spec"]["limits"]
    assert limits["defaultRequest"]
    assert limits["default"]
    hard = found["ResourceQuota", "tfopt"]["spec"]["hard"]
    for component in components().values():
        assert component.resources.cpu <= float(hard["requests.cpu"])
        assert int(component.resources.memory.removesuffix("Gi")) <= int(hard["requests.memory"].removesuffix("Gi"))
