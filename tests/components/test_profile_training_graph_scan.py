"""Test that `profile_training` finds loops and Python calls by line, and whether their rounds are independent."""

import numpy as np
import pytest

from tests.components.train_modules import write
from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.components.profile_training.graph_scan import scan_graphs
from tfopt.components.profile_training.trace_events import find_line
from tfopt.training.determinism import reproducible
from tfopt.training.training_setup import prepare_training
from tfopt.training.user_module import UserModule

LOOPS = """
import keras
import tensorflow as tf
from keras import layers

class Loops(layers.Layer):
    def call(self, x):
        x = tf.map_fn(lambda row: row * 2.0, x)
        x = tf.while_loop(lambda at, sums: at < 8, lambda at, sums: (at + 1, tf.tanh(sums)), [0, x])[1]
        columns = []
        for at in range(64):
            columns.append(x[:, at] * 2.0)
        x = tf.stack(columns, 1)
        for _ in range(32):
            x = tf.sin(x)
        return tf.ensure_shape(tf.py_function(lambda v: v, [x], tf.float32), x.shape)
    def compute_output_shape(self, shape):
        return shape

def build_model():
    x = layers.Input((64,), name="x")
    model = keras.Model(x, layers.Dense(1)(layers.LSTM(2)(layers.Reshape((64, 1))(Loops()(x)))))
    model.compile("sgd", "mse")
    return model
"""
# One function, called from a layer; the expected line is marked with a comment.
LAYER = """
import keras
import tensorflow as tf
from keras import layers

def body(x):
    count, rows = tf.shape(x)[0], tf.TensorArray(tf.float32, tf.shape(x)[0], clear_after_read=False)
BODY
    return tf.ensure_shape(x, [None, 64])

class Own(layers.Layer):
    def call(self, x):
        return body(x)
    def compute_output_shape(self, shape):
        return shape

def build_model():
    x = layers.Input((64,), name="x")
    model = keras.Model(x, layers.Dense(1)(Own()(x)))
    model.compile("sgd", "mse")
    return model
"""
WHILE = """
    def one(at, rows):
        return ROUND
    x = tf.while_loop(lambda at, rows: at < count, one, [0, rows])[1].stack()  # here
"""
ROUNDS = {
    "independent rows": ("at + 1, rows.write(at, tf.tanh(x[at]))", True),
    "a row that needs the previous one": ("at + 1, rows.write(at, x[at] + rows.read(tf.maximum(at - 1, 0)))", False),
    "a counter that depends on the data": (
        "at + tf.cast(tf.maximum(x[at, 0], 1.0), tf.int32), rows.write(at, x[at])",
        False,
    ),
}


def test_loops_and_python_calls_are_found_by_line_and_consecutive_layers_are_not(tmp_path):
    loops = scan(tmp_path, LOOPS)
    expected = [number for number, line in enumerate(LOOPS.splitlines(), 1) if "map_fn" in line or "while_loop" in line]
    assert [(loop.kind, loop.independent) for loop in loops] == [
        ("map_fn", True), ("while", False), ("unrolled", True), ("python", None),
    ]  # fmt: skip
    assert [loop.line for loop in loops[:2]] == expected
    assert loops[2].copies >= 64
    assert all("while" in name for loop in loops[:2] for name in loop.operations)
    assert len(loops[2].operations) >= 64
    assert {loop.where for loop in loops} == {"step"}


@pytest.mark.parametrize(("round", "independent"), ROUNDS.values(), ids=ROUNDS)
def test_rounds_are_independent_if_they_pass_only_a_counter_and_results(tmp_path, round, independent):
    (loop,) = scan(tmp_path, LAYER.replace("BODY", WHILE.replace("ROUND", round)))
    assert (loop.kind, loop.independent, loop.where) == ("while", independent, "step")
    assert loop.code.endswith("# here")


def test_operations_of_a_loop_count_per_round_and_gradients_are_not_forward(tmp_path):
    """A batch of 16 examples makes 16 rounds: most of the forward operations."""
    (loop,) = scan(tmp_path, LAYER.replace("BODY", WHILE.replace("ROUND", ROUNDS[next(iter(ROUNDS))][0])))
    assert 0.3 < loop.runs <= loop.forward < 1


def test_repeated_operations_outside_a_python_loop_are_not_a_loop(tmp_path):
    columns = ", ".join(f"x[:, {at}]" for at in range(64))
    assert scan(tmp_path, LAYER.replace("BODY", f"    x = tf.stack([{columns}], 1)")) == []


def test_find_line_finds_operations_and_those_inside_their_loops():
    lines = {"net/own/map/while": 8, "net/own/Tanh_5": 9}
    whole = "StatefulPartitionedCall/net/own"
    assert find_line(f"{whole}/map/while", lines) == 8
    assert find_line(f"{whole}/map/while/body/_15/net/own/map/while/add", lines) == 8
    assert find_line(f"{whole}/Tanh_5", lines) == find_line("net/own/Tanh_5", lines) == 9
    assert find_line(f"{whole}/Tanh_51", lines) == find_line("while/body/_1/Tanh_5", lines) == 0


def scan(folder, text: str) -> list[dict]:
    """Return the loops of a module whose model takes 64 numbers."""
    x = np.random.default_rng(0).random((300, 64)).astype(np.float32)
    write_examples(folder / "data" / "Split-train" / "data_tfrecord-0", {"x": x, "label": x[:, 0]})
    module = write(folder / "loops.py", text)
    settings = {"label": "label", "seed": 0, "precision": "module", "jit_compile": "off"}
    with reproducible(0):
        setup = prepare_training(UserModule(module), Examples(folder / "data"), **settings)
        source = setup.read_sources()["train"]
        return scan_graphs(setup.parts.model, source, source.first_batch(16), module)
