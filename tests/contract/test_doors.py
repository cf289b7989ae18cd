"""Every component runs on a three-layer model through each of its doors, with the same outcome.

The function is called here; TFX's executors are found by class path in a fresh process; KFP's door is the container's
own command with a real ExecutorInput. A new component needs a line in `ARGUMENTS` only if it is slow or wants a value.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.three_layers import build_model
from tfopt.artifacts import CARD, Model, Recipe, TrainingPlan
from tfopt.component import Component, components
from tfopt.keras_models import io as keras_models

# Parameters that a component needs, or that keep it quick here.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "prepare_examples": {"splits": ["train:3", "eval:1"]},
    "train": {"epochs": 2},
    "optimize_graph": {"passes": ["portable"]},
    "prune": {"epochs": 2},
    "cluster": {"clusters": 4, "epochs": 1},
    "quantize": {"epochs": 1},
    "benchmark": {"seconds": 1.0},
    "profile_training": {"seconds": 0.4, "rounds": 8},
    "compare_backbones": {
        "backbones": ["MobileNetV2 0.35"],
        "input_size": "32x32x1",
        "formats": ["tflite"],
        "epochs": 1,
        "seconds": 0.4,
    },
    "push_model": {},
    "validate_serving": {"seconds": 0.1, "requests": 4},
    "tune_recipe": {"formats": ["tflite"], "trials": 1, "seconds": 0.4},
    # Without a GPU its promise is a refusal that says what is missing, and as a row it is alike at every door.
    "convert_tensorrt": {"on_failure": "row"},
}
# What stands for an input: the output of another component, by the name of the input.
WIRES = {
    "examples": "prepare_examples.examples",
    "model": "train.trained",
    "baseline": "train.trained",
    "candidates": [
        "fold_batch_norm.folded",
        "export_tflite.exported",
        "export_onnx.exported",
        "export_openvino.exported",
    ],
    "evaluation": "evaluate.evaluation",
    "benchmark": "benchmark.benchmark",
    "blessing": "select_model.blessing",
    "decision": "select_model.decision",
    "infra_blessing": "validate_serving.infra_blessing",
    "fallback": "train.trained",
    "trained": "train.trained",
    "recipe": "previous",
}
OWN_WIRES = {name: {"model": "select_model.selected"} for name in ("push_model", "validate_serving")}
NIGHTLY = ("tune_recipe", "profile_training", "compare_backbones")  # a search or a measurement takes minutes
EVERY = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHTLY else []) for name in components()]
)


@pytest.fixture(scope="session")
def doors(request) -> list[str]:
    """The components of this run."""
    nightly = "not nightly" not in request.config.option.markexpr
    return [name for name in components() if nightly or name not in NIGHTLY]


@pytest.fixture(scope="session")
def world(doors, tmp_path_factory) -> dict[str, Path]:
    """The path of every source, and of every output of every component called as a function."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("doors with spaces")
    images, labels = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", image=images[:400].reshape(-1, 8, 8, 1).astype(np.float32), label=labels[:400])
    known = {"data": folder / "digits.npz", "module": Path(__file__).with_name("three_layers.py")}
    known["previous"] = folder / "previous"
    Recipe(known["previous"]).write({"winner": None, "decision": {"selected_digest": ""}})
    known["plan"] = folder / "plan"
    TrainingPlan(known["plan"]).write({"settings": {"prefetch": 4}})
    known["anomalies"] = folder / "anomalies"
    known["anomalies"].mkdir()
    (known["anomalies"] / "SchemaDiff.pb").touch()  # none were found
    known["start"] = known["teacher"] = folder / "start"
    keras_models.save(build_model(), known["start"])
    todo = {name: components()[name] for name in doors}
    while todo:
        ready = [name for name in todo if _is_ready(todo[name], known)]
        assert ready, f"no inputs for {sorted(todo)}: say in WIRES where they come from"
        for name in ready:
            outputs = {output: folder / name / output for output in todo[name].outputs}
            todo.pop(name)(**_inputs(name, known), **outputs, **_arguments(name, folder / "served"))
            known |= {f"{name}.{output}": path for output, path in outputs.items()}
    return known


