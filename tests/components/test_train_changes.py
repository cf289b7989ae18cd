"""Test that a start is passed through if nothing changed, and which differences count as changes."""

import json
import logging
import shutil

import pytest

from tests.components.train_modules import SMALL, STOPS, write
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.train.component import train
from tfopt.components.train.parameters import Settings
from tfopt.components.train.warm_start import find_changes
from tfopt.errors import ComponentError

FACTS = {
    "splits": {"train": 1400, "eval": 397},
    "features": {
        "image": {"dtype": "float32", "shape": [8, 8, 1], "missing": 0, "min": 0, "max": 16, "mean": 4.9, "std": 6.0},
        "flat": {"dtype": "float32", "shape": [1], "missing": 0, "min": 5, "max": 5, "mean": 5.0, "std": 0.0},
        "colour": {"dtype": "string", "shape": [1], "missing": 0, "distinct": 2, "top": [["red", 900], ["blue", 897]]},
    },
    "label": "label",
    "label_counts": {"train": {"0": 700, "1": 700}, "eval": {"0": 200, "1": 197}},
    "classes": [],
}


@pytest.fixture(scope="module")
def trained_start(tmp_path_factory, digits_examples):
    """Examples with a manifest, a model trained on them, and its module."""
    folder = tmp_path_factory.mktemp("trained_start")
    shutil.copytree(digits_examples, folder / "examples")
    (folder / "examples" / "examples.json").write_text(json.dumps(FACTS))
    text = SMALL.replace("def build_model", STOPS.replace("FILE", repr(str(folder / "stop"))) + "\ndef build_model")
    module = write(folder / "m.py", text.replace("keras.Model(image", "Stops(image"))
    return train(folder / "examples", module, folder / "trained", epochs=2)["trained"], folder / "examples", module


def test_an_unchanged_start_is_passed_through_and_a_change_is_reported_and_trained(tmp_path, trained_start, caplog):
    start, examples, module = trained_start
    caplog.set_level(logging.INFO, "tfopt")
    same = train(examples, module, tmp_path / "same", epochs=2, start=start, min_change=0.1)["trained"]
    assert KerasModel.open(same.path).digest == start.digest
    assert KerasModel.open(same.path).card == start.card
    assert same.metadata["unchanged"] == 1
    assert "not trained: nothing changed" in caplog.text
    assert "epoch 1/" not in caplog.text
    other = train(examples, module, tmp_path / "other", epochs=1, start=same, min_change=0.1)["trained"]
    assert "training, because of changes: epochs=1" in caplog.text
    assert KerasModel.open(other.path).digest != start.digest


def test_examples_with_equal_statistics_and_other_labels_are_trained(tmp_path, trained_start, caplog):
    """Swap the labels of eval between images, which no statistic of a feature shows; stop the training as it begins."""
    from tests.conftest import write_examples
    from tfopt.artifacts.tensor_spec import TensorSpec
    from tfopt.data.batches import read_batches

    start, examples, module = trained_start
    shutil.copytree(examples, tmp_path / "examples")
    (file,) = Examples(tmp_path / "examples").split("eval")
    specs = {"image": TensorSpec("float32", (None, 8, 8, 1)), "label": TensorSpec("int64", (None, 1))}
    batch = next(read_batches([file], specs, batch_size=400))
    file.unlink()
    write_examples(file, {"image": batch["image"], "label": batch["label"][::-1]})
    caplog.set_level(logging.INFO, "tfopt")
    write(module.parent / "stop", "at the beginning")
    with pytest.raises(ComponentError, match="stopped at the beginning"):
        train(tmp_path / "examples", module, tmp_path / "out", epochs=2, start=start, min_change=0.2)
    (module.parent / "stop").unlink()
    assert "training, because of changes: its val_loss" in caplog.text


SETTINGS = Settings(epochs=2, min_change=0.1)
CHANGES = {
    "a little of each": (
        {
            **{"image": {"mean": 5.4, "std": 6.5, "missing": 150}, "splits": {"train": 1500, "eval": 400}},
            **{"colour": {"top": [["red", 1000], ["blue", 797]]}, "label_counts": {"train": {"0": 1000, "1": 797}}},
        },
        [],
    ),
    "a constant, a little": ({"flat": {"mean": 5.4}}, []),
    "a constant": ({"flat": {"mean": 5.6}}, ["feature flat: mean 5 became 5.6"]),
    "more": ({"splits": {"train": 1600, "eval": 400}}, ["1797 examples became 2000"]),
    "the mean": ({"image": {"mean": 5.6}}, ["feature image: mean 4.9 became 5.6"]),
    "the spread": ({"image": {"std": 5.3}}, ["feature image: std 6 became 5.3"]),
    "the shape": ({"image": {"shape": [64]}}, ["feature image: float32[8, 8, 1] became float32[64]"]),
    "missing": ({"image": {"missing": 200}}, ["feature image: its missing values"]),
    "words": ({"colour": {"top": [["red", 1100], ["blue", 697]]}}, ["feature colour: its most frequent words"]),
    "a feature": ({"size": FACTS["features"]["image"]}, ["feature size was added"]),
    "classes": ({"classes": ["a", "b"]}, ["the classes"]),
    "shares": ({"label_counts": {"train": {"0": 900, "1": 500}}}, ["the shares of the classes"]),
}


@pytest.mark.parametrize(("change", "changes"), CHANGES.values(), ids=CHANGES)
def test_each_change_is_found(tmp_path, trained_start, change, changes):
    start, _, module = trained_start
    today = json.loads(json.dumps(FACTS))
    for name, value in change.items():
        if name in FACTS:
            today[name] = value
        else:
            today["features"][name] = {**today["features"].get(name, {}), **value}
    (tmp_path / "examples" / "Split-train").mkdir(parents=True)
    (tmp_path / "examples" / "examples.json").write_text(json.dumps(today))
    assert find_changes(start, Examples(tmp_path / "examples"), module, None, SETTINGS) == changes


def test_missing_information_counts_as_changed(tmp_path, trained_start):
    start, examples, module = trained_start
    assert find_changes(start, Examples(examples), module, None, SETTINGS) == []
    assert find_changes(
        start, Examples(examples), write(tmp_path / "m.py", module.read_text() + "\n"), None, SETTINGS
    ) == ["the module"]
    assert find_changes(start, Examples(examples), module, start, SETTINGS) == ["the teacher"]
    stranger = KerasModel(tmp_path)
    assert find_changes(stranger, Examples(examples), module, None, SETTINGS) == [
        "the start has no record of its training"
    ]
    (tmp_path / "bare" / "Split-train").mkdir(parents=True)
    assert find_changes(start, Examples(tmp_path / "bare"), module, None, SETTINGS) == [
        "the examples: no examples.json shows how much"
    ]
