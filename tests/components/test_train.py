"""Test `train`: outputs, history, early stopping, reproducibility, preprocessing, several outputs."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.components.train_modules import DIGITS, FRUIT, LINEAR, SMALL, TRACED, TWO_BY_TWO, fruit, with_mean, write
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.train.component import train
from tfopt.data.batches import read_batches
from tfopt.training.determinism import reproducible
from tfopt.training.training_setup import prepare_training
from tfopt.training.user_module import UserModule

# No weight of it starts as a constant.
RANDOM = LINEAR.replace('"softmax", name="digit"', '"softmax", name="digit", bias_initializer="random_normal"').replace(
    "(flow))\n", "(layers.Dropout(0.1)(flow)))\n"
)

NAN = """
@keras.saving.register_keras_serializable()
def nan(true, predicted):
    return keras.ops.mean(predicted) * float("nan")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory, digits_examples) -> KerasModel:
    """A model of digits after four epochs; the module's path has spaces and letters beyond ASCII."""
    folder = tmp_path_factory.mktemp("mit Größe und Maß")
    module = write(folder / "mein modell ü.py", DIGITS)
    return train(digits_examples, module, folder / "trained", epochs=4, batch_size=32)["trained"]


def test_the_saved_model_takes_raw_features_and_has_the_metrics_of_the_validation(trained, digits_examples):
    served = runtimes.load(KerasModel.open(trained.path))
    assert served.inputs == {"image": TensorSpec("float32", (None, 8, 8, 1))}
    assert list(served.outputs) == ["digit"]
    accuracy, loss = scores(served, digits_examples)
    assert accuracy > 0.9
    assert accuracy == pytest.approx(trained.metadata["metrics"]["val_accuracy"], abs=1e-6)
    assert loss == pytest.approx(trained.metadata["metrics"]["val_loss"], rel=1e-4)


def test_the_keras_form_is_one_flat_graph_with_updated_moving_averages(trained):
    model = keras_models.load(trained)
    assert [layer.name for layer in model.layers][:3] == ["image", "scale", "conv2d"]
    norm = next(layer for layer in model.layers if layer.name == "batch_normalization")
    assert np.abs(norm.moving_mean.numpy()).max() > 0.05
    assert np.abs(norm.moving_variance.numpy() - 1).max() > 0.05


def test_the_model_card_has_the_comparison_of_both_forms(trained):
    verified = KerasModel.open(trained.path).card.facts["verified"]["digit"]
    assert verified["relative_error"] <= 1e-5
    assert verified["records"] == 397
    assert trained.metadata["examples"] == {"train": 1400, "eval": 397}
    assert "teacher" not in KerasModel.open(trained.path).card.facts


def test_history_and_tensorboard_logs_are_written_with_the_model(trained):
    history = json.loads((trained.path / "history.json").read_text())
    losses = [epoch["val_loss"] for epoch in history["epochs"]]
    assert len(losses) == 4
    assert history["best_epoch"] == losses.index(min(losses)) + 1
    assert tensorboard_values(trained.path / "logs" / "validation", "epoch_loss") == pytest.approx(losses)
    assert tensorboard_values(trained.path / "logs" / "train", "epoch_accuracy") == pytest.approx(
        [epoch["accuracy"] for epoch in history["epochs"]]
    )
    assert not [file for file in (trained.path / "Format-Serving").rglob("*") if "events" in file.name]


def test_early_stopping_restores_the_best_weights(tmp_path, digits_examples, caplog):
    """The learning rate jumps after two epochs of 44 steps, so the third and fourth are worse."""
    jump = "keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([88], [0.05, 3.0]))"
    module = write(tmp_path / "module.py", SMALL.replace("keras.optimizers.SGD(0.1)", jump))
    with caplog.at_level(logging.INFO, "tfopt"):
        best = train(digits_examples, module, tmp_path / "out", epochs=9, batch_size=32, patience=2)["trained"]
    history = json.loads((best.path / "history.json").read_text())
    assert (history["best_epoch"], len(history["epochs"]), history["stopped_early"]) == (2, 4, True)
    assert history["epochs"][3]["val_loss"] > 2 * history["epochs"][1]["val_loss"]
    _, loss = scores(runtimes.load(best), digits_examples)
    assert loss == pytest.approx(history["epochs"][1]["val_loss"], rel=1e-4)
    lines = [record.message for record in caplog.records if record.message.startswith("epoch ")]
    assert len(lines) == 4
    assert lines[1].startswith(f"epoch 2/9: loss {history['epochs'][1]['loss']:.4g}, accuracy ")


