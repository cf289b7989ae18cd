"""Run every component on a three-layer model as a function, TFX executor, KFP step and DAG step in this process.

TFX's executors are loaded by class path in a new process; the KFP step is the container's command with a real
ExecutorInput. A new component needs a line in `ARGUMENTS` only if it is slow or has a required parameter. For one
component, and the components that make its inputs: ``pytest tests/contract -k NAME``.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.inputs import component_arguments, component_inputs, run_with_makers, write_sources
from tfopt.artifacts import CARD, Model
from tfopt.component import Component, components
from tfopt.dag.dag import Dag, PipelineInput, Step
from tfopt.process_engine import runner

NIGHTLY = ("tune_recipe", "profile_training", "compare_backbones")  # a search or a measurement takes minutes
EVERY = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHTLY else []) for name in components()]
)


@pytest.fixture(scope="session")
def selected(request) -> list[str]:
    """The components whose tests were selected, for example by ``-k``."""
    tests = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    return [name for name in components() if any(params.get("name") == name for params in tests)]


@pytest.fixture(scope="session")
def artifacts(selected, tmp_path_factory) -> dict[str, Path]:
    """The paths of all sources, and of the outputs of the selected components and of those that make their inputs."""
    folder = tmp_path_factory.mktemp("path with spaces")
    paths = write_sources(folder)
    for name in selected:
        run_with_makers(name, paths, folder)
    return paths


@EVERY
def test_the_function_writes_whole_outputs(name: str, artifacts):
    for output, port in components()[name].outputs.items():
        failure = components()[name].resources.gpu and Model(artifacts[f"{name}.{output}"]).failure
        if failure:
            assert re.search("nvidia-smi|tensorrt|cuda", failure) and "how to fix" in failure
        else:
            port.type.open(artifacts[f"{name}.{output}"])
        assert not list(artifacts[f"{name}.{output}"].parent.glob(".*partial*"))


@EVERY
def test_a_model_made_from_a_model_is_verified_against_it(name: str, artifacts):
    component = components()[name]
    first = next(iter(component.inputs.values()))
    for output, port in component.outputs.items():
        model = artifacts[f"{name}.{output}"]
        if issubclass(first.type, Model) and issubclass(port.type, Model) and not Model(model).failure:
            verified = json.loads((model / CARD).read_text())["verified"]
            assert verified["outputs"]
            assert all(parity["records"] > 0 for parity in verified["outputs"].values())


@pytest.fixture(scope="session")
def through_tfx(selected, artifacts, tmp_path_factory) -> Path:
    """The folder in which one new process ran the TFX executor of each component from its serialized class path."""
    folder = tmp_path_factory.mktemp("tfx")
    jobs = {
        name: {
            "inputs": {
                key: [str(p) for p in (path if isinstance(path, list) else [path])]
                for key, path in component_inputs(name, artifacts).items()
            },
            "values": component_arguments(name, folder / "served"),
        }
        for name in selected
    }
    (folder / "jobs.json").write_text(json.dumps(jobs))
    subprocess.run(
        [sys.executable, Path(__file__).with_name("run_tfx_executors.py"), folder], check=True, cwd=Path.cwd()
    )
    return folder


@EVERY
def test_the_tfx_executor_does_the_same_in_a_fresh_process(name: str, artifacts, through_tfx):
    for output in components()[name].outputs:
        _assert_alike(artifacts[f"{name}.{output}"], through_tfx / name / output)


def executor_input(name: str, artifacts: dict[str, Path], folder: Path) -> str:
    """Return KFP's message for a step that writes its outputs into a folder."""
    component = components()[name]
    inputs = {}
    for key, path in component_inputs(name, artifacts).items():
        listed = path if isinstance(path, list) else [path]
        for index, one in enumerate(listed, 1):
            slot = f"{key}_{index}" if isinstance(path, list) else key
            inputs[slot] = {"artifacts": [{"name": slot, "uri": str(one), "metadata": {}}]}
    outputs = {
        key: {"artifacts": [{"name": key, "uri": str(folder / key), "metadata": {}}]}
        for key in [*component.outputs, *_pages(component)]
    }
    message = {
        "inputs": {"artifacts": inputs, "parameterValues": component_arguments(name, folder / "served")},
        "outputs": {"artifacts": outputs, "outputFile": str(folder / "executor_output.json")},
    }
    return json.dumps(message)


