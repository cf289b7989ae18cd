"""Test pipelines with a model of two inputs and two outputs: the named output is evaluated."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel, Model, SavedModel
from tfopt.component import Group, Input
from tfopt.components.tune_recipe.component import tune_recipe
from tfopt.components.tune_recipe.trial_models import OutputDifference, measure_difference
from tfopt.dag.tracing import load, pipelines, trace
from tfopt.errors import ComponentError
from tfopt.pipelines.optimize import Selection, select_and_push
from tfopt.process_engine import runner
from tfopt.trace import Steps


def exports(
    steps: Steps, model: Input[SavedModel], examples: Input[Examples], *, selection: Group[Selection]
) -> dict[str, object]:
    """Compare two exports as the shipped pipelines do; their runtimes load in a tenth of the time of a SavedModel."""
    folded = steps.fold_batch_norm(model=model, examples=examples).outputs["folded"]
    lite = steps.export_tflite(model=folded, examples=examples, precision="float32").outputs["exported"]
    onnx = steps.export_onnx(model=folded, examples=examples, precision="int8").outputs["exported"]
    return select_and_push(steps, lite, [onnx], examples, selection)


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, Path]:
    """Save digits of changed brightness with their gain, and a model that predicts digit and mean brightness."""
    import keras
    from keras import layers
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("several")
    images, labels = load_digits(return_X_y=True)
    gain = np.random.default_rng(0).uniform(0.5, 1.5, len(images)).astype(np.float32)
    columns = {"image": images * gain[:, None], "gain": gain, "label": labels}
    for split, rows in (("train", slice(1400)), ("eval", slice(1400, None))):
        file = folder / "examples" / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"
        write_examples(file, {name: column[rows] for name, column in columns.items()})
    keras.utils.set_random_seed(0)
    image, bright = layers.Input((64,), name="image"), layers.Input((1,), name="gain")
    flow = layers.Dense(32, activation="relu")(layers.Concatenate()([layers.Rescaling(1 / 16)(image), bright]))
    outputs = {"bright": layers.Dense(1, name="bright")(flow)}
    outputs |= {"digit": layers.Dense(10, activation="softmax", name="digit")(flow)}
    model = keras.Model({"image": image, "gain": bright}, outputs)
    model.compile(keras.optimizers.Adam(5e-3), {"digit": "sparse_categorical_crossentropy", "bright": "mse"})
    features, targets = {"image": columns["image"], "gain": gain}, {"digit": labels, "bright": images.mean(1)}
    model.fit(features, targets, epochs=6, batch_size=32, verbose=0)
    keras_models.save(model, folder / "model")
    return {"model": folder / "model", "examples": folder / "examples"}


@pytest.mark.parametrize("name", pipelines())
def test_every_pipeline_passes_output_and_batch_sizes_to_its_steps(name):
    dag = load(name)
    expected = {"evaluate": {"output"}, "benchmark": {"batch_sizes"}, "tune_recipe": {"output", "batch_sizes"}}
    for step in dag.steps.values():
        for parameter in expected.get(step.component.name, ()):
            assert step.parameters[parameter].parameter is dag.parameters[parameter]


@pytest.mark.nightly  # daily: the parameters of every pipeline
def test_the_named_output_is_evaluated_and_the_requested_batch_sizes_are_measured(sources, tmp_path):
    values = {**sources, "seconds": 0.1, "goals": [], "destination": str(tmp_path / "pushed")}

    def run(**more: object) -> dict[str, dict]:
        dag = trace(exports)
        dag.steps["validate_serving"].parameters.update(seconds=0.1, requests=4)
        outcomes = runner.run(dag, values | more, tmp_path / "root")
        return {name: step.outputs for name, step in outcomes.items()}

    with pytest.raises(ComponentError, match="output") as refusal:
        run()
    assert "pass output=NAME" in refusal.value.fix
    outputs = run(output="digit", batch_sizes=["8"])
    evaluation = outputs["evaluate"]["evaluation"].read()
    assert (evaluation["output"], evaluation["task"]) == ("digit", "classification")
    assert [row["error"] for row in evaluation["models"]] == [None] * 2
    assert evaluation["models"][0]["metrics"]["accuracy"]["value"] > 0.8
    benchmark = outputs["benchmark"]["benchmark"].read()
    assert benchmark["batch_sizes"] == [8]
    assert [row["error"] for row in benchmark["models"]] == [None] * 2
    pushed = json.loads(Path(outputs["push_model"]["pushed"].path, "pushed.json").read_text())
    assert pushed["version"] == 1


@pytest.mark.nightly
def test_a_search_evaluates_the_named_output(sources, tmp_path):
    quick = {"formats": ["tflite"], "trials": 1, "seconds": 0.1}
    with pytest.raises(ComponentError, match="batch_sizes"):
        tune_recipe(**sources, tuned=tmp_path / "t", recipe=tmp_path / "r", batch_sizes=["none"], **quick)
    options = {"output": "digit", "batch_sizes": ["8"]}
    outputs = tune_recipe(**sources, tuned=tmp_path / "t", recipe=tmp_path / "r", **options, **quick)
    content = outputs["recipe"].read()
    (trial,) = content["trials"]
    assert trial["state"] == "measured" and trial["metrics"]["accuracy"] > 0.8
    assert content["decision"]["conditions"]["speed"]["batch_sizes"] == [8]
    assert Model.open(outputs["tuned"].path)


def test_the_quick_comparison_of_a_search_uses_the_named_output(sources, tmp_path):
    model = keras_models.load(KerasModel(sources["model"]))
    model.get_layer("bright").set_weights([-weights for weights in model.get_layer("bright").get_weights()])
    keras_models.save(model, tmp_path / "child")
    arguments = str(sources["model"]), str(tmp_path / "child"), str(sources["examples"])
    same = OutputDifference(changed=0, records=16, decorrelation=pytest.approx(0, abs=1e-6))
    assert measure_difference(*arguments, "digit", 16, 0) == same
    assert measure_difference(*arguments, None, 16, 0).decorrelation > 1
