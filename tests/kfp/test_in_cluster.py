"""Test ``--endpoint in-cluster``: in a pod, with the token that Kubernetes projects into a folder and rotates."""

from pathlib import Path

import pytest
from kfp import client as kfp_client

from tests.kfp_server.server import KfpServer
from tfopt.cli.main import main
from tfopt.kfp import client, submit

SUBMIT = ["submit", "optimize", "--set", "model=s3://bucket/model", "--set", "examples=gs://bucket/examples"]
SUBMIT += ["--endpoint", "in-cluster"]
PROJECTED = Path(client.PROJECTED_TOKEN)


@pytest.fixture
def pod(monkeypatch, tmp_path):
    """Create the folders that a pod sees."""
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "no-context.json"))
    monkeypatch.setattr(client, "PROJECTED_TOKEN", str(tmp_path / "pipelines" / "token"))
    monkeypatch.setattr(client, "POD_NAMESPACE", str(tmp_path / "namespace"))
    (tmp_path / "namespace").write_text("ml-team")
    return tmp_path


@pytest.fixture
def server(monkeypatch, pod):
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    with KfpServer() as running:
        monkeypatch.setattr(client, "IN_CLUSTER", running.url)
        yield running


def project(pod: Path, token: str) -> None:
    """Write the token like the kubelet: a new folder, and one link that is replaced."""
    volume = pod / "pipelines"
    volume.mkdir(exist_ok=True)
    fresh = volume / f"..{len(list(volume.iterdir()))}"
    fresh.mkdir()
    (fresh / "token").write_text(token)
    (volume / "..data_tmp").symlink_to(fresh.name)
    (volume / "..data_tmp").replace(volume / "..data")
    if not (volume / "token").is_symlink():
        (volume / "token").symlink_to("..data/token")


def test_the_projected_token_is_used(server, pod):
    server.token = "of the pod"
    project(pod, "of the pod")
    assert main(SUBMIT) == 0
    assert len(server.kinds["runs"]) == 1


def test_a_rotated_token_is_read_again_while_waiting(server, pod, monkeypatch):
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


def test_an_expired_projected_token_is_reported(server, pod, capsys):
    server.token = "new"
    project(pod, "expired")
    assert main(SUBMIT) == 1
    error = capsys.readouterr().err
    assert "401" in error
    assert "how to fix:" in error
    assert not server.kinds["runs"]


def test_without_a_projected_token_the_variable_is_used(server, monkeypatch):
    server.token = "by hand"
    assert main(SUBMIT) == 1
    monkeypatch.setenv("KFP_TOKEN", "by hand")
    assert main(SUBMIT) == 0


def test_a_token_file_overrides_the_projected_token(server, pod):
    server.token = "named"
    project(pod, "of the pod")
    (pod / "named").write_text("named")
    assert main([*SUBMIT, "--token-file", str(pod / "named")]) == 0


@pytest.mark.parametrize(("words", "used"), [([], "ml-team"), (["--namespace", "other"], "other")])
def test_a_multi_user_server_gets_the_namespace_of_the_pod_or_of_the_option(words, used, server):
    server.multi_user = True
    assert main([*SUBMIT, *words]) == 0
    assert {experiment["namespace"] for experiment in server.kinds["experiments"].values()} == {used}


def test_a_multi_user_server_needs_a_namespace_if_the_pod_has_no_namespace_file(server, pod, capsys):
    server.multi_user = True
    (pod / "namespace").unlink()
    assert main(SUBMIT) == 1
    assert "--namespace" in capsys.readouterr().err


def test_the_token_path_is_that_of_the_kfp_sdk_and_of_the_guide():
    assert str(PROJECTED) == kfp_client.KF_PIPELINES_SA_TOKEN_PATH
    guide = (Path(__file__).parents[2] / "docs" / "kubeflow.md").read_text()
    assert f"`{PROJECTED}`" in guide