def test_the_seed_determines_every_weight_a_step_is_traced_once_and_a_metric_without_a_value_is_null_in_the_history(
    tmp_path, digits_examples, capfd
):
    text = RANDOM.replace("def build_model", TRACED + NAN + "\ndef build_model").replace('["accuracy"]', "[nan]")
    text = text.replace("keras.Model(", "Traced(")
    module = write(tmp_path / "module.py", text)
    models = [
        train(digits_examples, module, tmp_path / f"out{run}", epochs=1, seed=seed)["trained"]
        for run, seed in enumerate([7, 7, 8])
    ]
    assert capfd.readouterr().out.count("traced a step") == len(models)
    numbers = json.loads((models[0].path / "history.json").read_text())["epochs"][0]
    assert [name for name, value in numbers.items() if value is None] == ["nan", "val_nan"]
    weights = [keras_models.load(model).weights for model in models]
    same = [np.array_equal(a.numpy(), b.numpy()) for a, b in zip(weights[0], weights[1], strict=True)]
    other = [np.array_equal(a.numpy(), b.numpy()) for a, b in zip(weights[0], weights[2], strict=True)]
    assert all(same)
    assert not any(other)


def test_determinism_and_precision_policy_are_restored_after_training_of_own_layers_with_a_warning(
    tmp_path, digits_examples, caplog
):
    """The module also has a dataclass with postponed annotations, which looks its own module up."""
    import keras
    from tensorflow.python.framework import config

    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + LINEAR.replace(
        "def build_model", OWN_LAYER + "\ndef build_model"
    ).replace("flow = layers.Flatten()(", "flow = Doubled(name='own')(")
    text = text.replace('name="digit")(flow)', 'name="digit", dtype="float32")(layers.Flatten()(flow))')
    text += "\nkeras.mixed_precision.set_global_policy('mixed_bfloat16')\n"
    module = write(tmp_path / "module.py", text)
    trained = train(digits_examples, module, tmp_path / "out", epochs=1)["trained"]
    assert not config.is_op_determinism_enabled()
    assert keras.mixed_precision.global_policy().name == "float32"
    assert keras_models.load(trained).get_layer("own").dtype_policy.name == "mixed_bfloat16"
    assert trained.metadata["own_layers"] == ["Doubled"]
    assert "Doubled: layers of your own" in caplog.text


@pytest.mark.nightly  # daily: tests/contract/test_execution.py
def test_keras_2_module_gives_a_keras_2_model(tmp_path, digits_examples):
    module = write(tmp_path / "module.py", SMALL.replace("keras", "tf_keras"))
    trained = train(digits_examples, module, tmp_path / "out", epochs=3)["trained"]
    model = keras_models.load(trained)
    assert keras_models.is_keras_2(model)
    assert [layer.name for layer in model.layers][:2] == ["image", "scale"]
    accuracy, loss = scores(runtimes.load(trained), digits_examples)
    assert accuracy > 0.8
    assert loss == pytest.approx(trained.metadata["metrics"]["val_loss"], rel=1e-4)


