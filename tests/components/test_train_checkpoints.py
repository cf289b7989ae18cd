"""A training that is killed goes on where it was, and ends with the weights of one that was not."""

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
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models

STEPS = 22  # batches of 64 in 1,400 examples
PARAMETERS = {"epochs": 4, "patience": 2}
KERAS_2 = DIGITS.replace("keras", "tf_keras")
# The second epoch is worse than the first, so that early stopping has something to remember.
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
def test_a_killed_training_ends_with_the_weights_of_one_that_was_not(tmp_path, digits_examples, caplog, text):
    module = write(tmp_path / "module.py", text)
    kept = {"checkpoints": str(tmp_path / "kept"), "checkpoint_s": 0, **PARAMETERS}
    kill_when(tmp_path, 2 * STEPS + 7, digits_examples, module, kept)
    assert not (tmp_path / "out").exists()
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **kept)["trained"]
    assert "resuming after epoch 3, batch" in caplog.text
    whole = train(digits_examples, module, tmp_path / "whole", **{**kept, "checkpoints": str(tmp_path / "other")})
    assert_same(resumed, whole["trained"])
    assert not list((tmp_path / "kept").iterdir())


@pytest.fixture
def interrupted(tmp_path, digits_examples):
    """A module whose validation fails in the second epoch, once; the state after the first epochs is kept."""
    text = DIGITS.replace("def build_model", STOPS.replace("FILE", repr(str(tmp_path / "stop"))) + "\ndef build_model")
    module = write(tmp_path / "module.py", text.replace("keras.Model(image", "Stops(image"))
    (tmp_path / "stop").write_text("")
    kept = {"checkpoints": str(tmp_path / "kept"), "epochs": 4}
    with pytest.raises(ComponentError, match="stopped here"):
        train(digits_examples, module, tmp_path / "out", **kept)
    (tmp_path / "stop").unlink()
    return module, kept


def test_after_an_epoch_nothing_is_lost_and_a_torn_checkpoint_gives_way_to_the_one_before(
    tmp_path, digits_examples, interrupted, caplog
):
    module, kept = interrupted
    whole = train(digits_examples, module, tmp_path / "whole", epochs=4)["trained"]
    files = sorted(tmp_path.glob("kept/*/ckpt-*.data*"))
    assert len(files) == 2
    files[-1].write_bytes(files[-1].read_bytes()[:1000])
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **kept)["trained"]
    assert "is damaged and is not used" in caplog.text
    assert "resuming after epoch 1, from" in caplog.text
    assert_same(resumed, whole)


def test_a_diverging_training_keeps_its_last_good_state_for_this_model_only(
    tmp_path, digits_examples, caplog, monkeypatch
):
    """The learning rate explodes in the second epoch. The module's model depends on the environment too."""
    explodes = "keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([22], [0.05, 1e30]))"
    text = DIGITS.replace("keras.optimizers.Adam(0.005)", explodes).replace("import keras\n", "import keras, os\n", 1)
    module = write(tmp_path / "module.py", text.replace("Conv2D(8", "Conv2D(int(os.environ.get('WIDTH', 8))"))
    kept = {"checkpoints": str(tmp_path / "kept"), "epochs": 3}
    with pytest.raises(ComponentError, match=r"epoch 2, batch \d+") as refusal:
        train(digits_examples, module, tmp_path / "out", **kept)
    assert f"the state after epoch 1 is saved in {tmp_path / 'kept'}" in refusal.value.fix
    assert len(list(tmp_path.glob("kept/*/ckpt-1.index"))) == 1

    monkeypatch.setenv("WIDTH", "4")
    with pytest.raises(ComponentError, match="a checkpoint of the same model"):
        train(digits_examples, module, tmp_path / "out", **kept)

    other = write(tmp_path / "other.py", DIGITS)
    train(digits_examples, other, tmp_path / "out", checkpoints=kept["checkpoints"], epochs=1)
    assert "belongs to another training and is not used: other epochs, module" in caplog.text
    assert "resuming" not in caplog.text
    assert len(list(tmp_path.glob("kept/*"))) == 1


def test_a_folder_that_cannot_be_is_refused_before_anything_is_learnt(tmp_path, digits_examples):
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
    """Train in a process of its own, and kill it once it has made so many checkpoints."""
    words = [str(examples), str(module), str(folder / "out"), json.dumps(parameters)]
    child = subprocess.Popen([sys.executable, "-c", TRAIN, *words], stderr=subprocess.PIPE)
    while child.poll() is None:
        made = [int(file.stem.rpartition("-")[2]) for file in folder.glob("kept/*/ckpt-*.index")]
        if max(made, default=0) >= saves:
            child.kill()
        time.sleep(0.01)
    assert child.wait() == -9, child.stderr.read().decode()
    shutil.rmtree(folder / "out", ignore_errors=True)