def _pages(component: Component) -> dict[str, str]:
    return {f"{key}_page": port.type.page for key, port in component.outputs.items() if port.type.page}


@pytest.fixture(scope="session")
def through_kfp(selected, artifacts, tmp_path_factory) -> Path:
    """The folder in which KFP steps wrote: the first one as the container's command, the others in one process."""
    folder = tmp_path_factory.mktemp("kfp")
    command, *others = [(name, executor_input(name, artifacts, folder / name)) for name in selected]
    subprocess.run([sys.executable, "-m", "tfopt.run", command[0], "--executor-input", command[1]], check=True)
    (folder / "steps.json").write_text(json.dumps(others))
    run_all = "import json, sys; from tfopt.run import main; steps = json.load(open(sys.argv[1]))\n"
    run_all += "for name, message in steps: assert main([name, '--executor-input', message]) == 0, name"
    subprocess.run([sys.executable, "-c", run_all, folder / "steps.json"], check=True)
    return folder


@EVERY
def test_the_kfp_step_does_the_same(name: str, artifacts, through_kfp):
    component, folder = components()[name], through_kfp / name
    pages = _pages(component)
    written = json.loads((folder / "executor_output.json").read_text())["artifacts"]
    assert set(written) == {*component.outputs, *pages}
    for output in written:
        assert written[output]["artifacts"][0]["uri"] == str(folder / output)
    for page, file in pages.items():
        assert (folder / page).read_bytes() == (folder / page.removesuffix("_page") / file).read_bytes()
    for output in component.outputs:
        _assert_alike(artifacts[f"{name}.{output}"], folder / output)


@EVERY
def test_the_engine_of_this_process_does_the_same_and_then_reuses_it(name: str, artifacts, tmp_path):
    component = components()[name]
    wires, sources, values = {}, {}, {}
    for key, path in component_inputs(name, artifacts).items():
        listed = {f"{key}_{index}": one for index, one in enumerate(path if isinstance(path, list) else [path], 1)}
        values |= listed
        inputs = {slot: PipelineInput(slot, component.inputs[key].type, False, "") for slot in listed}
        sources |= inputs
        wires[key] = tuple(inputs.values()) if isinstance(path, list) else inputs[f"{key}_1"]
    step = Step(name, component, wires, component_arguments(name, tmp_path / "served"))
    for is_reused in (False, component.cache != "never"):
        outcome = runner.run(Dag(name, "", sources, {}, {name: step}), values, tmp_path / "root")[name]
        is_failed = any(isinstance(output, Model) and output.failure for output in outcome.outputs.values())
        assert outcome.reused == (is_reused and not is_failed)  # a model that could not be made is tried again
        for output in component.outputs:
            _assert_alike(artifacts[f"{name}.{output}"], outcome.outputs[output].path)


def _assert_alike(one: Path, other: Path) -> None:
    """Assert that two artifacts have the same files; the names of TensorBoard logs contain the time."""

    def names(folder: Path) -> set[str]:
        files = (file for file in folder.rglob("*") if file.is_file() and "events.out" not in file.name)
        return {re.sub(r"\d{4}(_\d\d){5}", "TIME", str(file.relative_to(folder))) for file in files}

    assert names(one) == names(other)
    if (one / CARD).exists():
        cards = [json.loads((folder / CARD).read_text()) for folder in (one, other)]
        assert cards[0].keys() == cards[1].keys()
        assert cards[0]["parameters"] == cards[1]["parameters"]
