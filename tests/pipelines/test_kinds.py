"""Test the DAG of docs/operate.md that selects a model for each of two kinds of machines."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.ssh_server import PROGRAM, SshServer
from tfopt.cli.main import main
from tfopt.dag.tracing import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text()
MEASURING = ("benchmark", "select_model", "validate_serving", "push_model")


@pytest.fixture
def kinds(tmp_path, monkeypatch) -> Path:
    """Write the DAG of the page into the working folder."""
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?def kinds.*?)```", PAGE, re.S)
    Path("kinds.py").write_text(code)
    return Path("kinds.py")


def test_the_dag_evaluates_once_and_selects_and_pushes_for_each_kind(kinds):
    dag = load(str(kinds))
    assert [id for id in dag.steps if id.startswith("evaluate")] == ["evaluate"]
    values = dag.values({"model": "gs://b/m", "examples": "gs://b/e", "destination": "pushed/server"})
    for kind, device in (("server", ""), ("board", "ssh://pi@board.local")):
        benchmark, select, validate, push = (dag.steps[f"{name}_{kind}"] for name in MEASURING)
        assert benchmark.resolve(values)["device"] == device
        for step in (select, validate, push):
            assert step.resolve(values)["destination"] == f"pushed/{kind}"
        assert select.inputs["benchmark"].step == benchmark.id
        assert select.inputs["evaluation"].step == "evaluate"
        assert push.inputs["infra_blessing"].step == validate.id
        assert push.inputs["blessing"].step == select.id
    assert set(dag.outputs) == {
        f"{name}_{kind}" for name in ("selected", "decision", "blessing") for kind in ("server", "board")
    }


def test_the_command_of_the_page_places_the_steps_of_a_kind_on_its_nodes(kinds):
    (command,) = re.findall(r"^tfopt (compile kinds\.py .*)$", PAGE, re.M)
    assert main(command.split()) == 0
    spec, platform = yaml.safe_load_all(Path("kinds.yaml").read_text())
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    selectors = {}
    for task in spec["root"]["dag"]["tasks"].values():
        pod = pods.get(spec["components"][task["componentRef"]["name"]]["executorLabel"], {})
        selectors[task["taskInfo"]["name"]] = pod.get("nodeSelector", {}).get("labels")
    arm = {"kubernetes.io/arch": "arm64"}
    placed = {name: labels for name, labels in selectors.items() if labels}
    assert placed == {"benchmark_board": arm, "validate_serving_board": arm}
    assert "benchmark_server" in selectors


@pytest.mark.nightly
@pytest.mark.skipif(not PROGRAM, reason="openssh-server is not installed")
def test_a_run_pushes_a_model_that_was_measured_here_and_one_that_was_measured_on_a_device(
    kinds, digits_model, digits_examples, tmp_path, tmp_path_factory, monkeypatch
):
    with SshServer(tmp_path_factory.mktemp("ssh")) as server:
        monkeypatch.setenv("PATH", str(server.commands), prepend=":")
        kinds.write_text(kinds.read_text().replace("ssh://pi@board.local", server.address))
        words = ["run", str(kinds), "--set", f"model={digits_model}", "--set", f"examples={digits_examples}"]
        words += ["--set", "destination=pushed/server", "--set", "seconds=0.5", "--root", "run"]
        assert main(words) == 0
    machines = {}
    for kind in ("server", "board"):
        (file,) = Path("run").rglob(f"benchmark_{kind}/**/benchmark.json")
        machines[kind] = json.loads(file.read_text())["environment"]
        assert list(Path("pushed", kind).glob("[0-9]*"))
        assert json.loads(next(Path("pushed", kind, "history").glob("*.json")).read_text())
    assert machines["board"]["device"] == server.address and "device" not in machines["server"]
    assert machines["board"]["cpu"]["usable_cores"] == 1
