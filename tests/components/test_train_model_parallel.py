"""Test `train` with the layers of a model on several virtual devices: same losses and weights as on one device."""

import collections
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.components.train_modules import LINEAR, STOPS, write
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.components.train.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child

# Layers with a state, a nested model, a layer that is called twice, and losses that layers add.
LAYERS = """
import json, pathlib
import keras
from keras import layers
STOPS
class Reports(Stops):
    "A model that writes down the device of each weight, and of the optimizer's variables for it."
    def evaluate(self, *data, **more):
        slots = self.optimizer.variables
        slots = slots() if callable(slots) else slots
        rows = [[getattr(each, "path", each.name), getattr(each, "value", each).device if hasattr(each, "path")
                 else each.device, str(each.shape)] for each in [*self.variables, *slots]]
        pathlib.Path(DEVICES).write_text(json.dumps(rows))
        return super().evaluate(*data, **more)

def preprocess(features):
    return {"image": layers.Rescaling(1 / 16, name="scale")(features["image"])}

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.BatchNormalization(momentum=0.9)(layers.Flatten()(image))
    flow = layers.Dropout(0.1)(layers.Dense(128, "relu", kernel_regularizer="l2")(flow))
    inner = keras.Sequential([layers.Input((128,)), layers.Dense(128, "relu"), layers.Dropout(0.1)])
    shared = layers.Dense(128, "tanh", activity_regularizer="l2")
    flow = layers.Add()([flow, shared(shared(inner(flow)))])
    model = Reports(image, layers.Dense(10, activation="softmax", name="digit")(flow), name="digits")
    model.compile(keras.optimizers.Adam(0.005), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def divide_cpu(count: int) -> list[str]:
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def train_interrupted(examples: str, module: str, folder: str) -> list[Any]:
    """Train on one device; and on four, until it is stopped, and then on two."""
    divide_cpu(4)
    stop, parameters = Path(folder, "stop"), {"epochs": 3, "batch_size": 350, "gpu_memory_mb": 1}
    train(examples, module, f"{folder}/one", **parameters)
    stop.touch()
    parameters |= {"checkpoints": f"{folder}/checkpoints"}
    devices = Path(folder, "devices")
    with pytest.raises(ComponentError, match="stopped here"):
        train(examples, module, f"{folder}/several", model_parallel=4, **parameters)
    on_four = json.loads(devices.read_text())
    stop.unlink()
    facts = train(examples, module, f"{folder}/several", model_parallel=2, **parameters)["trained"].metadata
    return [facts["model_parallel"], on_four, json.loads(devices.read_text())]


@pytest.mark.parametrize("keras", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def test_a_training_on_four_devices_resumed_on_two_gives_the_losses_and_weights_of_one(
    tmp_path, digits_examples, keras
):
    text = LAYERS.replace("STOPS", STOPS).replace("FILE", repr(str(tmp_path / "stop"))).replace("keras", keras)
    module = write(tmp_path / "m.py", text.replace("DEVICES", repr(str(tmp_path / "devices"))))
    arguments = str(digits_examples), str(module), str(tmp_path)
    parts, *devices = run_in_child(train_interrupted, *arguments, doing="training on virtual devices")
    one, several = (KerasModel.open(tmp_path / name) for name in ("one", "several"))
    histories = [json.loads((each.path / "history.json").read_text())["epochs"] for each in (one, several)]
    for epoch, same in zip(*histories, strict=True):
        assert same == pytest.approx(epoch, abs=1e-4)
    weights = [keras_models.load(each).get_weights() for each in (one, several)]
    for weight, same in zip(*weights, strict=True):
        np.testing.assert_allclose(same, weight, atol=1e-4)

    assert [part["device"][-5:] for part in parts] == ["CPU:0", "CPU:1"]
    names = [name for part in parts for name in part["layers"]]
    assert len(names) == len({*names}) == 8  # the shared layer has one device
    for share in ("time_share", "memory_share"):
        assert sum(part[share] for part in parts) == pytest.approx(1)
    assert max(part["memory_share"] for part in parts) < 0.75
    assert sum(part["weight_bytes"] for part in parts) >= 4 * (64 * 128 + 2 * 128 * 128 + 128 * 10)
    for count, rows in zip((4, 2), devices, strict=True):
        on_device = collections.defaultdict(set)
        for _, device, shape in rows:
            on_device[shape].add(device[-5:])
        assert len({device for found in on_device.values() for device in found}) == count
        assert len(on_device[str(rows[4][2])]) == 1, rows  # kernel of 64 x 128, and Adam's variables for it


def trace(library: str) -> tuple[dict[str, dict[str, int]], list[float], list[float]]:
    """Return the operations of a traced step by type and device; losses of steps with and without placement."""
    import importlib

    import tensorflow as tf

    from tfopt.training.compute.model_parallel import Placement, placed

    keras = importlib.import_module(library)
    devices, layers = divide_cpu(2), keras.layers
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Input((4, 3)),
            layers.SimpleRNN(4, return_sequences=True),
            layers.Conv1D(4, 2),
            layers.LSTM(4),
            layers.Dense(2),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    inputs, labels = tf.random.normal((8, 4, 3)), tf.random.normal((8, 2))
    weights = model.get_weights()
    plain = [float(model.train_on_batch(inputs, labels)) for _ in range(2)]
    model.set_weights(weights)
    with placed(model, Placement(devices, [0, 0, 1, 1])):
        step = tf.function(lambda *data: model.train_step(data)).get_concrete_function(inputs, labels)
        same = [float(model.train_on_batch(inputs, labels)) for _ in range(2)]
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    graphs = [
        step.graph,
        *(function.graph for function in step.graph._functions.values() if hasattr(function, "graph")),
    ]
    for operation in (operation for graph in graphs for operation in graph.get_operations()):
        found[operation.type][operation.device[-5:]] += 1
    return {kind: dict(counts) for kind, counts in found.items()}, plain, same


@pytest.mark.parametrize("library", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def test_layers_loops_and_gradients_are_computed_on_the_device_of_the_layer(library):
    operations, plain, same = run_in_child(trace, library, doing="tracing a step")
    assert same == pytest.approx(plain, abs=1e-6)
    assert operations["Conv2D"] == operations["Conv2DBackpropFilter"] == {"CPU:0": 1}
    if library == "keras":  # Keras 2 has functions around its loops, which have the device of their call
        assert {*operations["Tanh"]} == {*operations["TanhGrad"]} == {"CPU:0", "CPU:1"}
    assert {*operations["SigmoidGrad" if library == "keras" else "BiasAddGrad"]} <= {"CPU:0", "CPU:1"}
    assert operations["SquaredDifference"] == {"CPU:1": 1}  # the loss


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"distribution": "mirrored"}, "model_parallel=2 with distribution=mirrored"),
        ({"rematerialize": True}, "model_parallel=2 with rematerialize"),
        ({"jit_compile": "on", "deterministic": False}, "model_parallel=2 with jit_compile=on"),
        ({"batch_size": 0}, "model_parallel=2 with auto"),
    ],
)
def test_settings_that_exclude_model_parallelism_are_refused(monkeypatch, change, message):
    monkeypatch.setattr("tfopt.training.compute.distribution._count_devices", lambda: 2)
    with pytest.raises(ComponentError, match=message):
        Settings(model_parallel=2, **change).check()


def test_one_device_is_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(ComponentError, match="model_parallel=2 with 0 GPUs"):
        Settings(model_parallel=2).check()


SUBCLASS = """
import keras
class Own(keras.Model):
    def call(self, image):
        return super().call(image)
