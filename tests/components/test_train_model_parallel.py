"""Test `train` with the layers of a model on several virtual devices: same losses and weights as on one device."""

import collections
import importlib
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.components.train_modules import STOPS, divide_cpu, write
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.components.train.layer_placement import check_model
from tfopt.components.train.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.compute.layer_costs import measure_layers
from tfopt.training.compute.model_parallel import (
    Placement,
    placeable_layers,
    placed,
    placed_variables,
    recorded_variables,
)

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
        if len({device for _, device, _ in rows}) > 1:  # not of the float32 model after a training in 16 bits
            pathlib.Path(DEVICES).write_text(json.dumps(rows))
        return super().evaluate(*data, **more)

def preprocess(features):
    return {"image": layers.Rescaling(1 / 16, name="scale")(features["image"])}

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.BatchNormalization(momentum=0.9)(layers.Flatten()(image))
    first = layers.Dense(128, "relu", kernel_regularizer="l2")
    flow = keras.Sequential([layers.Input((64,)), first, layers.Dropout(0.1)])(flow)
    shared = layers.Dense(128, "tanh", activity_regularizer="l2")
    flow = layers.Add()([flow, shared(shared(flow))])
    model = Reports(image, layers.Dense(10, activation="softmax", name="digit")(flow), name="digits")
    model.compile(keras.optimizers.Adam(0.005), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def train_interrupted(examples: str, module: str, folder: str, precision: str) -> list[Any]:
    """Train on one device; and on four, until it is stopped, and then on two."""
    divide_cpu(4)
    stop, parameters = Path(folder, "stop"), {"epochs": 3, "batch_size": 350, "gpu_memory_mb": 1}
    parameters["precision"] = precision
    # Checkpoints also here: with them, dropout of Keras 2 has random numbers whose state can be saved.
    train(examples, module, f"{folder}/one", checkpoints=f"{folder}/one_checkpoints", **parameters)
    stop.touch()
    parameters |= {"checkpoints": f"{folder}/checkpoints"}
    devices = Path(folder, "devices")
    with pytest.raises(ComponentError, match="stopped here"):
        train(examples, module, f"{folder}/several", model_parallel=4, **parameters)
    on_four = json.loads(devices.read_text())
    stop.unlink()
    facts = train(examples, module, f"{folder}/several", model_parallel=2, **parameters)["trained"].metadata
    return [facts["model_parallel"], on_four, json.loads(devices.read_text())]


@pytest.mark.parametrize(
    ("keras", "precision"),
    [
        ("keras", "module"),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                *(("tf_keras", "module"), ("tf_keras", "mixed_float16")),
                *(("keras", "mixed_float16"), ("keras", "mixed_bfloat16")),
            )
        ),
    ],
)
def test_a_training_on_four_devices_resumed_on_two_has_losses_and_weights_of_one(
    tmp_path, digits_examples, keras, precision
):
    text = LAYERS.replace("STOPS", STOPS).replace("FILE", repr(str(tmp_path / "stop"))).replace("keras", keras)
    text = text.replace("DEVICES", repr(str(tmp_path / "devices")))
    if precision != "module":  # Keras 3 adds losses of activities in 16 bits to those in float32, and fails
        text = text.replace(', activity_regularizer="l2"', "")
    arguments = str(digits_examples), str(write(tmp_path / "m.py", text)), str(tmp_path), precision
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
    assert len(names) == len({*names}) == 7  # the shared layer has one device
    for share in ("time_share", "memory_share"):
        assert sum(part[share] for part in parts) == pytest.approx(1)
    assert max(part["memory_share"] for part in parts) < 0.75
    assert sum(part["weight_bytes"] for part in parts) >= 4 * (64 * 128 + 128 * 128 + 128 * 10)
    for count, rows in zip((4, 2), devices, strict=True):
        on_device = collections.defaultdict(set)
        for _, device, shape in rows:
            on_device[shape].add(device[-5:])
        # One device may have layers without weights only: the cut follows from measured times.
        assert max(2, count - 1) <= len(set.union(*on_device.values())) <= count
        assert len(on_device[str(rows[4][2])]) == 1, rows  # kernel of 64 x 128, and Adam's variables for it