def test_module_without_preprocess_may_be_sequential_with_logits(tmp_path, digits_examples):
    text = """
import keras
def build_model():
    model = keras.Sequential([keras.Input((8, 8, 1), name="image"), keras.layers.Rescaling(1 / 16),
                              keras.layers.Flatten(), keras.layers.Dense(10, name="logits")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""
    trained = train(digits_examples, write(tmp_path / "m.py", text), tmp_path / "out", epochs=1)["trained"]
    assert list(runtimes.load(trained).outputs) == ["logits"]
    assert set(trained.metadata["metrics"]) == {"val_loss"}


def test_preprocessing_of_text_and_integers_is_served_without_unused_features(tmp_path):
    examples = fruit(tmp_path)
    trained = train(examples, write(tmp_path / "m.py", FRUIT), tmp_path / "out", label="price", epochs=2)["trained"]
    served = runtimes.load(trained)
    assert served.inputs == {
        "size": TensorSpec("float32", (None, 2)),
        "colour": TensorSpec("string", (None, 1)),
        "count": TensorSpec("int64", (None, 1)),
    }
    row = {"size": np.ones((1, 2), "float32"), "count": np.ones((1, 1), "int64")}
    red, green = (served.run({**row, "colour": np.array([[text]], object)})["price"] for text in ("red", "green"))
    assert red != green


def test_preprocess_gets_the_shape_from_the_manifest(tmp_path, digits_examples):
    """Images stored as 8x8 for a model of 4x4: only examples.json contains their shape."""
    import shutil

    shutil.copytree(digits_examples, tmp_path / "examples")
    facts = {"features": {"image": {"dtype": "float32", "shape": [8, 8, 1]}, "label": {"dtype": "int64", "shape": []}}}
    (tmp_path / "examples" / "examples.json").write_text(json.dumps(facts))
    text = SMALL.replace("(8, 8, 1)", "(4, 4, 1)").replace(
        'layers.Rescaling(1 / 16, name="scale")', "layers.AveragePooling2D(2)"
    )
    module = UserModule(write(tmp_path / "m.py", text))
    settings = {"label": "label", "seed": 0, "precision": "module", "jit_compile": "off"}
    with reproducible(0):
        setup = prepare_training(module, Examples(tmp_path / "examples"), **settings)
        inputs, _ = setup.read_sources()["train"].first_batch(5)
        outputs = setup.parts.saved(np.ones((5, 8, 8, 1), np.float32))
    assert setup.parts.model(inputs).shape == outputs.shape == (5, 10)
    assert setup.parts.inputs == {"image": TensorSpec("float32", (None, 8, 8, 1))}


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    return with_mean(tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize(
    ("inputs", "outputs", "loss", "weights", "names"),
    [
        (
            "{'mean': mean, 'image': image}",
            "[main, early]",
            "['sparse_categorical_crossentropy'] * 2",
            "[1, 0.3]",
            {"main", "early"},
        ),
        (
            "[mean, image]",
            "{'digit': main, 'aux': early}",
            "{'digit': 'sparse_categorical_crossentropy', 'aux': keras.losses.SparseCategoricalCrossentropy()}",
            "None",
            {"digit", "aux"},
        ),
        pytest.param(
            *("[image, mean]", "{'only': main}", "'sparse_categorical_crossentropy'", "None", {"only"}),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_two_inputs_and_two_outputs_that_share_the_label(tmp_path, two, inputs, outputs, loss, weights, names):
    text = TWO_BY_TWO.replace("INPUTS", inputs).replace("OUTPUTS", outputs).replace("LOSS", loss)
    module = write(tmp_path / "m.py", text.replace("WEIGHTS", weights))
    trained = train(two, module, tmp_path / "out", epochs=2)["trained"]
    served = runtimes.load(trained)
    assert set(served.outputs) == names
    specs = {**served.inputs, "label": TensorSpec("int64", (None,))}
    batch = next(read_batches(Examples(two).split("eval"), specs, batch_size=400))
    label = batch.pop("label").ravel()
    for output in served.run(batch).values():
        assert (output.argmax(1) == label).mean() > 0.6


OWN_LAYER = """
@dataclass
class Setting:
    factor: float = 2.0

@keras.saving.register_keras_serializable()
class Doubled(layers.Layer):
    def call(self, inputs):
        return inputs * Setting().factor
"""


def scores(served: runtimes.Runtime, examples: Path) -> tuple[float, float]:
    """Compute accuracy and cross entropy on the eval split with numpy."""
    specs = {**served.inputs, "label": TensorSpec("int64", (None,))}
    batch = next(read_batches(Examples(examples).split("eval"), specs, batch_size=400))
    label = batch["label"].ravel()
    probabilities = served.run({"image": batch["image"]})["digit"].astype(np.float64)
    label_probabilities = np.clip(probabilities[np.arange(len(label)), label], 1e-7, 1)
    return float((probabilities.argmax(1) == label).mean()), float(-np.log(label_probabilities).mean())


def tensorboard_values(folder: Path, tag: str) -> list[float]:
    """Return the values of one tag in a folder of event files."""
    events = [
        tf.compat.v1.Event.FromString(record)
        for file in sorted(folder.iterdir())
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    ]
    return [
        float(tf.make_ndarray(value.tensor)) for event in events for value in event.summary.value if value.tag == tag
    ]
