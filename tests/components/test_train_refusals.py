"""Test the errors of `train`: three parts, and no files left."""

import re
import shutil

import numpy as np
import pytest

from tests.components.train_modules import DIGITS, FRUIT, TWO_BY_TWO, fruit, with_mean, write
from tests.conftest import cut_between_records, write_examples
from tfopt.artifacts import Examples
from tfopt.components.train.component import train
from tfopt.errors import ComponentError

LOSS = 'loss="sparse_categorical_crossentropy"'
SCALED = 'return {"image": layers.Rescaling(1 / 16, name="scale")(features["image"])}'
NAN_LOSS = "loss=lambda true, predicted: keras.ops.mean(predicted) * float('nan')"


@pytest.fixture
def refused(tmp_path, digits_examples):
    """Return a function that trains, matches the three parts of the error, and checks that no file was written."""

    def check(text, received, expected="", fix="", examples=digits_examples, **parameters):
        module = write(tmp_path / "user module.py", text)
        with pytest.raises(ComponentError) as caught:
            train(examples, module, tmp_path / "out" / "trained", **{"epochs": 2, **parameters})
        assert re.search(received, caught.value.received, re.DOTALL), caught.value.received
        assert re.search(expected, caught.value.expected), caught.value.expected
        assert re.search(fix, caught.value.fix), caught.value.fix
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())

    return check


# A change to the good module, and the three parts it gets.
CHANGES = {
    "raises at import": ("import keras\n", "import keras\n1 / 0\n",
        r'importing it raised.*user module.py", line 3.*ZeroDivisionError', "module that runs", "correct the line"),
    "exits": ("import keras\n", "import keras\nraise SystemExit(1)\n", r"line 3.*SystemExit", "", ""),
    "generator exit": ("import keras\n", "import keras\nraise GeneratorExit\n", r"line 3.*GeneratorExit", "", ""),
    "imports what is not there": ("import keras\n", "import keras\nimport not_there\n",
        r"line 3.*ModuleNotFoundError", "", "install not_there, or put everything into this one file"),
    "no Python": ("def build_model():", "def build_model(:",
        r"user module.py.*line 8.*SyntaxError", "a Python file", ""),
    "no build_model": ("def build_model():", "def build_modle():",
        "no function build_model", r"def build_model\(", "did you mean build_modle"),
    "build_model raises": ("    image = layers", "    image = 1 + '1'\n    image = layers",
        r'build_model\(\) raised\nTraceback.*user module.py", line 9, in build_model.*TypeError', "", ""),
    "no model": ("return model", "return model.summary", r"returned method", "compiled Keras model", "return model"),
    "not compiled": ("model.compile(", "lambda: model.compile(",
        "not compiled", "a compiled Keras model", r"model\.compile"),
    "inputs of another name": ('(8, 8, 1), name="image"', '(8, 8, 1), name="imagee"',
        r"preprocess\(\) returned image", "inputs imagee", "imagee"),
    "unknown feature": (SCALED, "return features['imagee']", r"line 6, in preprocess.*KeyError: 'imagee'", "", ""),
    "a number from preprocess": (SCALED, "return {'image': 3}",
        r"returned image: int", r"float32\[\?,8,8,1\]", "Keras layers"),
    "another shape from preprocess": (SCALED, "return {'image': layers.Flatten()(features['image'])}",
        r"image: float32\[\?,64\]", r"float32\[\?,8,8,1\]", "reshape"),
    "preprocess learns": (SCALED, "return layers.Conv2D(1, 1)(features['image'])",
        "weights that could be trained", "fixed before training", r"build_model\(\)"),
    "wrong shape": ("(8, 8, 1)", "(9, 9, 1)", r"image: float32\[\?,64\]", r"float32\[\?,9,9,1\]", ""),
    "class numbers for one-hot": (LOSS, 'loss="categorical_crossentropy"',
        "label 'label' has 1 value", "10, for the categorical", "sparse_categorical_crossentropy"),
    "would broadcast": (LOSS, 'loss="mse"', "label 'label' has 1 value", "10, for the mse of output 'digit'", "shape"),
    "more labels than classes": ("layers.Dense(10", "layers.Dense(9",
        "split 'train': label 'label' has values from 0 to 9", "values from 0 to 8", "as wide as there are classes"),
    "NaN loss": (LOSS, NAN_LOSS, "the loss is nan in epoch 1, batch 1", "a finite loss", "learning rate"),
    "diverges": ("keras.optimizers.Adam(0.005)", "keras.optimizers.SGD(1e30)",
        r"the loss is (nan|inf) in epoch 1, batch \d+", "a finite loss", ""),
    "unknown metric": ('metrics=["accuracy"]', 'metrics=["acuracy"]', "training: ValueError.*acuracy", "", "metrics"),
    "loss raises": (LOSS, "loss=lambda true, predicted: predicted.nothing",
        r"training with.*line \d+, in <lambda>.*nothing", "", ""),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "received", "expected", "fix"), CHANGES.values(), ids=CHANGES)
def test_modules_that_do_not_fit_are_refused(refused, old, new, received, expected, fix):
    assert old in DIGITS
    refused(DIGITS.replace(old, new), received, expected, fix)


def test_an_input_name_without_a_feature_is_refused(refused):
    text = DIGITS.replace("def preprocess", "def unused").replace('(8, 8, 1), name="image"', '(9, 8, 1), name="imagee"')
    refused(text, "no feature 'imagee'", "there are image: .*, label: ", "did you mean image")


