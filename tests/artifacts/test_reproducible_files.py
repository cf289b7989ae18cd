"""Test that models written twice have the same bytes, and are what they were."""

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.components.model_writers import model_of
from tfopt import keras_models
from tfopt.artifacts.saved_model_proto import read_meta_graph

FEEDS = {"image": tf.ones((2, 8, 8, 3)), "word": tf.constant([["7"], ["b"]])}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Path]:
    return write_twice(tmp_path_factory.mktemp("twice"), "savers")


def write_twice(folder: Path, *words: object) -> tuple[Path, Path]:
    """Run `model_writers` in a fresh process and in a used one with other hashes, at the same time."""
    module = [sys.executable, "-m", "tests.components.model_writers"]
    calls = [
        ([*module, words[0], folder / "first", *words[1:]], "1"),
        ([*module, words[0], folder / "second", *words[1:], "--used"], "2"),
    ]
    processes = [
        subprocess.Popen(list(map(str, call)), env=os.environ | {"PYTHONHASHSEED": seed}, stderr=subprocess.DEVNULL)
        for call, seed in calls
    ]
    assert [process.wait() for process in processes] == [0, 0]
    return folder / "first", folder / "second"


def digests(folder: Path) -> dict[str, str]:
    files = [file for file in folder.glob("**/Format-*/**/*") if file.is_file()]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def test_two_processes_write_the_same_bytes(written):
    first, second = map(digests, written)
    written_by = {name.partition("/")[0] for name in first}
    assert written_by == {"keras", "tf_keras", "optimized", "dense", "compiled", "module"}
    assert first == second


def test_models_share_no_names_of_functions(written):
    names = [
        {function.signature.name for function in read_meta_graph(folder).graph_def.library.function}
        for folder in written[0].glob("**/Format-Serving")
        if folder.parent.name != "optimized"  # it has functions of its parent
    ]
    assert len(set.union(*names)) == sum(map(len, names)) > 20


def test_numbers_are_not_those_of_the_process_and_text_stays(written):
    text = str(read_meta_graph(written[0] / "keras" / "Format-Serving").graph_def)
    assert 'string_val: "100"' in text  # of the vocabulary
    assert not (written[0] / "keras" / "Format-Serving" / "fingerprint.pb").exists()


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_archives_have_no_dates_and_no_addresses(library, written):
    with zipfile.ZipFile(written[0] / library / "Format-Keras" / "model.keras") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        numbers = set(map(int, re.findall(rb'"shared_object_id": (\d+)', archive.read("config.json"))))
    assert max(numbers, default=0) < 10
    assert numbers or library == "tf_keras"


@pytest.mark.nightly
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_components_run_twice_write_the_same_bytes(library, digits_model, digits_examples, tmp_path):
    model = digits_model if library == "keras" else _in_keras_2(tmp_path / "model")
    first, second = map(
        digests,
        write_twice(tmp_path, "components", "--keras", library, "--model", model, "--examples", digits_examples),
    )
    assert len({name.partition("/")[0] for name in first}) == 14
    assert first == second


def _in_keras_2(folder: Path) -> Path:
    layers = tf_keras.layers
    tf_keras.utils.set_random_seed(0)
    image = tf_keras.Input((8, 8, 1), name="image")
    flow = layers.BatchNormalization(name="norm")(layers.Conv2D(8, 3, use_bias=False, name="conv")(image))
    flow = layers.Dense(10, activation="softmax", name="digit")(layers.Flatten(name="flat")(flow))
    keras_models.save(tf_keras.Model(image, flow, name="digits"), folder)
    return folder


@pytest.mark.parametrize(
    "library", [pytest.param(keras, id="keras"), pytest.param(tf_keras, marks=pytest.mark.nightly, id="tf_keras")]
)
def test_every_loader_gets_the_same_model(library, written):
    folder = written[0] / library.__name__
    expected = model_of(library)([FEEDS["image"], FEEDS["word"]])
    loaded = library.models.load_model(folder / "Format-Keras" / "model.keras")
    served = tf.saved_model.load(str(folder / "Format-Serving")).signatures["serving_default"]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # as TensorFlow Serving does
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(folder / "Format-Serving"))
        signature = graph.signature_def["serving_default"]
        feeds = {signature.inputs["image"].name: np.ones((2, 8, 8, 3)), signature.inputs["word"].name: [["7"], ["b"]]}
        in_session = session.run({name: signature.outputs[name].name for name in expected}, feeds)
    for results in (loaded([FEEDS["image"], FEEDS["word"]]), served(**FEEDS), in_session):
        for name, values in expected.items():
            np.testing.assert_allclose(np.asarray(results[name], "float32"), np.asarray(values, "float32"), atol=1e-6)
