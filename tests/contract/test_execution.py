"""Run every component on a three-layer model as a DAG step in this process, TFX executor and KFP step.

TFX's executors are loaded by their paths; tests/cli/test_interruption.py runs one of each class in a new process. The
KFP step is the container's command with a real ExecutorInput, once in a new process. The function also runs on a Keras
2 model, and on models with zeros or shared weights. A new component needs a line in `ARGUMENTS` of ``inputs.py`` only
if it is slow or has a required parameter. For one component, and the components that make its inputs:
``pytest tests/contract -k NAME``.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.contract.inputs import (
    COMPONENTS,
    build_dag,
    component_arguments,
    component_inputs,
    makes_keras,
    output_paths,
    run_dag,
    takes_keras,
    write_keras_2,
    write_sources,
)
from tfopt import keras_models
from tfopt.artifacts import CARD, KerasModel, Model
from tfopt.component import Component
from tfopt.dag.outcome import Outcome
from tfopt.run import main

NIGHTLY = ("tune_recipe", "profile_training", "compare_backbones")  # a search or a measurement takes minutes
# TFX and KFP run all components by the same code: each day, those with other kinds of inputs and outputs run on one of
# them. Those that make a model from a model and examples run on both at night, except for one each.
THROUGH_TFX = ("train", "validate_serving", "export_tflite", "check_drift", "measure_sensitivities")
THROUGH_KFP = ("cluster", "benchmark", "evaluate", "export_stablehlo", "replay")
AT_NIGHT = (
    *("prune", "quantize", "export_openvino", "export_onnx", "fold_batch_norm", "equalize_ranges"),
    *("quantize_graph", "optimize_graph", "compile_xla", "cast_precision"),
)
# These read the SavedModel of a Keras 2 model, which has the operations of one of Keras 3.
READ_GRAPHS = (
    *("export_stablehlo", "export_onnx", "export_openvino", "compile_xla", "quantize_graph", "optimize_graph"),
    *("cast_precision", "measure_sensitivities", "validate_serving", "replay", "check_drift"),
)


def each(names: Iterable[str], nightly: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run a test for each component; those that take minutes, and further ones, at night."""
    marks = {name: [pytest.mark.nightly] if name in (*NIGHTLY, *nightly) else [] for name in names}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks[name]) for name in names])


EVERY = each(COMPONENTS)


