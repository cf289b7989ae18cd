"""Test that the generated files are up to date: component pages, the picture of a DAG, compiled Kubeflow YAML."""

import json
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
import yaml
from kfp.components import load_component_from_file

from tfopt.component import components, find
from tfopt.dag.dag import Placeholder, StepOutput
from tfopt.dag.tracing import load, pipelines

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, ROOT / "docs" / "generate.py", folder], check=True)
    return folder


def test_every_generated_file_is_up_to_date(generated: Path):
    files = [file.relative_to(generated) for file in generated.rglob("*") if file.is_file()]
    assert len(files) > 10
    stale = [
        str(file) for file in files if not (ROOT / file).is_file() or _plain(ROOT / file) != _plain(generated / file)
    ]
    assert not stale, "run `make docs`"


def same_artifacts(spec: dict, task: dict) -> dict[str, str]:
    """Return the inputs that are the artifact of another input, as the command of the step has them."""
    executor = spec["components"][task["componentRef"]["name"]]["executorLabel"]
    words = spec["deploymentSpec"]["executors"][executor]["container"]["args"]
    return dict(word.split("=") for option, word in pairwise(words) if option == "--same-artifact")


@pytest.mark.parametrize("name", pipelines())
def test_the_compiled_dag_equals_the_traced_dag(name: str):
    dag = load(name).with_sources({})
    compiled = yaml.safe_load_all((ROOT / "deploy" / "kfp" / "pipelines" / f"{name}.yaml").read_text())
    spec = next(compiled)
    tasks = spec["root"]["dag"]["tasks"]
    task_of_step = {task["taskInfo"]["name"]: task for task in tasks.values()}
    expected_names = {*dag.steps, *(source.name for source in dag.sources.values() if not source.optional)}
    assert set(task_of_step) == expected_names
    for step in dag.steps.values():
        task = task_of_step[step.id]
        wired = {
            key: tasks[wire["taskOutputArtifact"]["producerTask"]]["taskInfo"]["name"]
            for key, wire in task["inputs"]["artifacts"].items()
        }
        wired |= {name: wired[other] for name, other in same_artifacts(spec, task).items()}
        expected = {}
        for key, wire in step.inputs.items():
            for index, one in enumerate(wire if isinstance(wire, tuple) else [wire], 1):
                slot = f"{key}_{index}" if isinstance(wire, tuple) else key
                expected[slot] = one.step if isinstance(one, StepOutput) else one.name
        assert wired == {slot: name for slot, name in expected.items() if name in expected_names}
        step_values = {key: value for key, value in step.parameters.items() if value is not None}
        values = task["inputs"].get("parameters", {})
        assert set(values) == set(step_values)
        for key, value in step_values.items():
            if isinstance(value, Placeholder):
                assert values[key] == {"componentInputParameter": value.parameter.name}
            else:
                assert values[key]["runtimeValue"]["constant"] == value


@pytest.mark.nightly  # daily: tests/contract/test_declarations.py
def test_compiling_needs_neither_tensorflow_nor_tfx(tmp_path: Path):
    code = """
import sys
from tfopt.cli.main import main
folder, *names = sys.argv[1:]
for name in names:
    assert main(['compile', name, '-o', f'{folder}/{name}.yaml', '--image', 'me/tfopt-{kind}:2']) == 0
    assert not {'tensorflow', 'tfx', 'apache_beam'} & set(sys.modules), name
"""
    subprocess.run([sys.executable, "-c", code, tmp_path, *pipelines()], check=True)
    for name in pipelines():
        compiled = yaml.safe_load_all((tmp_path / f"{name}.yaml").read_text())
        executors = next(compiled)["deploymentSpec"]["executors"].values()
        images = {executor["container"]["image"] for executor in executors if "container" in executor}
        kinds = ["tf", "gpu" if name == "optimize_gpu" else "beam"]
        assert images == {f"me/tfopt-{kind}:2" for kind in kinds}


def _plain(file: Path) -> str:
    """Return the text without the version of the KFP SDK."""
    return re.sub(r"sdkVersion: .*", "", file.read_text())


@pytest.mark.parametrize("name", components())
def test_a_component_folder_is_valid_for_the_kubeflow_component_catalogue(name: str):
    """Check metadata.yaml with the catalogue's schema, and the paths of the compiled component and its page."""
    folder = ROOT / "deploy" / "kfp" / "components" / name
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    schema = json.loads((ROOT / "tests" / "pipelines_components" / "metadata_schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(metadata | {"lastVerified": metadata["lastVerified"].isoformat()})
    assert metadata["name"] == folder.name
    assert re.fullmatch("[a-z0-9]+(_[a-z0-9]+)*", metadata["name"])
    loaded = load_component_from_file(str(folder / "component.yaml")).component_spec
    declared = find(name)
    assert set(loaded.inputs) >= declared.parameters.keys()
    assert set(loaded.outputs) >= declared.outputs.keys()
    assert (ROOT / "components" / name / "README.md").is_file()


def test_every_claim_names_an_existing_file_and_a_machine():
    content = tomllib.loads((ROOT / "docs" / "verified.toml").read_text())
    assert len(content["check"]) > 40
    for check in content["check"]:
        assert check["machine"] in content["machines"]
        paths = [word for word in check["command"].split() if word.startswith(("tests/", "benchmarks/", "docs/"))]
        assert all((ROOT / path).exists() for path in paths), check["command"]
    sections = re.findall(r"^## (.*)$", (ROOT / "docs" / "benchmarks.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9_ -]", "", section.lower()).replace(" ", "-") for section in sections}
    links = {link for check in content["check"] for link in re.findall(r"\(benchmarks.md#(.*?)\)", check["result"])}
    assert links and links <= anchors
