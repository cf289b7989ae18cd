"""Inputs of every component: small sources, and the outputs of the other components."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.contract.three_layers import build_model
from tests.reports import recipe_report
from tfopt import keras_models
from tfopt.artifacts import KerasModel, Model, Recipe, TrainingPlan
from tfopt.component import Component, components
from tfopt.dag.dag import Dag, PipelineInput, Step, Value
from tfopt.dag.outcome import Outcome
from tfopt.process_engine import runner
from tfopt.training.user_module import UserModule

COMPONENTS = components()  # each call lists the folder of the components
# Required parameters, and values that make a component fast here.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "prepare_examples": {"splits": ["train:3", "eval:1"]},
    "train": {"epochs": 1},
    "optimize_graph": {"passes": ["portable"]},
    "compile_xla": {"batch_sizes": ["1"]},
    "configure_runtime": {"onednn": "on"},  # as in the tests, whose processes are used
    **{
        key: {"precision": "auto", "max_degradation": 0.5}
        for key in ("export_tflite", "export_onnx", "export_openvino")
    },
    "prune": {"epochs": 1},
    "cluster": {"clusters": 4, "epochs": 1},
    "quantize": {"epochs": 1},
    "benchmark": {"seconds": 0.2, "rounds": 8, "batch_sizes": ["2"]},
    "profile_training": {"seconds": 0.4, "rounds": 8},
    "compare_backbones": {
        "backbones": ["MobileNetV2 0.35"],
        "input_size": "32x32x1",
        "formats": ["tflite"],
        "epochs": 1,
        "seconds": 0.4,
    },
    # Blessed without evidence: the network is trained for one epoch, and there are 20 records to measure on.
    "select_model": {"confidence": "estimate", "better_than_constant": False},
    "validate_serving": {"seconds": 0.1, "requests": 4},
    "replay": {"goals": ["disagreement max 50%", "p99 max 60000"], "seconds": 0.2},
    "check_drift": {"min_records": 20},
    "tune_recipe": {"formats": ["tflite"], "trials": 1, "seconds": 0.4},
    # Without a GPU it writes a failed model that names what is missing, the same on every engine.
    "convert_tensorrt": {"on_failure": "row", "precision": "auto", "max_degradation": 0.5},
}
# The output of another component that is wired to an input, by the name of the input.
WIRES = {
    "examples": "prepare_examples.examples",
    "model": "train.trained",
    "baseline": "train.trained",
    "candidates": ["fold_batch_norm.folded", "export_tflite.exported"],
    "evaluation": "evaluate.evaluation",
    "benchmark": "benchmark.benchmark",
    "blessing": "select_model.blessing",
    "decision": "select_model.decision",
    "infra_blessing": "validate_serving.infra_blessing",
    "fallback": "train.trained",
    "served": "train.trained",
    "reference": "prepare_examples.examples",
    "parent": "train.trained",
    "tested": "validate_serving.infra_blessing",
    "trained": "train.trained",
    "recipe": "previous",
    "sensitivities": "measure_sensitivities.sensitivities",
}
# The same for inputs of one component. Exports are compared because their runtimes load in a tenth of the time.
OWN_WIRES: dict[str, dict[str, Any]] = {
    **{
        name: {"model": "select_model.selected"} for name in ("check_drift", "push_model", "replay", "validate_serving")
    },
    **{
        name: {"baseline": "export_tflite.exported", "candidates": ["export_onnx.exported"]}
        for name in ("evaluate", "benchmark", "select_model")
    },
}


KERAS = {"train.trained", "start", "teacher"}  # of the values of WIRES, the Keras models


def write_sources(folder: Path) -> dict[str, Path]:
    """Write what no component makes into a folder, and return the paths."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", image=images[:80].reshape(-1, 8, 8, 1).astype(np.float32), label=labels[:80])
    paths = {"data": folder / "digits.npz", "module": Path(__file__).with_name("three_layers.py")}
    lines = [
        json.dumps({"time": 0.002 * n, "instances": [row.tolist()]})
        for n, row in enumerate(images[:80].reshape(-1, 8, 8, 1))
    ]
    paths["recording"] = folder / "requests.jsonl"
    paths["recording"].write_text("\n".join(lines))
    paths["previous"] = folder / "previous"
    Recipe(paths["previous"]).write(recipe_report())
    paths["plan"] = folder / "plan"
    TrainingPlan(paths["plan"]).write({"settings": {"prefetch": 4}})
    paths["anomalies"] = folder / "anomalies"
    paths["anomalies"].mkdir()
    (paths["anomalies"] / "SchemaDiff.pb").touch()  # no anomalies
    paths["start"] = paths["teacher"] = folder / "start"
    keras_models.save(build_model(), paths["start"])
    return paths


