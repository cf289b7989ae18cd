"""Test a pipeline of TFX's own components and ours, compiled by KubeflowV2DagRunner, container by container.

The test does the work of a managed pipeline service: it creates the ExecutorInput of a task from the compiled
specification and from the outputs of earlier tasks.
"""

import json
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_iris

import tfopt
from tests.containers.conftest import run
from tfopt.artifacts import PythonModule, TFLiteModel

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]
FEATURES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
MODULE = f"""
import keras


def build_model():
    inputs = {{name: keras.Input((1,), name=name) for name in {FEATURES}}}
    flow = keras.layers.Dense(16, use_bias=False)(keras.layers.Concatenate()(list(inputs.values())))
    flow = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.8)(flow))
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax", name="digit")(flow))
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy")
    return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    folder.chmod(0o777)
    iris = load_iris()
    rows = [",".join([*FEATURES, "species"])]
    rows += [",".join(map(str, [*row, label])) for row, label in zip(iris.data, iris.target, strict=True)]
    (folder / "csv").mkdir()
    (folder / "csv" / "iris.csv").write_text("\n".join(rows) + "\n")
    (folder / "module.py").write_text(MODULE)
    return folder


@pytest.fixture(scope="module")
def spec(folder) -> dict[str, Any]:
    """Compile CsvExampleGen, three of our components, and Pusher."""
    from tfx.components import CsvExampleGen, Pusher
    from tfx.dsl.components.common.importer import Importer
    from tfx.orchestration import pipeline
    from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner, KubeflowV2DagRunnerConfig
    from tfx.proto.pusher_pb2 import PushDestination

    from tfopt.tfx import TYPES, steps

    generated = CsvExampleGen(str(folder / "csv"))
    examples = generated.outputs["examples"]
    module = Importer(source_uri=str(folder / "module.py"), artifact_type=TYPES[PythonModule]).with_id("module")
    trained = steps.train(examples=examples, module=module.outputs["result"], label="species", epochs=5)
    folded = steps.fold_batch_norm(model=trained.outputs["trained"], examples=examples)
    exported = steps.export_tflite(model=folded.outputs["folded"], examples=examples)
    destination = PushDestination.Filesystem(base_directory=str(folder / "pushed"))
    pusher = Pusher(model=exported.outputs["exported"], push_destination=PushDestination(filesystem=destination))
    config = KubeflowV2DagRunnerConfig(default_image=f"tfopt-tfx:{tfopt.__version__}")
    KubeflowV2DagRunner(config, output_dir=str(folder), output_filename="pipeline.json").run(
        pipeline.Pipeline(
            "mixed", str(folder / "root"), components=[generated, module, trained, folded, exported, pusher]
        )
    )
    return json.loads((folder / "pipeline.json").read_text())["pipelineSpec"]


def test_a_compiled_mixed_pipeline_runs_in_the_image_to_a_pushed_model(image, folder, spec):
    tag = image("tfx")
    tasks = spec["root"]["dag"]["tasks"]
    reported: dict[str, Any] = {}
    for name in TopologicalSorter(
        {name: task.get("dependentTasks", []) for name, task in tasks.items()}
    ).static_order():
        executor = spec["deploymentSpec"]["executors"][f"{name}_executor"]
        if "importer" in executor:
            reported[name] = _imported(executor["importer"])
            continue
        container = executor["container"]
        assert container["image"] == tag
        message = _executor_input(spec, name, folder / "root" / name, reported)
        words = [word.replace("{{$}}", json.dumps(message)) for word in (*container["command"], *container["args"])]
        done = run(tag, *words, mounts=(folder,))
        assert done.returncode == 0, f"{name}\n{done.stderr[-4000:]}"
        written = json.loads(Path(message["outputs"]["outputFile"]).read_text())["artifacts"]
        reported[name] = {key: _typed(entry, message["outputs"]["artifacts"][key]) for key, entry in written.items()}

    exported = reported["export_tflite"]["exported"]["artifacts"][0]
    assert exported["metadata"]["precision"] == "float32"
    assert exported["metadata"]["format"] == "tflite"
    pushed = next((folder / "pushed").glob("*/tflite"))
    assert pushed.read_bytes() == TFLiteModel(exported["uri"]).tflite.read_bytes()


def _imported(importer: dict[str, Any]) -> dict[str, Any]:
    uri = importer["artifactUri"]["constantValue"]["stringValue"]
    return {"result": {"artifacts": [{"name": "module", "type": importer["typeSchema"], "uri": uri}]}}


def _typed(written: dict[str, Any], requested: dict[str, Any]) -> dict[str, Any]:
    """Add the type of an artifact, which an executor does not report."""
    return {"artifacts": [{**written["artifacts"][0], "type": requested["artifacts"][0]["type"]}]}


def _executor_input(spec: dict[str, Any], name: str, folder: Path, reported: dict[str, Any]) -> dict[str, Any]:
    task_inputs = spec["root"]["dag"]["tasks"][name]["inputs"]
    outputs = spec["components"][spec["root"]["dag"]["tasks"][name]["componentRef"]["name"]]["outputDefinitions"]
    wires = {key: wire["taskOutputArtifact"] for key, wire in task_inputs.get("artifacts", {}).items()}
    return {
        "inputs": {
            "parameters": {
                key: value["runtimeValue"]["constantValue"] for key, value in task_inputs["parameters"].items()
            },
            "artifacts": {
                key: reported[wire["producerTask"]][wire["outputArtifactKey"]] for key, wire in wires.items()
            },
        },
        "outputs": {
            "artifacts": {
                key: {"artifacts": [{"name": f"{name}.{key}", "type": kind["artifactType"], "uri": str(folder / key)}]}
                for key, kind in outputs["artifacts"].items()
            },
            "outputFile": str(folder / "executor_output.json"),
        },
    }
