"""Test `train` on several devices: same weights as one device with the same batch, and refusals before TensorFlow."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import divide_cpu, write
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.compute.distribution import check_distribution, scale_learning_rate

TWO_LAYERS = """
import keras
from keras import layers

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.Dense(16, "relu")(layers.Flatten()(layers.Rescaling(1 / 16)(image)))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow))
    model.compile(keras.optimizers.SGD(RATE), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
CLUSTER = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("mirrored", None, "distribution=mirrored with 0 GPUs"),
        ("tpu", None, "without a TPU"),
        ("multi_worker", None, "TF_CONFIG=unset"),
        ("multi_worker", "no json", "TF_CONFIG=no json"),
        ("multi_worker", '["a list"]', "a cluster of two"),
        ("multi_worker", json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}), "two"),
        ("multi_worker", json.dumps(CLUSTER | {"task": {"type": "worker", "index": 2}}), "this task in it"),
        ("multi_worker", json.dumps(CLUSTER | {"task": {"type": "ps", "index": 0}}), "this task in it"),
        ("parameter_server", json.dumps(CLUSTER), "worker and ps and chief"),
    ],
)
def test_devices_that_the_machine_lacks_are_refused(monkeypatch, kind, config, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    if config:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ComponentError) as refusal:
        check_distribution(kind)
    assert message in str(refusal.value)
    check_distribution("one")


def test_a_complete_cluster_is_accepted(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(CLUSTER))
    check_distribution("multi_worker")
    all_types = {"cluster": {"worker": ["a:1"], "ps": ["b:1"], "chief": ["c:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(all_types))
    check_distribution("parameter_server")


def test_the_refusal_comes_before_tensorflow_is_imported(tmp_path):
    (tmp_path / "Split-train").mkdir()
    for split in ("train", "eval"):
        (tmp_path / f"data/Split-{split}").mkdir(parents=True)
        (tmp_path / f"data/Split-{split}/data_tfrecord-0").touch()
    parameters = {"examples": str(tmp_path / "data"), "module": str(write(tmp_path / "m.py", "")), "trained": "out"}
    code = f"""
import sys
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
try:
    train(**{parameters}, distribution="multi_worker")
except ComponentError as error:
    print(error.received, "tensorflow" in sys.modules)
"""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.split()[-2:] == ["TF_CONFIG=unset", "False"]


def test_settings_for_one_device_are_refused_on_several(monkeypatch, tmp_path, digits_examples):
    monkeypatch.setenv("TF_CONFIG", json.dumps(CLUSTER))
    module = write(tmp_path / "m.py", TWO_LAYERS.replace("RATE", "0.5"))
    parameters = {"checkpoints": str(tmp_path / "kept"), "gradient_accumulation": 2}
    with pytest.raises(ComponentError, match="multi_worker with checkpoints, gradient_accumulation"):
        train(digits_examples, module, tmp_path / "out", distribution="multi_worker", **parameters)


def test_the_learning_rate_is_scaled_and_a_schedule_is_refused():
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    for rule, expected in (("linear", 0.4), ("sqrt", 0.2), ("off", 0.1)):
        model.compile(keras.optimizers.SGD(0.1), "mse")
        assert scale_learning_rate(model, 4, rule) == (pytest.approx(expected) if rule != "off" else None)
        assert float(model.optimizer.learning_rate) == pytest.approx(expected)
    model.compile(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)), "mse")
    assert scale_learning_rate(model, 1, "linear") is None
    with pytest.raises(ComponentError, match="scale the schedule in the module"):
        scale_learning_rate(model, 4, "linear")


@pytest.mark.nightly
@pytest.mark.parametrize("keras", ["keras", "tf_keras"])
def test_two_processes_give_the_weights_of_one_with_the_same_batch(tmp_path, digits_examples, keras):
    whole, part = modules(tmp_path, keras)
    single = train(digits_examples, whole, tmp_path / "one", epochs=3, batch_size=70)["trained"]
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        arguments = ["--examples", digits_examples, "--module", part, "--trained", tmp_path / f"two-{index}"]
        arguments += ["--epochs", "3", "--batch-size", "35", "--distribution", "multi_worker"]
        environment = os.environ | {"TF_CONFIG": json.dumps(config)}
        processes.append(subprocess.Popen([sys.executable, "-m", "tfopt.run", "train", *arguments], env=environment))
    assert [process.wait(400) for process in processes] == [0, 0]
    for index in range(2):
        assert_same_except_rounding(tmp_path / f"two-{index}", single, batch_size=70)


@pytest.mark.parametrize(
    ("keras", "precision", "rounding"),
    [
        ("keras", "module", 1e-4),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                *(("keras", "mixed_float16", 2e-3), ("keras", "mixed_bfloat16", 2e-2)),
                ("tf_keras", "mixed_float16", 2e-3),
            )
        ),
    ],
)
def test_two_virtual_devices_give_the_weights_of_one_device_with_the_same_batch(
    tmp_path, digits_examples, keras, precision, rounding
):
    whole, part = modules(tmp_path, keras)
    mode = {"precision": precision}
    single = train(digits_examples, whole, tmp_path / "one", epochs=1, batch_size=350, **mode)["trained"]
    parameters = {"examples": str(digits_examples), "module": str(part), "trained": str(tmp_path / "two"), **mode}
    run_in_child(train_mirrored, parameters, doing="training on virtual devices")
    assert_same_except_rounding(tmp_path / "two", single, batch_size=350, rounding=rounding)


def train_mirrored(parameters: dict[str, str]) -> None:
    divide_cpu(2)
    train(**parameters, epochs=1, batch_size=175, distribution="mirrored")


def modules(folder: Path, keras: str) -> tuple[Path, Path]:
    """Return the modules for one device and for two, whose learning rate will be doubled."""
    text = TWO_LAYERS.replace("keras", keras)
    return write(folder / "one.py", text.replace("RATE", "0.2")), write(folder / "two.py", text.replace("RATE", "0.1"))


def assert_same_except_rounding(folder: Path, single, batch_size: int, rounding: float = 1e-4) -> None:
    two = KerasModel.open(folder)
    for weight, expected in zip(
        keras_models.load(two).get_weights(), keras_models.load(single).get_weights(), strict=True
    ):
        np.testing.assert_allclose(weight, expected, atol=rounding)
        assert weight.ndim == 1 or np.abs(expected).max() > 0.1
    card = json.loads((folder / "model_card.json").read_text())
    assert card["distribution"]["replicas"] == 2
    assert card["distribution"]["batch_size"] == batch_size
    assert card["distribution"]["learning_rate"] == pytest.approx(0.2)
    losses = [
        json.loads((path / "history.json").read_text())["epochs"][-1]["val_loss"] for path in (folder, single.path)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=max(1e-3, rounding))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