def write_keras_2(folder: Path) -> dict[str, Path]:
    """Write a Keras 2 model, and the module that builds it, and return the paths by what they replace."""
    module = folder / "three_layers.py"
    source = Path(__file__).with_name(module.name).read_text()
    module.write_text(source.replace("import keras", "import tf_keras as keras"))
    keras_models.save(UserModule(module).call("build_model"), folder / "model")
    return dict.fromkeys(KERAS, folder / "model") | {"module": module}


def takes_keras(name: str) -> bool:
    """Return True if a Keras model is wired to a component."""
    wires, inputs = component_wires(name, COMPONENTS[name]), COMPONENTS[name].inputs
    return any(
        not port.many and wires[port.name] in KERAS and issubclass(KerasModel, port.type) for port in inputs.values()
    )


def makes_keras(name: str) -> bool:
    """Return True if a component makes a Keras model from the Keras model that is its first input."""
    first, output = (next(iter(ports.values())) for ports in (COMPONENTS[name].inputs, COMPONENTS[name].outputs))
    return issubclass(first.type, Model) and issubclass(output.kind(KerasModel), KerasModel)


def build_dag(names: Sequence[str], paths: Mapping[str, Path], destination: Path) -> Dag:
    """Build a DAG of components and of those that make their inputs; the sources are among the paths."""
    dag = Dag("contract", "", {}, {})

    def add(name: str) -> Step:
        if name not in dag.steps:
            component, wires = COMPONENTS[name], {}
            for port, wire in component_wires(name, component).items():
                values = [value(component, port, path) for path in (wire if isinstance(wire, list) else [wire])]
                wires[port] = tuple(values) if isinstance(wire, list) else values[0]
            dag.steps[name] = Step(name, component, wires, component_arguments(name, destination))
        return dag.steps[name]

    def value(component: Component, port: str, path: str) -> Value:
        maker, dot, output = path.partition(".")
        if dot:
            return add(maker).outputs[output]
        assert path in paths, f"{component.name}: no input {path}: add it to WIRES"
        return dag.sources.setdefault(path, PipelineInput(path, component.inputs[port].type, False, ""))

    for name in names:
        add(name)
    return dag


def run_dag(dag: Dag, paths: Mapping[str, Path], root: Path) -> dict[str, Outcome]:
    """Run the DAG in this process."""
    return runner.run(dag, {name: paths[name] for name in dag.sources}, root)


def output_paths(outcomes: Mapping[str, Outcome]) -> dict[str, Path]:
    """Return the path of each output by ``step.output``."""
    return {
        f"{step}.{name}": output.path for step, outcome in outcomes.items() for name, output in outcome.outputs.items()
    }


def component_wires(name: str, component: Component) -> dict[str, Any]:
    return {port: OWN_WIRES.get(name, {}).get(port, WIRES.get(port, port)) for port in component.inputs}


def component_inputs(name: str, paths: dict) -> dict[str, Any]:
    return {
        port: [paths[one] for one in wire] if isinstance(wire, list) else paths[wire]
        for port, wire in component_wires(name, COMPONENTS[name]).items()
    }


def component_arguments(name: str, destination: Path) -> dict[str, Any]:
    arguments = dict(ARGUMENTS.get(name, {}))
    if name == "push_model":
        target = f"kserve={destination.with_suffix('.yaml')}"
        arguments |= {"destination": str(destination), "register": [target], "destination_uri": "pvc://models/digits"}
    return arguments
