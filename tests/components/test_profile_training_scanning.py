"""`profile_training`: loops and Python in the user's code are found by line, and whether they must be loops."""

import numpy as np
import pytest

from tests.components.train_modules import write
from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.components.profile_training.graph_scan import scan
from tfopt.components.profile_training.trace_events import line_of
from tfopt.training.determinism import reproducible
from tfopt.training.training_setup import prepare
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
# Each is one function, called from a layer; the line to be found is the one with the mark.
ONE = """
import keras
import tensorflow as tf
from keras import layers

def found(x):
    count, rows = tf.shape(x)[0], tf.TensorArray(tf.float32, tf.shape(x)[0], clear_after_read=False)
BODY
    return tf.ensure_shape(x, [None, 64])

class Own(layers.Layer):
    def call(self, x):
        return found(x)
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
    "rows that need nothing of each other": ("at + 1, rows.write(at, tf.tanh(x[at]))", True),
    "a row that needs the one before": ("at + 1, rows.write(at, x[at] + rows.read(tf.maximum(at - 1, 0)))", False),
    "a number that hangs on the data": (
        "at + tf.cast(tf.maximum(x[at, 0], 1.0), tf.int32), rows.write(at, x[at])",
        False,
    ),
}


def test_loops_and_python_are_found_by_line_and_layers_that_follow_each_other_are_none(tmp_path):
    found = scanned(tmp_path, LOOPS)
    lines = [number for number, line in enumerate(LOOPS.splitlines(), 1) if "map_fn" in line or "while_loop" in line]
    assert [(loop["kind"], loop["independent"]) for loop in found] == [
        ("map_fn", True), ("while", False), ("unrolled", True), ("python", None),
    ]  # fmt: skip
    assert [loop["line"] for loop in found[:2]] == lines
    assert found[2]["copies"] >= 64
    assert all("while" in name for loop in found[:2] for name in loop["operations"])
    assert len(found[2]["operations"]) >= 64
    assert {loop["where"] for loop in found} == {"step"}


@pytest.mark.parametrize(("round", "independent"), ROUNDS.values(), ids=ROUNDS)
def test_a_loop_whose_rounds_hand_on_more_than_a_number_and_a_result_is_one(tmp_path, round, independent):
    (loop,) = scanned(tmp_path, ONE.replace("BODY", WHILE.replace("ROUND", round)))
    assert (loop["kind"], loop["independent"], loop["where"]) == ("while", independent, "step")
    assert loop["code"].endswith("# here")


def test_a_loop_counts_for_as_many_operations_as_it_runs_and_gradients_are_not_forward(tmp_path):
    """Sixteen examples in a batch, so sixteen rounds: most of what runs forward."""
    (loop,) = scanned(tmp_path, ONE.replace("BODY", WHILE.replace("ROUND", ROUNDS[next(iter(ROUNDS))][0])))
    assert 0.3 < loop["runs"] <= loop["forward"] < 1


def test_the_same_operation_many_times_on_a_line_is_no_loop_of_python(tmp_path):
    columns = ", ".join(f"x[:, {at}]" for at in range(64))
    assert scanned(tmp_path, ONE.replace("BODY", f"    x = tf.stack([{columns}], 1)")) == []


def test_time_is_that_of_the_line_whose_operation_it_is_or_in_whose_loop():
    owner = {"net/own/map/while": 8, "net/own/Tanh_5": 9}
    whole = "StatefulPartitionedCall/net/own"
    assert line_of(f"{whole}/map/while", owner) == 8
    assert line_of(f"{whole}/map/while/body/_15/net/own/map/while/add", owner) == 8
    assert line_of(f"{whole}/Tanh_5", owner) == line_of("net/own/Tanh_5", owner) == 9
    assert line_of(f"{whole}/Tanh_51", owner) == line_of("while/body/_1/Tanh_5", owner) == 0


def scanned(folder, text: str) -> list[dict]:
    """What is found in a module whose model takes 64 numbers."""
    x = np.random.default_rng(0).random((300, 64)).astype(np.float32)
    write_examples(folder / "data" / "Split-train" / "data_tfrecord-0", {"x": x, "label": x[:, 0]})
    module = write(folder / "loops.py", text)
    how = {"label": "label", "seed": 0, "precision": "module", "jit_compile": "off"}
    with reproducible(0):
        made = prepare(UserModule(module), Examples(folder / "data"), **how)
        source = made.sources["train"]
        return scan(made.parts.model, source, source.one(16), module)
