"""Test the cut of graphs where text and records end: core(preprocessing(inputs)) equals the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfopt.errors import ComponentError
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.runtimes.preprocessed import PreprocessedRuntime
from tfopt.saved_models.saved_model import read
from tfopt.saved_models.text_cut import Cut, cut_text

KEY = "serving_default"
KERNEL = np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)
TEXTS = np.array([b"a", b"b", b"?"], object)


def frozen_model(folder: Path, serve: Any, tables: Any = ()) -> Any:
    """Save a function as a model, and return it frozen."""
    module = tf.Module()
    module.serve, module.tables = serve, tables
    tf.saved_model.save(module, str(folder), signatures={KEY: serve})
    return read(folder)


def cut(folder: Path, serve: Any, tables: Any = ()) -> tuple[Any, Cut]:
    """Save a function as a model; return it frozen, and cut."""
    frozen = frozen_model(folder, serve, tables)
    return frozen, cut_text(frozen, KEY)


def check_equal(frozen: Any, parts: Cut, batch: dict[str, Any]) -> list[str]:
    """Run the model and its parts on a batch; return the names of the core's inputs."""
    core = FrozenRuntime(parts.core, KEY)
    whole, both = FrozenRuntime(frozen, KEY), PreprocessedRuntime(FrozenRuntime(parts.preprocessing, KEY), core)
    assert list(both.inputs) == sorted(whole.inputs)
    for name, expected in whole.run(batch).items():
        np.testing.assert_allclose(both.run(batch)[name], expected, rtol=1e-6)
        assert np.ptp(expected) > 0
    assert all(spec.dtype != "string" for spec in core.inputs.values())
    return list(core.inputs)


def word_table() -> Any:
    initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 0], tf.int64))
    return tf.lookup.StaticHashTable(initializer, 1)


def test_input_of_numbers_goes_to_the_core_directly(tmp_path):
    table = word_table()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text"), tf.TensorSpec([None, 2], tf.float32, "x")])
    def serve(text: Any, x: Any) -> dict[str, Any]:
        return {"y": tf.matmul(x, KERNEL) + tf.gather(KERNEL, table.lookup(text))}

    frozen, parts = cut(tmp_path, serve, table)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert check_equal(frozen, parts, {"text": TEXTS, "x": x}) == ["LookupTableFindV2", "x"]
    assert list(parts.preprocessing.signatures[KEY].inputs) == ["text"]


def test_tensor_without_a_row_for_each_record_stays_in_the_preprocessing(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(text: Any) -> dict[str, Any]:
        lengths = tf.cast(tf.strings.length(text), tf.float32)[:, None]
        ones = tf.fill([tf.shape(text)[0], 1], 2.0)
        return {"y": tf.matmul(tf.concat([lengths, ones], 1), KERNEL)}

    frozen, parts = cut(tmp_path, serve)
    texts = np.array([b"abc", b"", b"four"], object)
    inputs = check_equal(frozen, parts, {"text": texts})
    shapes = [parts.core.signatures[KEY].inputs[name].shape for name in inputs]
    assert all(shape[0] is None for shape in shapes)


def test_text_in_a_branch_is_text(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x"), tf.TensorSpec([None], tf.string, "text")])
    def serve(x: Any, text: Any) -> dict[str, Any]:
        lengths = tf.cond(
            tf.reduce_any(tf.equal(text, "long")),
            lambda: tf.cast(tf.strings.length(text), tf.float32),
            lambda: tf.zeros_like(x),
        )
        return {"y": tf.linalg.matvec(tf.stack([x, lengths], 1), KERNEL[0])}

    frozen, parts = cut(tmp_path, serve)
    batch = {"x": np.array([1, 2, 3], np.float32), "text": np.array([b"long", b"b", b"cc"], object)}
    assert "x" in check_equal(frozen, parts, batch)  # the core has it itself, although the preprocessing needs it too
    assert not any("String" in node.op for node in parts.core.graph.node)
    assert not parts.core.graph.library.function


def test_branch_that_makes_text_of_numbers_is_text(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def serve(x: Any) -> dict[str, Any]:
        digits = tf.cond(
            tf.reduce_max(x) > 2,
            lambda: tf.cast(tf.strings.length(tf.strings.as_string(tf.cast(x, tf.int32))), tf.float32),
            lambda: tf.zeros_like(x),
        )
        return {"y": tf.linalg.matvec(tf.stack([x, digits], 1), KERNEL[0])}

    frozen, parts = cut(tmp_path, serve)
    check_equal(frozen, parts, {"x": np.array([1, 20, 300], np.float32)})
    assert not parts.core.graph.library.function


def test_elementwise_ops_on_prepared_numbers_go_to_the_preprocessing(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(text: Any) -> dict[str, Any]:
        lengths = (tf.cast(tf.strings.length(text), tf.float32) - 3.0) / 1000.0
        return {"y": tf.matmul(tf.stack([lengths, lengths], 1), KERNEL)}

    frozen, parts = cut(tmp_path, serve)
    check_equal(frozen, parts, {"text": np.array([b"a", b"bb", b"c" * 9], object)})
    assert {"Cast", "Sub", "RealDiv"} <= set(parts.ops)
    assert {node.op for node in parts.core.graph.node} <= {
        "Placeholder",
        "Const",
        "Pack",
        "MatMul",
        "Identity",
        "IdentityN",
    }


def test_output_of_text_is_refused(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"name": tf.strings.as_string(x), "y": x * 2}

    with pytest.raises(ComponentError, match="output name is text") as error:
        cut(tmp_path, serve)
    assert error.value.fix == "leave that output out of the model's signature"  # it has no other one


def test_at_takes_nodes_and_refuses_unknown_ones(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"y": tf.nn.relu(tf.matmul(x, KERNEL)) * 2}

    frozen = frozen_model(tmp_path, serve)
    node = next(node.name for node in frozen.graph.node if node.op == "MatMul")
    parts = cut_text(frozen, KEY, [node])
    assert check_equal(frozen, parts, {"x": np.eye(2, dtype=np.float32)}) == ["MatMul"]
    with pytest.raises(ComponentError, match="cut_at=MatMu"):
        cut_text(frozen, KEY, ["MatMu"])
