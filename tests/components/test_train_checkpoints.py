"""Test that a killed training is resumed, and ends with the weights of one that was not killed."""

import json
import logging
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.components.train_modules import SMALL, STOPS, write
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.errors import ComponentError, MachineError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.storage import remote_files

STEPS = 8  # batches of 175 in 1,400 examples
PARAMETERS = {"epochs": 4, "patience": 2, "batch_size": 175}
SGD = "keras.optimizers.SGD(0.1)"
# The second epoch is worse than the first, so that early stopping has a state to restore.
WORSE = "keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([8, 16], [0.05, 5.0, 0.02]), 0.9)"
TEXTS = {
    "momentum, worse": SMALL.replace(SGD, WORSE),
    "keras 2": SMALL,
    "adam": SMALL.replace(SGD, "keras.optimizers.Adam(0.005)"),
}
NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("keras 2", "adam")]
DAILY = pytest.mark.parametrize("module", ["momentum, worse"], indirect=True)


@pytest.fixture(scope="module", params=["momentum, worse", *NIGHTLY])
def module(request, tmp_path_factory) -> Path:
    """A module whose third validation fails while there is a file ``stop`` next to it."""
    folder = tmp_path_factory.mktemp("module")
    text = TEXTS[request.param].replace("keras.Model(image", "Stops(image")
    text = text.replace("def build_model", STOPS.replace("FILE", repr(str(folder / "stop"))) + "\ndef build_model")
    text = text.replace("keras", "tf_keras") if request.param == "keras 2" else text
    return write(folder / "module.py", text)


@pytest.fixture(scope="module")
def whole(module, digits_examples) -> KerasModel:
    """The model of a training that was not interrupted, with checkpoints after each step."""
    parameters = {"checkpoints": str(module.parent / "other"), "checkpoint_s": 0, **PARAMETERS}
    return train(digits_examples, module, module.parent / "whole", **parameters)["trained"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory, module, digits_examples) -> Path:
    """The checkpoints of a training that was killed in its third epoch."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(MachineError, match="SIGKILL"):
        run_in_child(train_until_killed, folder, 2 * STEPS + 3, digits_examples, module, doing="training")
    assert not (folder / "out").exists()
    return folder / "kept"


def test_a_killed_training_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path, digits_examples, module, whole, killed, caplog
):
    parameters = {"checkpoints": str(shutil.copytree(killed, tmp_path / "kept")), "checkpoint_s": 0, **PARAMETERS}
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **parameters)["trained"]
    assert "resuming after epoch 3, batch" in caplog.text
    assert_same(resumed, whole)
    assert not list((tmp_path / "kept").iterdir())


@DAILY
def test_early_stopping_has_an_earlier_state_to_restore(whole):
    history = json.loads((whole.path / "history.json").read_text())
    assert (history["best_epoch"], len(history["epochs"]), history["stopped_early"]) == (1, 3, True)


@DAILY
def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(tmp_path, digits_examples, module, whole, killed, caplog):
    parameters = {"checkpoints": str(shutil.copytree(killed, tmp_path / "kept")), "checkpoint_s": 0, **PARAMETERS}
    (folder,) = tmp_path.glob("kept/*/")
    # A later one may be there that was not finished when the training was killed.
    file = Path(tf.train.latest_checkpoint(str(folder)) + ".data-00000-of-00001")
    file.write_bytes(file.read_bytes()[:1000])
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **parameters)["trained"]
    assert "is damaged and is not used" in caplog.text
    assert "resuming after epoch" in caplog.text
    assert_same(resumed, whole)


@pytest.mark.nightly
@DAILY
def test_checkpoints_in_an_object_store_resume_a_training(tmp_path, digits_examples, module, whole, bucket, caplog):
    parameters = {"checkpoints": f"{bucket}/checkpoints", **PARAMETERS}
    stop(digits_examples, module, tmp_path / "out", parameters)
    assert len([file for file in remote_files.list_remote_files(bucket) if file.endswith(".index")]) == 2
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **parameters)["trained"]
    assert f"resuming after epoch 2, from the checkpoint in {bucket}/checkpoints/" in caplog.text
    assert_same(resumed, whole)
    assert remote_files.list_remote_files(bucket) == {}


def test_the_last_finite_state_of_a_diverging_training_is_saved_for_the_same_model_only(
    tmp_path, digits_examples, caplog, monkeypatch
):
    """The learning rate explodes in the second epoch. The module's model depends on the environment too."""
    explodes = "keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([8], [0.05, 1e30]))"
    text = SMALL.replace(SGD, explodes).replace("import keras\n", "import keras, os\n", 1)
    module = write(tmp_path / "module.py", text.replace("Dense(10", "Dense(int(os.environ.get('WIDTH', 10))"))
    parameters = {"checkpoints": str(tmp_path / "kept"), "epochs": 3, "batch_size": 175}
    with pytest.raises(ComponentError, match=r"epoch 2, batch \d+") as refusal:
        train(digits_examples, module, tmp_path / "out", **parameters)
    assert f"the state after epoch 1 is saved in {tmp_path / 'kept'}" in refusal.value.fix
    assert len(list(tmp_path.glob("kept/*/ckpt-1.index"))) == 1

    monkeypatch.setenv("WIDTH", "12")
    with pytest.raises(ComponentError, match="a checkpoint of the same model"):
        train(digits_examples, module, tmp_path / "out", **parameters)

    other = write(tmp_path / "other.py", SMALL)
    train(digits_examples, other, tmp_path / "out", **{**parameters, "epochs": 1})
    assert "belongs to another training and is not used: other epochs, module" in caplog.text
    assert "resuming" not in caplog.text
    assert len(list(tmp_path.glob("kept/*"))) == 1


def test_a_folder_that_cannot_be_created_is_refused_before_training(tmp_path, digits_examples):
    module = write(tmp_path / "module.py", SMALL)
    with pytest.raises(ComponentError, match="a folder that can be written"):
        train(digits_examples, module, tmp_path / "out", checkpoints=str(module / "kept"))


def assert_same(one: KerasModel, other: KerasModel) -> None:
    weights = [[weight.numpy() for weight in keras_models.load(model).weights] for model in (one, other)]
    for first, second in zip(*weights, strict=True):
        np.testing.assert_array_equal(first, second)
    histories = [json.loads((model.path / "history.json").read_text()) for model in (one, other)]
    assert histories[0] == histories[1]


def stop(examples: Path, module: Path, target: Path, parameters: dict) -> None:
    """Train until the third validation, which fails; the states after the first two epochs are saved."""
    file = module.parent / "stop"
    file.write_text("")
    with pytest.raises(ComponentError, match="stopped here"):
        train(examples, module, target, **parameters)
    file.unlink()


def train_until_killed(folder: Path, saves: int, examples: Path, module: Path) -> None:
    """Train, and kill this process after this number of checkpoints; call it in a new process."""

    def kill() -> None:
        while max(map(number_of, folder.glob("kept/*/ckpt-*.index")), default=0) < saves:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    train(examples, module, folder / "out", checkpoints=str(folder / "kept"), checkpoint_s=0, **PARAMETERS)


def number_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.rpartition("-")[2])
