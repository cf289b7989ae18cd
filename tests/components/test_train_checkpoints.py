"""Test that a killed training is resumed, and ends with the weights of one that was not killed."""

import json
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import DIGITS, STOPS, write
from tfopt import keras_models
from tfopt.artifacts import KerasModel, storage
from tfopt.components.train.component import train
from tfopt.errors import ComponentError

STEPS = 22  # batches of 64 in 1,400 examples
PARAMETERS = {"epochs": 4, "patience": 2}
KERAS_2 = DIGITS.replace("keras", "tf_keras")
# The second epoch is worse than the first, so that early stopping has a state to restore.
WORSE = "keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([22, 44], [0.05, 0.3, 0.02]), 0.9)"
TRAIN = """
import json, sys
from tfopt.components.train.component import train
train(*sys.argv[1:4], **json.loads(sys.argv[4]))
"""


@pytest.mark.parametrize(
    "text",
    [
        DIGITS.replace("keras.optimizers.Adam(0.005)", WORSE),
        pytest.param(KERAS_2, marks=pytest.mark.nightly),
        pytest.param(DIGITS, marks=pytest.mark.nightly),
    ],
    ids=["momentum, worse", "keras 2", "adam"],
)
def test_a_killed_training_ends_with_the_weights_of_an_uninterrupted_one(tmp_path, digits_examples, caplog, text):
    module = write(tmp_path / "module.py", text)
    parameters = {"checkpoints": str(tmp_path / "kept"), "checkpoint_s": 0, **PARAMETERS}
    kill_when(tmp_path, 2 * STEPS + 7, digits_examples, module, parameters)
    assert not (tmp_path / "out").exists()
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **parameters)["trained"]
    assert "resuming after epoch 3, batch" in caplog.text
    whole = train(digits_examples, module, tmp_path / "whole", **{**parameters, "checkpoints": str(tmp_path / "other")})
    assert_same(resumed, whole["trained"])
    assert not list((tmp_path / "kept").iterdir())


@pytest.fixture
def interrupted(tmp_path, digits_examples):
    """A module whose validation fails in the second epoch, once; the state after the first epoch is saved."""
    text = DIGITS.replace("def build_model", STOPS.replace("FILE", repr(str(tmp_path / "stop"))) + "\ndef build_model")
    module = write(tmp_path / "module.py", text.replace("keras.Model(image", "Stops(image"))
    (tmp_path / "stop").write_text("")
    parameters = {"checkpoints": str(tmp_path / "kept"), "epochs": 4}
    with pytest.raises(ComponentError, match="stopped here"):
        train(digits_examples, module, tmp_path / "out", **parameters)
    (tmp_path / "stop").unlink()
    return module, parameters


def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(tmp_path, digits_examples, interrupted, caplog):
    module, parameters = interrupted
    whole = train(digits_examples, module, tmp_path / "whole", epochs=4)["trained"]
    files = sorted(tmp_path.glob("kept/*/ckpt-*.data*"))
    assert len(files) == 2
    files[-1].write_bytes(files[-1].read_bytes()[:1000])
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **parameters)["trained"]
    assert "is damaged and is not used" in caplog.text
    assert "resuming after epoch 1, from" in caplog.text
    assert_same(resumed, whole)


def test_checkpoints_in_an_object_store_resume_a_training(tmp_path, digits_examples, interrupted, bucket, caplog):
    module, parameters = interrupted
    whole = train(digits_examples, module, tmp_path / "whole", epochs=4)["trained"]
    (tmp_path / "stop").write_text("")
    parameters["checkpoints"] = f"{bucket}/checkpoints"
    with pytest.raises(ComponentError, match="stopped here"):
        train(digits_examples, module, tmp_path / "out", **parameters)
    (tmp_path / "stop").unlink()
    assert len([file for file in storage.list_remote_files(bucket) if file.endswith(".index")]) == 2
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **parameters)["trained"]
    assert f"resuming after epoch 2, from the checkpoint in {bucket}/checkpoints/" in caplog.text
    assert_same(resumed, whole)
    assert storage.list_remote_files(bucket) == {}


def test_the_last_finite_state_of_a_diverging_training_is_saved_for_the_same_model_only(
    tmp_path, digits_examples, caplog, monkeypatch
):
    """The learning rate explodes in the second epoch. The module's model depends on the environment too."""
    explodes = "keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([22], [0.05, 1e30]))"
    text = DIGITS.replace("keras.optimizers.Adam(0.005)", explodes).replace("import keras\n", "import keras, os\n", 1)
    module = write(tmp_path / "module.py", text.replace("Conv2D(8", "Conv2D(int(os.environ.get('WIDTH', 8))"))
    parameters = {"checkpoints": str(tmp_path / "kept"), "epochs": 3}
    with pytest.raises(ComponentError, match=r"epoch 2, batch \d+") as refusal:
        train(digits_examples, module, tmp_path / "out", **parameters)
    assert f"the state after epoch 1 is saved in {tmp_path / 'kept'}" in refusal.value.fix
    assert len(list(tmp_path.glob("kept/*/ckpt-1.index"))) == 1

    monkeypatch.setenv("WIDTH", "4")
    with pytest.raises(ComponentError, match="a checkpoint of the same model"):
        train(digits_examples, module, tmp_path / "out", **parameters)

    other = write(tmp_path / "other.py", DIGITS)
    train(digits_examples, other, tmp_path / "out", checkpoints=parameters["checkpoints"], epochs=1)
    assert "belongs to another training and is not used: other epochs, module" in caplog.text
    assert "resuming" not in caplog.text
    assert len(list(tmp_path.glob("kept/*"))) == 1


def test_a_folder_that_cannot_be_created_is_refused_before_training(tmp_path, digits_examples):
    module = write(tmp_path / "module.py", DIGITS)
    with pytest.raises(ComponentError, match="a folder that can be written"):
        train(digits_examples, module, tmp_path / "out", checkpoints=str(module / "kept"))


def assert_same(one: KerasModel, other: KerasModel) -> None:
    weights = [[weight.numpy() for weight in keras_models.load(model).weights] for model in (one, other)]
    for first, second in zip(*weights, strict=True):
        np.testing.assert_array_equal(first, second)
    histories = [json.loads((model.path / "history.json").read_text()) for model in (one, other)]
    assert histories[0] == histories[1]


def kill_when(folder: Path, saves: int, examples: Path, module: Path, parameters: dict) -> None:
    """Train in another process, and kill it after this number of checkpoints."""
    arguments = [str(examples), str(module), str(folder / "out"), json.dumps(parameters)]
    child = subprocess.Popen([sys.executable, "-c", TRAIN, *arguments], stderr=subprocess.PIPE)
    while child.poll() is None:
        numbers = [int(file.stem.rpartition("-")[2]) for file in folder.glob("kept/*/ckpt-*.index")]
        if max(numbers, default=0) >= saves:
            child.kill()
        time.sleep(0.01)
    assert child.wait() == -9, child.stderr.read().decode()
    shutil.rmtree(folder / "out", ignore_errors=True)
