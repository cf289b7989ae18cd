"""Test operations that LiteRT and OpenVINO lack: slices that add axes, rolls and updates of constants, as others."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import OPENVINO, TFLITE, run, write_split
from tests.runtimes.formulas import saved
from tfopt import keras_models
from tfopt.artifacts import SavedModel
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.conversion.lacking_operations import has_any, replace_all
from tfopt.graph.frozen_model import Frozen
from tfopt.saved_models import saved_model

LACKING = ("StridedSlice", "Roll", "Abs", "Sign")
DRAW = np.random.default_rng(0)

SLICES: dict[str, Callable] = {
    "x[:, None]": lambda x: x[:, None],
    "x[None]": lambda x: x[None],
    "x[..., None]": lambda x: x[..., None],
    "x[:, None, :, None]": lambda x: x[:, None, :, None],
    "x[None, ..., None, 1:]": lambda x: x[None, ..., None, 1:],
    "x[:, None, 1]": lambda x: x[:, None, 1],
    "x[:, None, ::2]": lambda x: x[:, None, ::2],
    "x[1, None, ::2]": lambda x: x[1, None, ::2],
    "x[::-1, None, None, :-1]": lambda x: x[::-1, None, None, :-1],
    "x[:, :n, None]": lambda x: x[:, : tf.shape(x)[0], None],
    "x[..., 0, None]": lambda x: x[..., 0, None],
}
ROLLS: dict[str, Callable] = {
    "of one axis": lambda x: tf.roll(x, 1, 1),
    "backwards": lambda x: tf.roll(x, -2, 1),
    "over the end": lambda x: tf.roll(x, 7, 1),
    "of no place": lambda x: tf.roll(x, 0, 1),
    "of the last axis": lambda x: tf.roll(x, 1, -1),
    "of several axes": lambda x: tf.roll(x, [2, -1, 1], [1, 2, 1]),
}


def frozen(folder: Path, function: Callable, shape: list[int | None]) -> Frozen:
    """Return the frozen form of a function of one tensor."""
    model = saved(folder / "model", lambda x: {"y": function(x) * 1.0}, x=(shape, tf.float32))
    return saved_model.read(model, only="serving_default")


def outputs(model: Frozen, folder: Path, values: np.ndarray) -> np.ndarray:
    """Return what a frozen model returns."""
    saved_model.write(model, folder)
    return run(SavedModel(folder), {"x": values})["y"]


@pytest.mark.parametrize("expression", SLICES)
def test_a_slice_adds_no_axes(expression, tmp_path):
    before = frozen(tmp_path, SLICES[expression], [None, None, 4])
    assert has_any(before.graph, LACKING)
    after = replace_all(before, LACKING)
    assert not any(node.attr["new_axis_mask"].i for node in after.graph.node if node.op == "StridedSlice")
    assert any(node.op == "ExpandDims" for node in after.graph.node)
    for shape in ((3, 5, 4), (2, 2, 4)):
        values = DRAW.normal(size=shape).astype(np.float32)
        np.testing.assert_array_equal(outputs(after, tmp_path / f"{shape}", values), SLICES[expression](values))


def test_a_slice_of_everything_is_left_out(tmp_path):
    after = replace_all(frozen(tmp_path, SLICES["x[:, None, :, None]"], [None, None, 4]), LACKING)
    assert not any(node.op == "StridedSlice" for node in after.graph.node)


@pytest.mark.parametrize("case", ROLLS)
def test_a_roll_is_a_concatenation(case, tmp_path):
    after = replace_all(frozen(tmp_path, ROLLS[case], [None, 5, 3]), LACKING)
    assert not any(node.op == "Roll" for node in after.graph.node)
    values = DRAW.normal(size=(2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(outputs(after, tmp_path / "after", values), ROLLS[case](values))


def test_absolute_values_and_signs_of_int64_are_comparisons(tmp_path):
    def measure(x):
        return {"size": tf.abs(x), "sign": tf.sign(x), "float": tf.abs(tf.cast(x, tf.float32))}

    model = saved(tmp_path / "model", measure, x=([None], tf.int64))
    before = saved_model.read(model, only="serving_default")
    assert has_any(before.graph, LACKING)
    after = replace_all(before, LACKING)
    assert [node.op for node in after.graph.node if node.op in ("Abs", "Sign")] == ["Abs"]
    assert not has_any(after.graph, LACKING)
    values = np.array([-(2**40), -2, -1, 0, 1, 7, 2**62], np.int64)
    saved_model.write(after, tmp_path / "after")
    received = run(SavedModel(tmp_path / "after"), {"x": values})
    np.testing.assert_array_equal(received["size"], np.abs(values))
    np.testing.assert_array_equal(received["sign"], np.sign(values))


def test_rolls_of_open_sizes_and_operations_that_a_format_has_stay(tmp_path):
    rolled = frozen(tmp_path / "a", ROLLS["of one axis"], [None, None, 3])
    assert any(node.op == "Roll" for node in replace_all(rolled, LACKING).graph.node)
    sliced = frozen(tmp_path / "b", SLICES["x[:, None]"], [None, None, 4])
    assert not has_any(sliced.graph, ()) and not has_any(sliced.graph, ("Roll",))
    closed = saved(tmp_path / "c", lambda x: {"y": x[:, None] * x[:, 1:2, None]}, x=([None, 4], tf.float32))
    graph = read_meta_graph(closed).graph_def
    stored = graph.SerializeToString(deterministic=True)
    assert not has_any(graph, LACKING)  # LiteRT has slices with one open size
    assert graph.SerializeToString(deterministic=True) == stored


def mask_scores(scores, mask):
    """Mix rows as a masked attention does, and roll their columns."""
    products = tf.matmul(scores, scores, transpose_b=True)[:, None]
    shares = tf.nn.softmax(products + 9 * (tf.cast(mask[:, None, None, :], tf.float32) - 1))
    return {"mixed": tf.roll(shares @ scores[:, None, :, :], 1, 3)[:, 0]}


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_masks_of_open_lengths_are_converted_to_litert(precision, tmp_path):
    specs = {"scores": ([None, None, 4], tf.float32), "mask": ([None, None], tf.int32)}
    model = saved(tmp_path / "model", mask_scores, **specs)
    columns = {"scores": DRAW.normal(size=(60, 24)).astype(np.float32), "mask": DRAW.integers(0, 2, (60, 6))}
    examples = write_split(tmp_path / "ex", columns)
    TFLITE.component(model=model, examples=examples, exported=tmp_path / "out", precision=precision)
    facts = TFLITE.artifact(tmp_path / "out").card.facts
    assert facts["verified"]["outputs"]["mixed"]["correlation"] > 0.99
    for length in (6, 3) if precision == "float32" else ():
        scores, mask = DRAW.normal(size=(2, length, 4)).astype(np.float32), DRAW.integers(0, 2, (2, length))
        rows = {"scores": scores, "mask": mask.astype(np.int32)}
        received = run(TFLITE.artifact(tmp_path / "out"), rows)["mixed"]
        np.testing.assert_allclose(received, run(SavedModel(model), rows)["mixed"], rtol=1e-4, atol=1e-5)


@keras.saving.register_keras_serializable("tests")
class Borders(keras.layers.Layer):
    """Adds a constant that is written in parts, as masks of shifted windows are."""

    def call(self, values):
        """Return the values with the border's number added."""
        border = keras.ops.zeros((1, 4, 4, 1))
        border = keras.ops.slice_update(border, (0, 1, 1, 0), keras.ops.ones((1, 2, 2, 1)))
        return values + border


def test_updates_of_constants_are_converted_to_openvino(tmp_path):
    inputs = keras.Input((4, 4, 3), name="image")
    keras_models.save(keras.Model(inputs, Borders()(inputs)), tmp_path / "model")
    assert "XlaDynamicUpdateSlice" in str(read_meta_graph(SavedModel(tmp_path / "model").saved_model).graph_def)
    OPENVINO.component(model=tmp_path / "model", exported=tmp_path / "out")
    assert OPENVINO.artifact(tmp_path / "out").card.facts["verified"]["run"]