def build_model():
    image = keras.Input((8, 8, 1), name="image")
    model = Own(image, keras.layers.Dense(10, "softmax")(keras.layers.Flatten()(image)))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model
"""
REFUSED = {
    "a model that fits": (LINEAR, "a step needs about .* the devices would compute one after the other"),
    "a subclass": (SUBCLASS, "an? .*Own.* with a call\\(\\) of its own"),
    "eager steps": (LINEAR.replace("metrics=[", "run_eagerly=True, metrics=["), "run_eagerly=True"),
    "XLA": (LINEAR.replace("metrics=[", "jit_compile=True, metrics=["), "jit_compile=True"),
    "variables made once": (
        "import keras\n"
        + LINEAR.replace("layers.Dense(10", "DENSE(10").replace(
            "def build", "LAYER = layers.Dense(10, name='digit')\ndef DENSE(*_, **__): return LAYER\ndef build"
        ),
        "the same variables in each call",
    ),
}


def refusals(examples: str, folder: str) -> dict[str, str]:
    divide_cpu(2)
    texts = {}
    for number, (name, (text, _)) in enumerate(REFUSED.items()):
        module = write(Path(folder, f"{number}.py"), text)
        with pytest.raises(ComponentError) as error:
            train(examples, module, f"{folder}/out", model_parallel=2)
        texts[name] = str(error.value)
    return texts


def test_models_whose_layers_cannot_be_placed_or_gain_nothing_are_refused(tmp_path, digits_examples):
    import re

    texts = run_in_child(refusals, str(digits_examples), str(tmp_path), doing="trying models")
    for name, (_, message) in REFUSED.items():
        assert re.search(message, texts[name], re.DOTALL), texts[name]