def selected_components(request: pytest.FixtureRequest, fixture: str) -> list[str]:
    """Return the components of the selected tests, for example by ``-k``, that use a fixture."""
    here = [item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec")]
    names = {item.callspec.params.get("name") for item in here if fixture in item.fixturenames}
    return [name for name in COMPONENTS if name in names]


@pytest.fixture(scope="session")
def first_run(request, tmp_path_factory) -> SimpleNamespace:
    """One DAG of the selected components and of those that make their inputs, which ran in this process."""
    folder = tmp_path_factory.mktemp("path with spaces")
    sources = write_sources(folder)
    dag = build_dag(selected_components(request, "first_run"), sources, folder / "served")
    outcomes = run_dag(dag, sources, folder / "root")
    return SimpleNamespace(dag=dag, sources=sources, outcomes=outcomes, root=folder / "root")


@pytest.fixture(scope="session")
def artifacts(first_run) -> dict[str, Path]:
    """The paths of all sources and outputs."""
    return first_run.sources | output_paths(first_run.outcomes)


@EVERY
def test_the_step_writes_whole_outputs(name: str, artifacts):
    for output in COMPONENTS[name].outputs:
        check_output(name, output, artifacts[f"{name}.{output}"])


def check_output(name: str, output: str, path: Path) -> None:
    failure = COMPONENTS[name].resources.gpu and Model(path).failure
    if failure:
        assert re.search("nvidia-smi|tensorrt|cuda", failure) and "how to fix" in failure
    else:
        COMPONENTS[name].outputs[output].type.open(path)
    assert not list(path.parent.glob(".*partial*"))


@EVERY
def test_a_model_made_from_a_model_is_verified_against_it(name: str, artifacts):
    component = COMPONENTS[name]
    first = next(iter(component.inputs.values()))
    for output, port in component.outputs.items():
        model = artifacts[f"{name}.{output}"]
        if issubclass(first.type, Model) and issubclass(port.type, Model) and not Model(model).failure:
            verified = json.loads((model / CARD).read_text())["verified"]
            assert verified["outputs"]
            assert all(parity["records"] > 0 for parity in verified["outputs"].values())


def run_component(name: str, artifacts: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Run a component as a function, and return the paths of its outputs."""
    outputs = {output: folder / output for output in COMPONENTS[name].outputs}
    arguments = component_inputs(name, artifacts) | component_arguments(name, folder / "served")
    COMPONENTS[name](**arguments, **outputs)
    return outputs


@pytest.fixture(scope="session")
def keras_2(artifacts, tmp_path_factory) -> dict[str, Path]:
    """The artifacts, with a Keras 2 model and the module that builds it."""
    return artifacts | write_keras_2(tmp_path_factory.mktemp("keras 2"))


# test_quantize_models.py trains Keras 2 models with rounding each day.
@each([name for name in COMPONENTS if takes_keras(name)], nightly=("quantize", *READ_GRAPHS))
def test_a_keras_2_model_is_taken_where_a_keras_model_is(name: str, keras_2, tmp_path):
    for output, path in run_component(name, keras_2, tmp_path).items():
        check_output(name, output, path)


def effects(model: Path) -> set[str]:
    """Return the effects that the kernels of a model have."""
    weights = [np.array(weight) for weight in keras_models.load(KerasModel(model)).weights]
    kernels = [kernel for kernel in weights if kernel.ndim > 1]
    shown = {"zeros": min(np.mean(kernel == 0) for kernel in kernels) > 0.4}
    shown["shared weights"] = max(len(np.unique(kernel)) for kernel in kernels) <= 4
    return {name for name, is_shown in shown.items() if is_shown}


@pytest.fixture(scope="session")
def with_effects(artifacts, tmp_path_factory) -> dict[str, Path]:
    """A trained model with zeros, and one with shared weights, which their model cards do not state."""
    folder, changes = tmp_path_factory.mktemp("effects"), {}
    changes["zeros"] = lambda kernel: np.where(np.abs(kernel) < np.median(np.abs(kernel)), 0, kernel)
    changes["shared weights"] = lambda kernel: 0.1 * np.sign(kernel)
    for effect, change in changes.items():
        model = keras_models.load(KerasModel(artifacts["train.trained"]))
        for weight in model.weights:
            if len(weight.shape) > 1:
                weight.assign(change(np.array(weight)))
        keras_models.save(model, folder / effect)
    return {effect: folder / effect for effect in changes}


# Training with rounding takes seconds, and test_quantize.py has zeros and shared weights in it.
@each([name for name in COMPONENTS if takes_keras(name) and makes_keras(name)], nightly=("quantize",))
def test_a_component_declares_its_effect_and_what_it_must_not_follow(name: str, artifacts, with_effects, tmp_path):
    component = COMPONENTS[name]
    (output,) = component.outputs
    declared = {component.effect_with(component_arguments(name, tmp_path))} & with_effects.keys()
    assert effects(artifacts[f"{name}.{output}"]) == declared, f"effect=… of {name}"
    for effect in with_effects.keys() - component.not_after.keys():
        assert effects(with_effects[effect]) == {effect}
        made = run_component(name, artifacts | {"train.trained": with_effects[effect]}, tmp_path / effect)
        assert effect in effects(made[output]), f"{name} undoes {effect}: declare not_after"


@pytest.fixture(scope="session")
def through_tfx(request, artifacts, tmp_path_factory) -> Path:
    """The folder in which TFX executors wrote."""
    from tests.contract import run_tfx_executors

    folder = tmp_path_factory.mktemp("tfx")
    jobs = {
        name: {
            "inputs": {
                key: [str(p) for p in (path if isinstance(path, list) else [path])]
                for key, path in component_inputs(name, artifacts).items()
            },
            "values": component_arguments(name, folder / "served"),
        }
        for name in selected_components(request, "through_tfx")
    }
    for name, job in json.loads(json.dumps(jobs)).items():
        run_tfx_executors.run(name, job, folder)
    return folder


@each(COMPONENTS, nightly=(*THROUGH_KFP, *AT_NIGHT))
def test_the_tfx_executor_does_the_same(name: str, artifacts, through_tfx):
    for output in COMPONENTS[name].outputs:
        _assert_alike(artifacts[f"{name}.{output}"], through_tfx / name / output)


def executor_input(name: str, artifacts: dict[str, Path], folder: Path) -> str:
    """Return KFP's message for a step that writes its outputs into a folder."""
    component = COMPONENTS[name]
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
def through_kfp(request, artifacts, tmp_path_factory) -> Path:
    """The folder in which KFP steps wrote: a quick one in a new process, the others in this process."""
    folder, selected = tmp_path_factory.mktemp("kfp"), selected_components(request, "through_kfp")
    in_new_process = "select_model" if "select_model" in selected else selected[0]
    for name in selected:
        words = [name, "--executor-input", executor_input(name, artifacts, folder / name)]
        if name == in_new_process:
            subprocess.run([sys.executable, "-m", "tfopt.run", *words], check=True)
        else:
            assert main(words) == 0, name
    return folder


@each(COMPONENTS, nightly=(*THROUGH_TFX, *AT_NIGHT))
def test_the_kfp_step_does_the_same(name: str, artifacts, through_kfp):
    component, folder = COMPONENTS[name], through_kfp / name
    pages = _pages(component)
    written = json.loads((folder / "executor_output.json").read_text())["artifacts"]
    assert set(written) == {*component.outputs, *pages}
    for output in written:
        assert written[output]["artifacts"][0]["uri"] == str(folder / output)
    for page, file in pages.items():
        assert (folder / page).read_bytes() == (folder / page.removesuffix("_page") / file).read_bytes()
    for output in component.outputs:
        _assert_alike(artifacts[f"{name}.{output}"], folder / output)


@pytest.fixture(scope="session")
def second_run(first_run) -> dict[str, Outcome]:
    return run_dag(first_run.dag, first_run.sources, first_run.root)


@EVERY
def test_the_engine_of_this_process_reuses_the_outputs(name: str, artifacts, first_run, second_run):
    outputs = second_run[name].outputs
    is_failed = any(isinstance(output, Model) and output.failure for output in outputs.values())
    assert not first_run.outcomes[name].reused
    # A model that could not be made is tried again.
    assert second_run[name].reused == (COMPONENTS[name].cache != "never" and not is_failed)
    for output in outputs:
        _assert_alike(artifacts[f"{name}.{output}"], outputs[output].path)


@pytest.mark.parametrize("name", ["push_model"])
def test_the_targets_of_registrations_reach_the_step_on_every_engine(name, first_run, through_tfx, through_kfp):
    folders = [first_run.root.parent, through_tfx, through_kfp / name]
    assert [(folder / "served.yaml").is_file() for folder in folders] == [True] * 3


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
