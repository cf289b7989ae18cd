"""Test every command of docs/kubeflow.md, except in blocks that begin with "# needs a cluster"."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tfopt
from tests.kfp_server.server import KfpServer
from tfopt.artifacts import Blessing, Model
from tfopt.cli.main import main
from tfopt.components.push_model.component import push_model
from tfopt.kfp import submit
from tfopt.kfp.pod_options import KEYS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "kubeflow.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", GUIDE, re.S)
COMMANDS = [
    command
    for block in BLOCKS
    if not block.startswith("# needs a cluster")
    for command in block.replace("\\\n", " ").strip().splitlines()
]


@pytest.fixture(scope="module")
def server():
    with KfpServer() as running:
        yield running


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("guide")
    for name in ("deploy", "docs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_the_guide_has_commands_of_both_kinds():
    assert len(COMMANDS) >= 10
    assert sum(block.startswith("# needs a cluster") for block in BLOCKS) >= 3
    assert {shlex.split(command)[0] for command in COMMANDS} == {"tfopt", "kubectl", "kfp"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.split()[:4])[:50])
def test_a_command_of_the_guide_runs(command: str, server: KfpServer, workspace: Path, monkeypatch, capfd):
    """Run the commands in the order of the guide, because later ones use the results of earlier ones."""
    words = shlex.split(command.replace("http://localhost:8888", server.url))
    monkeypatch.chdir(workspace)
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    monkeypatch.setenv("KFP_ENDPOINT", server.url)
    monkeypatch.setenv("HOME", str(workspace))  # kfp reads its settings there
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(workspace / "no-context.json"))
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    if words[0] == "tfopt":
        assert main(words[1:]) == 0
    else:
        subprocess.run([str(Path(sys.executable).parent / words[0]), *words[1:]], check=True)
    assert capfd.readouterr().out


def test_the_server_has_the_run_that_the_guide_describes(server: KfpServer):
    assert not server.kinds["recurringruns"]
    submitted, created = server.kinds["runs"].values()
    assert submitted["service_account"] == "tfopt-runner"
    assert created["display_name"] == "digits-1"
    assert created["runtime_config"]["parameters"]["goals"] == ["accuracy threshold 0.95"]
    executors = created["pipeline_spec"]["pipeline_spec"]["deploymentSpec"]["executors"]
    images = {executor["container"]["image"] for executor in executors.values() if "container" in executor}
    assert images == {f"registry.example/tfopt-{kind}:{tfopt.__version__}" for kind in ("tf", "beam")}
    assert len(server.kinds["versions"]) == 3  # submitted, scheduled with a GPU, and uploaded by kfp
    assert any("nodeSelector" in text for text in server.uploads.values())


def test_the_guide_shows_the_example_file():
    example = (ROOT / "docs" / "mnist" / "kubeflow.yaml").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.S)
    assert [line for line in example.splitlines(keepends=True) if not line.startswith("#")] == shown.splitlines(True)


def test_every_option_is_in_the_table_of_the_guide():
    table = GUIDE[GUIDE.index("| key | what |") :]
    for key in KEYS:
        assert f"`{key}`" in table or f"`SOURCE:{key}`" in table, key


def test_the_alert_searches_for_the_log_message_of_push_model(tmp_path: Path, caplog):
    (tmp_path / "model.tflite").write_bytes(b"any")
    digest = Model(tmp_path / "model.tflite").digest
    Blessing(tmp_path / "blessing").write({"blessed": False, "reason": "too slow", "model_digest": digest})
    with caplog.at_level("INFO", "tfopt"):
        push_model(
            model=tmp_path / "model.tflite",
            blessing=tmp_path / "blessing",
            pushed=tmp_path / "pushed",
            destination=str(tmp_path / "served"),
        )
    assert "not pushed: not blessed: too slow" in caplog.messages
    assert '|= "not pushed:"' in GUIDE


def test_every_file_the_guide_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert target.startswith("http") or (ROOT / "docs" / target).exists(), target
