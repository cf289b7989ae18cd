"""Test that the size of a SavedModel leaves out an optimizer's state, which is found without TensorFlow."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tfopt.artifacts import Model
from tfopt.artifacts.optimizer_state import without_optimizer
from tfopt.artifacts.variables_file import read_index
from tfopt.components.benchmark.results import size_notes

PARAMETERS = 4 * (8 * 16 + 16 + 16 * 4 + 4)  # bytes of a network of two dense layers


def network_of_keras_2(folder: Path, optimizer) -> Path:
    """Save a compiled and trained model of Keras 2 as a SavedModel."""
    model = tf_keras.Sequential([tf_keras.layers.Dense(16, input_shape=(8,)), tf_keras.layers.Dense(4)])
    model.compile(optimizer, "mse")
    model.fit(np.ones((8, 8)), np.ones((8, 4)), verbose=0)
    model.save(folder)
    return folder


def network_of_tensorflow_1(folder: Path) -> Path:
    """Save all variables of a trained graph, which Adam adds slots to."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], "x")
        kernel = tf.compat.v1.get_variable("kernel", [8, 4])
        y = tf.matmul(x, kernel)
        step = tf.compat.v1.train.AdamOptimizer().minimize(tf.reduce_mean(y**2))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step, {x: np.ones((2, 8))})
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})
    return folder


@pytest.mark.parametrize("kind", ["legacy", "new", "tensorflow 1"])
def test_the_size_is_that_without_the_slots_of_the_optimizer(kind, tmp_path):
    if kind == "tensorflow 1":
        folder, needed = network_of_tensorflow_1(tmp_path / "model"), 4 * 8 * 4
    else:
        optimizer = tf_keras.optimizers.legacy.Adam() if kind == "legacy" else tf_keras.optimizers.Adam()
        folder, needed = network_of_keras_2(tmp_path / "model", optimizer), PARAMETERS
    model = Model(folder)
    on_disk = sum(file.stat().st_size for file in model.payload())
    assert 2 * needed <= on_disk - model.sizes()["raw"] < 2 * needed + 64
    assert size_notes(model, model.sizes())[0].endswith("are the optimizer's state, which the size leaves out")


def test_the_index_is_that_of_tensorflow(tmp_path):
    """Keys with common prefixes fill several blocks."""
    module = tf.Module()
    module.weights = [tf.Variable(np.full(number + 1, number, np.float32)) for number in range(600)]
    tf.saved_model.save(module, str(tmp_path / "model"))
    prefix = tmp_path / "model/variables/variables"
    reader = tf.train.load_checkpoint(str(prefix))
    stored = {one.key: one for one in read_index(prefix.with_suffix(".index"))}
    assert stored.keys() == reader.get_variable_to_shape_map().keys()
    data = prefix.with_suffix(".data-00000-of-00001").read_bytes()
    for key, one in stored.items():
        if key.endswith("VARIABLE_VALUE"):
            values = np.frombuffer(data[one.offset : one.offset + one.size], np.float32)
            assert values.tolist() == reader.get_tensor(key).tolist()


def test_what_stays_are_the_bytes_of_the_other_variables(tmp_path):
    folder = network_of_keras_2(tmp_path / "model", tf_keras.optimizers.legacy.Adam()) / "variables"
    data = folder / "variables.data-00000-of-00001"
    remaining = b"".join(
        data.read_bytes()[one.offset : one.offset + one.size]
        for one in sorted(read_index(folder / "variables.index"), key=lambda one: one.offset)
        if "SLOT" not in one.key and not one.key.startswith("optimizer/")
    )
    with without_optimizer(data) as copy:
        assert copy.read_bytes() == remaining


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    return network_of_keras_2(tmp_path_factory.mktemp("network") / "model", "adam")


NIGHTLY = [pytest.param(damage, marks=pytest.mark.nightly) for damage in ("missing", "truncated", "other length")]


@pytest.mark.parametrize("damage", ["noise", "short data", *NIGHTLY])
def test_a_damaged_index_leaves_the_size_of_the_file(damage, network, tmp_path):
    folder = Path(shutil.copytree(network / "variables", tmp_path / "variables"))
    index, data = folder / "variables.index", folder / "variables.data-00000-of-00001"
    content = index.read_bytes()
    index.unlink()
    if damage == "short data":
        data.write_bytes(data.read_bytes()[:100])
        index.write_bytes(content)
    elif damage != "missing":
        half = content[: len(content) // 2]
        damaged = {"truncated": half, "noise": b"\xff" * len(content), "other length": half + content[-48:]}
        index.write_bytes(damaged[damage])
    with without_optimizer(data) as same:
        assert same == data