@EVERY
def test_the_function_writes_whole_outputs(name: str, world):
    for output, port in components()[name].outputs.items():
        refused = components()[name].resources.gpu and Model(world[f"{name}.{output}"]).failure
        if refused:
            assert re.search("nvidia-smi|tensorrt|cuda", refused) and "how to fix" in refused
        else:
            port.type.open(world[f"{name}.{output}"])
        assert not list(world[f"{name}.{output}"].parent.glob(".*partial*"))


@pytest.fixture(scope="session")
def through_tfx(doors, world, tmp_path_factory) -> Path:
    """The folder in which one fresh process ran every component's TFX executor from its serialized class path."""
    folder = tmp_path_factory.mktemp("tfx")
    jobs = {
        name: {
            "inputs": {
                key: [str(p) for p in (path if isinstance(path, list) else [path])]
                for key, path in _inputs(name, world).items()
            },
            "values": _arguments(name, folder / "served"),
        }
        for name in doors
    }
    (folder / "jobs.json").write_text(json.dumps(jobs))
    subprocess.run([sys.executable, Path(__file__).with_name("tfx_door.py"), folder], check=True, cwd=Path.cwd())
    return folder


@EVERY
def test_the_tfx_executor_does_the_same_in_a_fresh_process(name: str, world, through_tfx):
    for output in components()[name].outputs:
        _assert_alike(world[f"{name}.{output}"], through_tfx / name / output)


@EVERY
def test_the_kfp_door_does_the_same(name: str, world, tmp_path):
    component = components()[name]
    artifacts = {}
    for key, path in _inputs(name, world).items():
        listed = path if isinstance(path, list) else [path]
        for index, one in enumerate(listed, 1):
            slot = f"{key}_{index}" if isinstance(path, list) else key
            artifacts[slot] = {"artifacts": [{"name": slot, "uri": str(one), "metadata": {}}]}
    pages = {f"{key}_page": port.type.page for key, port in component.outputs.items() if port.type.page}
    outputs = {
        key: {"artifacts": [{"name": key, "uri": str(tmp_path / key), "metadata": {}}]}
        for key in [*component.outputs, *pages]
    }
    message = {
        "inputs": {"artifacts": artifacts, "parameterValues": _arguments(name, tmp_path / "served")},
        "outputs": {"artifacts": outputs, "outputFile": str(tmp_path / "executor_output.json")},
    }
    subprocess.run([sys.executable, "-m", "tfopt.run", name, "--executor-input", json.dumps(message)], check=True)
    written = json.loads((tmp_path / "executor_output.json").read_text())["artifacts"]
    assert set(written) == {*component.outputs, *pages}
    for output in written:
        assert written[output]["artifacts"][0]["uri"] == str(tmp_path / output)
    for page, file in pages.items():
        assert (tmp_path / page).read_bytes() == (tmp_path / page.removesuffix("_page") / file).read_bytes()
    for output in component.outputs:
        _assert_alike(world[f"{name}.{output}"], tmp_path / output)


def _wires(name: str, component: Component) -> dict[str, Any]:
    return {port: OWN_WIRES.get(name, {}).get(port, WIRES.get(port, port)) for port in component.inputs}


def _is_ready(component: Component, known: dict) -> bool:
    wired = _wires(component.name, component).values()
    return all(one in known for wire in wired for one in (wire if isinstance(wire, list) else [wire]))


def _inputs(name: str, known: dict) -> dict[str, Any]:
    return {
        port: [known[one] for one in wire] if isinstance(wire, list) else known[wire]
        for port, wire in _wires(name, components()[name]).items()
    }


def _arguments(name: str, destination: Path) -> dict[str, Any]:
    return ARGUMENTS.get(name, {}) | ({"destination": str(destination)} if name == "push_model" else {})


def _assert_alike(one: Path, other: Path) -> None:
    """The same files; logs of a run carry its time in their names."""

    def names(folder: Path) -> set[str]:
        files = (file for file in folder.rglob("*") if file.is_file() and "events.out" not in file.name)
        return {re.sub(r"\d{4}(_\d\d){5}", "TIME", str(file.relative_to(folder))) for file in files}

    assert names(one) == names(other)
    if (one / CARD).exists():
        cards = [json.loads((folder / CARD).read_text()) for folder in (one, other)]
        assert cards[0].keys() == cards[1].keys()
        assert cards[0]["parameters"] == cards[1]["parameters"]