def trace(library: str, policy: str) -> tuple[dict[str, dict[str, int]], list[float], list[float]]:
    """Return the operations of a traced step by type and device; losses of steps with and without placement."""
    import tensorflow as tf

    library_module = importlib.import_module(library)
    library_module.mixed_precision.set_global_policy(policy)
    devices, layers = divide_cpu(3), library_module.layers

    def build() -> Any:
        library_module.utils.set_random_seed(1)
        model = library_module.Sequential(
            [layers.Input((4, 3)), layers.Conv1D(4, 2), layers.SimpleRNN(4), layers.Dense(2)]
        )
        model.compile(library_module.optimizers.Adam(0.1), "mse")
        return model

    with recorded_variables() as variables:
        model = build()
    inputs, labels, placement = tf.random.normal((8, 4, 3)), tf.random.normal((8, 2)), Placement(devices, [1, 2, 1])
    with placed_variables(variables, model, placement):
        divided = build()
    plain = [float(model.train_on_batch(inputs, labels)) for _ in range(2)]
    with placed(divided, placement):
        step = tf.function(lambda *data: divided.train_step(data)).get_concrete_function(inputs, labels)
        same = [float(divided.train_on_batch(inputs, labels)) for _ in range(2)]
    operations: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    inner = [function.graph for function in step.graph._functions.values() if hasattr(function, "graph")]
    for graph in (step.graph, *inner):
        for operation in graph.get_operations():
            operations[operation.type][operation.device[-5:]] += 1
    return {kind: dict(counts) for kind, counts in operations.items()}, plain, same


@pytest.mark.parametrize(
    ("library", "policy"),
    [
        ("keras", "float32"),
        ("tf_keras", "mixed_float16"),
        pytest.param("tf_keras", "float32", marks=pytest.mark.nightly),
        *(pytest.param("keras", f"mixed_{kind}", marks=pytest.mark.nightly) for kind in ("float16", "bfloat16")),
    ],
)
def test_layers_loops_and_gradients_are_computed_on_the_device_of_the_layer(library, policy):
    operations, plain, same = run_in_child(trace, library, policy, doing="tracing a step")
    assert same == pytest.approx(plain, abs=1e-6)
    assert {*operations["Conv2D"], *operations["Conv2DBackpropFilter"]} == {"CPU:1"}
    assert {*operations["Tanh"], *operations["TanhGrad"]} == {"CPU:2"}
    assert {*operations["MatMul"]} == {"CPU:1", "CPU:2"}
    assert {*operations["Mean"]} == {"CPU:1"}  # the loss
    assert "IdentityN" not in operations  # it would have all gradients as inputs
    assert {*operations["Sqrt"]} >= {"CPU:1", "CPU:2"}  # updates of weights, from a variable of the optimizer


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


def test_models_whose_layers_cannot_be_placed_are_refused():
    class Own(keras.Model):
        """A model whose calls of layers are unknown before it runs."""

        def call(self, image):
            return super().call(image)

    def build(kind: Any = keras.Model, **options: Any) -> Any:
        image = keras.Input((8,))
        model = kind(image, keras.layers.Dense(2)(keras.layers.Dense(2)(image)))
        model.compile("sgd", "mse", **options)
        return model

    with pytest.raises(ComponentError, match="Own has a call"):
        placeable_layers(build(Own))
    with pytest.raises(ComponentError, match="run_eagerly=True"):
        placeable_layers(build(run_eagerly=True))
    for model, devices, message in ((build(), 3, "=3 for 2 layers"), (build(jit_compile=True), 2, "jit_compile=True")):
        with pytest.raises(ComponentError, match=message):
            check_model(model, placeable_layers(model), devices)


def test_a_module_that_creates_variables_only_once_is_refused():
    dense = keras.layers.Dense(2)

    def build() -> Any:
        image = keras.Input((8,))
        return keras.Model(image, dense(image))

    with recorded_variables() as variables:
        model = build()
    placement = Placement(["CPU:0"], [0])
    refused = pytest.raises(ComponentError, match="created 0 variables, and 2 when it was called before")
    with refused, placed_variables(variables, model, placement):
        build()


def test_a_layer_that_raises_is_named():
    class Fails(keras.layers.Layer):
        """A layer that runs when the model is built, and not on a batch."""

        def call(self, inputs):
            if inputs.shape[0] == 3:
                raise RuntimeError("batches of three")
            return inputs

    model = keras.Sequential([keras.Input((8,)), Fails(name="fails")])
    model.compile("sgd", "mse")
    with pytest.raises(ComponentError, match=r"at fails: .*batches of three"):
        measure_layers(model, Placement(["CPU:0"], [0]), np.ones((3, 8), "float32"))