def test_an_input_name_that_a_signature_would_change_is_refused_before_training(refused, tmp_path, caplog):
    folder = tmp_path / "examples"
    columns = {"my-image": np.zeros((8, 64), np.float32), "label": np.zeros((8, 1), np.int64)}
    for split in ("train", "eval"):
        write_examples(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
    text = DIGITS.replace("def preprocess", "def unused").replace('name="image"', 'name="my-image"')
    refused(text, "input 'my-image'", "a name of ASCII letters", "rename", Examples(folder))
    assert "epoch" not in caplog.text


def test_an_input_shape_that_the_feature_does_not_have_is_refused(refused):
    text = DIGITS.replace("def preprocess", "def unused").replace("(8, 8, 1)", "(8, 9, 1)")
    refused(text, "feature 'image' has 64 values", "72 values", "shape")


def test_a_model_without_known_inputs_is_refused(refused):
    text = """
import keras
def build_model():
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("adam", "mse")
    return model
"""
    refused(text, "without known inputs", "", "keras.Input")


def test_the_label_as_an_input_is_refused(refused):
    text = DIGITS.replace("def preprocess", "def unused")
    refused(text, "takes 'image', the label, as an input", label="image")


def test_a_missing_label_is_refused(refused):
    refused(DIGITS, "no feature 'lable'", "features image, label", "did you mean label", label="lable")


def test_a_text_label_is_refused(refused, tmp_path):
    refused(FRUIT, "label 'colour' is text", "int64", "numbered from 0", examples=fruit(tmp_path), label="colour")


def test_a_float_label_for_classes_is_refused(refused, tmp_path):
    text = FRUIT.replace('"mse", metrics=["mae"]', '"sparse_categorical_crossentropy"')
    refused(
        text, "label 'price' is float32", "int64 class numbers", "regression", examples=fruit(tmp_path), label="price"
    )


def test_a_label_above_1_is_refused_for_binary_cross_entropy(refused, tmp_path):
    text = FRUIT.replace('"mse", metrics=["mae"]', '"binary_crossentropy"')
    refused(text, r"label 'price' has values from .* to 2\.", "from 0 to 1", examples=fruit(tmp_path), label="price")


def test_an_output_that_the_shared_label_does_not_fit_is_refused(refused, tmp_path):
    text = TWO_BY_TWO.replace("INPUTS", "[image, mean]").replace(
        "OUTPUTS", "[main, keras.layers.Dense(2, name='odd')(flow)]"
    )
    text = text.replace("LOSS", "'sparse_categorical_crossentropy'").replace("WEIGHTS", "None")
    refused(text, "has values from 0 to 9", "from 0 to 1, .* of output 'odd'", examples=with_mean(tmp_path))


@pytest.mark.parametrize("split", ["train", "eval"])
def test_a_missing_split_is_refused(refused, tmp_path, digits_examples, split):
    shutil.copytree(digits_examples, tmp_path / "examples")
    shutil.rmtree(tmp_path / "examples" / f"Split-{split}")
    refused(DIGITS, f"split '{split}' missing", "one of its splits", examples=tmp_path / "examples")


def test_files_without_records_are_refused(refused, tmp_path):
    for split in ("train", "eval"):
        write_examples(
            tmp_path / "none" / f"Split-{split}" / "a", {"image": np.ones((0, 64)), "label": np.ones(0, int)}
        )
    refused(DIGITS, "no records", "at least one", examples=tmp_path / "none")


def test_a_truncated_file_is_refused(refused, tmp_path, digits_examples):
    shutil.copytree(digits_examples, tmp_path / "examples")
    file = tmp_path / "examples" / "Split-train" / "data_tfrecord-00001-of-00002.gz"
    file.write_bytes(file.read_bytes()[:-500])
    refused(DIGITS, "data_tfrecord-00001-of-00002.gz", "TFRecord", examples=tmp_path / "examples")


def test_a_file_cut_between_two_records_is_refused(refused, tmp_path, digits_examples):
    shutil.copytree(digits_examples, tmp_path / "examples")
    cut_between_records(tmp_path / "examples" / "Split-train" / "data_tfrecord-00001-of-00002.gz")
    refused(DIGITS, "00001-of-00002.gz: damaged", "a complete TFRecord", "again", examples=tmp_path / "examples")


def test_nan_in_a_feature_is_refused(refused, tmp_path):
    for split in ("train", "eval"):
        images = np.ones((30, 64))
        images[3:5, 7] = np.nan
        write_examples(tmp_path / "nan" / f"Split-{split}" / "a", {"image": images, "label": np.arange(30) % 10})
    refused(
        DIGITS,
        "split 'train': feature 'image' is NaN or infinite in 2 of 30",
        "finite",
        "prepar",
        examples=tmp_path / "nan",
    )


def test_nan_in_a_weight_is_refused_if_the_loss_is_finite(refused):
    """A ReLU takes NaN for 0, so the loss stays finite."""
    poison = "[w.assign(w * float('nan')) for w in model.weights if 'moving_mean' in w.path]"
    text = DIGITS.replace("    return model", f"    {poison}\n    return model")
    refused(text, "8 NaN in weight batch_normalization/moving_mean", "finite weights", "train it again", epochs=1)


def test_an_own_layer_that_is_not_registered_is_refused(refused):
    layer = "class Doubled(layers.Layer):\n    def call(self, inputs):\n        return inputs * 2\n\n"
    text = DIGITS.replace("def build_model", layer + "def build_model").replace("layers.ReLU()(", "Doubled()(")
    refused(text, "Could not locate class 'Doubled'", "can load", "not registered", epochs=1)


def test_a_missing_module_is_refused(tmp_path, digits_examples):
    with pytest.raises(ComponentError, match="no such file"):
        train(digits_examples, tmp_path / "nothing.py", tmp_path / "out")
