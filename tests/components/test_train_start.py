"""Test training that starts from the weights of an earlier model."""

import json
import logging
import re
import shutil

import numpy as np
import pytest

from tests.components.train_modules import SMALL, write
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.components.train.warm_start import find_loss_increase
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import store_model

KERAS_2 = SMALL.replace("keras", "tf_keras")
SGD, STILL = "keras.optimizers.SGD(0.1)", "keras.optimizers.SGD(0.0)"  # what the second saves is what it began with


@pytest.fixture(scope="module")
def first(tmp_path_factory, digits_examples):
    """A model of two epochs, and its module."""
    folder = tmp_path_factory.mktemp("first")
    module = write(folder / "m.py", SMALL)
    return train(digits_examples, module, folder / "trained", epochs=2, seed=1)["trained"], module


@pytest.mark.parametrize("text", [SMALL, pytest.param(KERAS_2, marks=pytest.mark.nightly)], ids=["keras 3", "keras 2"])
def test_training_starts_from_the_given_weights_and_the_card_has_their_metrics(
    tmp_path, digits_examples, first, text, caplog
):
    start = first[0]
    if text is KERAS_2:
        start = train(digits_examples, write(tmp_path / "2.py", text), tmp_path / "2", epochs=2, seed=1)["trained"]
    still = text.replace("momentum=0.9", "momentum=1.0").replace("SGD(0.1)", "SGD(0.0)")
    module = write(tmp_path / "m.py", still)
    with caplog.at_level(logging.WARNING, "tfopt"):
        same = train(digits_examples, module, tmp_path / "out", epochs=1, seed=7, start=start)["trained"]
    for one, other in zip(weights(same), weights(start), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "norm: other momentum (0.9, now 1.0)" in caplog.text
    card = KerasModel.open(same.path).card.facts
    assert card["start"] == {"name": "trained", "digest": start.digest, "metrics": card["start"]["metrics"]}
    for name in ("val_loss", "val_accuracy"):
        assert card["start"]["metrics"][name] == pytest.approx(start.metadata["metrics"][name], rel=1e-4)
    assert (card["parent"], card["lineage"]) == (None, [])


@pytest.fixture(scope="module")
def destination(tmp_path_factory, first) -> str:
    """A destination whose model is ``first``."""
    folder = tmp_path_factory.mktemp("pushed")
    store_model(folder, first[0])
    return str(folder)


def test_the_model_in_the_destination_is_the_start_and_an_epoch_improves_on_it(
    tmp_path, digits_examples, first, destination, caplog
):
    start, module = first
    warm = train(digits_examples, module, tmp_path / "warm", epochs=1, destination=destination)["trained"]
    assert KerasModel.open(warm.path).card.facts["start"]["digest"] == start.digest
    assert warm.metadata["metrics"]["val_loss"] < start.metadata["metrics"]["val_loss"]
    assert "better than the start" not in caplog.text


@pytest.mark.nightly
def test_a_start_that_no_epoch_improves_is_reported(tmp_path, digits_examples, first, caplog):
    wild = write(tmp_path / "wild.py", SMALL.replace("SGD(0.1)", "SGD(5.0)"))
    train(digits_examples, wild, tmp_path / "wild", epochs=1, start=first[0])
    assert "no epoch was better than the start, whose val_loss is" in caplog.text


def test_a_loss_is_worse_if_it_rose_by_more_than_a_fraction(tmp_path):
    def message(before: float | None, today: float | None, least: float = 0.1) -> list[str]:
        metrics = {} if before is None else {"val_loss": before}
        (tmp_path / "model_card.json").write_text(json.dumps({"metrics": metrics}))
        return find_loss_increase(KerasModel(tmp_path), {} if today is None else {"val_loss": today}, least)

    assert message(0.5, 0.5, 0.0) == message(0.5, 0.549) == message(20.0, 21.9) == message(-2.0, -1.81) == []
    assert message(0.5, 0.551) == ["its val_loss, 0.5 when it was trained and 0.551 now"]
    assert message(-2.0, -1.79) and message(0.5, None) and message(None, 0.5)


LAYERS = """layers.Normalization(mean=MEAN, variance=4.0, axis=None, name="setting")(
        adapted(layers.Normalization(axis=None, name="scale"), [MEAN - 2, MEAN + 2])(features["image"]))"""
ADAPTED = """
def adapted(layer, numbers):
    layer.adapt(keras.ops.convert_to_numpy(numbers))
    return layer
"""


@pytest.mark.nightly
def test_preprocessing_layers_are_adapted_to_the_new_examples(tmp_path, digits_examples, destination, caplog):
    """Test that new means are used, and that weights trained with the old ones cause a warning.

    The first training ignores the model in the destination, because its warm start is off.
    """
    text = SMALL.replace('layers.Rescaling(1 / 16, name="scale")(features["image"])', LAYERS) + ADAPTED
    module = write(tmp_path / "m.py", text.replace("MEAN", "5.0"))
    cold = {"destination": destination, "warm_start": False}
    start = train(digits_examples, module, tmp_path / "start", epochs=1, **cold)["trained"]
    assert "start" not in KerasModel.open(start.path).card.facts
    module.write_text(text.replace("MEAN", "6.0").replace(SGD, STILL))
    with caplog.at_level(logging.WARNING, "tfopt"):
        trained = train(digits_examples, module, tmp_path / "out", epochs=1, start=start)["trained"]
    assert "setting: other mean (5.0, now 6.0)" in caplog.text
    assert "has another scale now" in caplog.text
    for name in ("setting", "scale"):
        assert float(np.ravel(keras_models.load(trained).get_layer(name).mean)[0]) == pytest.approx(6.0)
    kernels = [keras_models.load(model).get_layer("digit").get_weights()[0] for model in (start, trained)]
    np.testing.assert_array_equal(*kernels)


OTHERS = {
    "a wider layer": ("Dense(10", "Dense(11",
        "layer 6 is Dense digit (64x10, 10)", "Dense digit (64x11, 11), as in the model of"),
    "another layer": ("layers.Dropout(0.1)", "layers.GaussianNoise(0.1)",
        "layer 5 is Dropout dropout", "GaussianNoise gaussian_noise, as"),
    "a layer more": ("layers.Dropout(0.1)(flow)", "layers.ReLU()(layers.Dropout(0.1)(flow))",
        "layer 6 is Dense digit", "ReLU re_lu, as"),
    "the other Keras": ("keras", "tf_keras", "a Keras 3 model", "Keras 2, as"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "received", "expected"), OTHERS.values(), ids=OTHERS)
def test_a_model_of_other_layers_is_refused(tmp_path, digits_examples, first, old, new, received, expected):
    module = write(tmp_path / "m.py", SMALL.replace(old, new))
    with pytest.raises(ComponentError, match=re.escape(received)) as refusal:
        train(digits_examples, module, tmp_path / "out", start=first[0])
    assert refusal.value.expected.startswith(expected)
    assert "leave start out" in refusal.value.fix
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_checkpoint_of_another_start_is_not_used(tmp_path, digits_examples, first, caplog):
    """Use a learning rate that diverges in the second epoch, so that the checkpoint of the first stays."""
    explodes = "keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([22], [0.05, 1e30]))"
    module = write(tmp_path / "m.py", SMALL.replace(SGD, explodes))
    other = KerasModel(shutil.copytree(first[0].path, tmp_path / "other"))
    (other.path / "note").write_text("another one")
    caplog.set_level(logging.INFO, "tfopt")
    for start, message in ((first[0], ""), (other, "is not used: other start\n"), (first[0], "resuming after epoch 1")):
        caplog.clear()
        with pytest.raises(ComponentError, match="the loss is"):
            parameters = {"checkpoints": str(tmp_path / "checkpoints"), "epochs": 3}
            train(digits_examples, module, tmp_path / "out", start=start, **parameters)
        assert message in caplog.text
        assert ("resuming" in caplog.text) == ("resuming" in message)


def weights(model) -> list[np.ndarray]:
    return [weight.numpy() for weight in keras_models.load(model).weights]
