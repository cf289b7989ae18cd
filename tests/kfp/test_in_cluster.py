"""``--endpoint in-cluster``: in a pod, whose token Kubernetes projects into a folder and replaces before it expires."""

from pathlib import Path

import pytest
from kfp import client

from tests.kfp_server.server import KfpServer
from tfopt.cli.main import main
from tfopt.kfp import client as kfp_server
from tfopt.kfp import submit

SUBMIT = ["submit", "optimize", "--set", "model=s3://bucket/model", "--set", "examples=gs://bucket/examples"]
SUBMIT += ["--endpoint", "in-cluster"]
PROJECTED = Path(kfp_server.PROJECTED_TOKEN)


@pytest.fixture
def pod(monkeypatch, tmp_path):
    """The folders that a pod sees."""
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "no-context.json"))
    monkeypatch.setattr(kfp_server, "PROJECTED_TOKEN", str(tmp_path / "pipelines" / "token"))
    monkeypatch.setattr(kfp_server, "POD_NAMESPACE", str(tmp_path / "namespace"))
    (tmp_path / "namespace").write_text("ml-team")
    return tmp_path


@pytest.fixture
def server(monkeypatch, pod):
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    with KfpServer() as running:
        monkeypatch.setattr(kfp_server, "IN_CLUSTER", running.url)
        yield running


def project(pod: Path, token: str) -> None:
    """Write the token as the kubelet does: a new folder, and one link that is swapped."""
    volume = pod / "pipelines"
    volume.mkdir(exist_ok=True)
    fresh = volume / f"..{len(list(volume.iterdir()))}"
    fresh.mkdir()
    (fresh / "token").write_text(token)
    (volume / "..data_tmp").symlink_to(fresh.name)
    (volume / "..data_tmp").replace(volume / "..data")
    if not (volume / "token").is_symlink():
        (volume / "token").symlink_to("..data/token")


def test_the_projected_token_lets_the_pod_in(server, pod):
    server.token = "of the pod"
    project(pod, "of the pod")
    assert main(SUBMIT) == 0
    assert len(server.kinds["runs"]) == 1


def test_a_token_that_was_replaced_is_read_anew_while_waiting(server, pod, monkeypatch):
    replaced = []

    def pause(seconds):
        replaced.append(f"number {len(replaced) + 2}")
        server.token = replaced[-1]
        project(pod, replaced[-1])

    monkeypatch.setattr(submit.time, "sleep", pause)
    server.script = [("RUNNING", {}), ("RUNNING", {}), ("SUCCEEDED", {})]
    server.token = "number 1"
    project(pod, "number 1")
    assert main([*SUBMIT, "--wait"]) == 0
    assert len(replaced) >= 2


def test_a_token_that_expired_and_was_not_replaced_is_told(server, pod, capsys):
    server.token = "new"
    project(pod, "expired")
    assert main(SUBMIT) == 1
    said = capsys.readouterr().err
    assert "401" in said
    assert "how to fix:" in said
    assert not server.kinds["runs"]


def test_without_a_projected_token_the_variable_counts(server, monkeypatch):
    server.token = "by hand"
    assert main(SUBMIT) == 1
    monkeypatch.setenv("KFP_TOKEN", "by hand")
    assert main(SUBMIT) == 0


def test_a_token_file_that_was_named_counts_more_than_the_projected_one(server, pod):
    server.token = "named"
    project(pod, "of the pod")
    (pod / "named").write_text("named")
    assert main([*SUBMIT, "--token-file", str(pod / "named")]) == 0


@pytest.mark.parametrize(("words", "used"), [([], "ml-team"), (["--namespace", "other"], "other")])
def test_on_a_server_of_several_users_the_pods_own_namespace_is_used_unless_one_is_given(words, used, server):
    server.multi_user = True
    assert main([*SUBMIT, *words]) == 0
    assert {found["namespace"] for found in server.kinds["experiments"].values()} == {used}


def test_a_pod_without_a_namespace_file_is_asked_for_one(server, pod, capsys):
    server.multi_user = True
    (pod / "namespace").unlink()
    assert main(SUBMIT) == 1
    assert "--namespace" in capsys.readouterr().err


def test_the_places_are_those_of_kubernetes_and_of_the_kfp_sdk():
    assert str(PROJECTED) == client.KF_PIPELINES_SA_TOKEN_PATH
    guide = (Path(__file__).parents[2] / "docs" / "kubeflow.md").read_text()
    assert f"`{PROJECTED}`" in guide
