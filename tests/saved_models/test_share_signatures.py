"""Test that signatures which compute the same are optimized, calibrated and compared once."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import write_split
from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.fold_batch_norm.fold import fold
from tfopt.components.quantize_graph.parameters import GraphQuantization
from tfopt.components.quantize_graph.quantize import quantize
from tfopt.graph_checks.comparison import equal_signatures
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.saved_models.saved_model import read, write
from tfopt.saved_models.signature_functions import share_signatures

ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Export a function twice, as Keras does, and one with other weights."""
    folder, kernel = tmp_path_factory.mktemp("model") / "model", np.random.default_rng(1).normal(size=(4, 3))

    def function(weights):
        constant, spec = tf.constant(weights, tf.float32), tf.TensorSpec([None, 4], name="x")
        return tf.function(lambda x: {"y": tf.nn.relu(x @ constant) + 1.0}, input_signature=[spec])

    signatures = {"serve": function(kernel), "serving_default": function(kernel), "other": function(kernel * 2)}
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    return folder


def test_equal_signatures_share_the_nodes_of_the_one_that_is_served(model, tmp_path):
    frozen = read(model)
    shared = share_signatures(frozen, "serving_default")
    assert equal_signatures(frozen, "serving_default") == {}
    assert equal_signatures(shared, "serving_default") == {"serve": "serving_default"}
    assert shared.signatures["serve"].outputs == frozen.signatures["serving_default"].outputs
    assert len(shared.graph.node) < len(frozen.graph.node)
    write(shared, tmp_path / "written")
    for key in frozen.signatures:
        before, after = (runtimes.load(SavedModel(path), signature=key) for path in (model, tmp_path / "written"))
        np.testing.assert_array_equal(before.run({"x": ROWS})["y"], after.run({"x": ROWS})["y"])


def test_a_model_with_state_is_not_changed(model):
    frozen = read(model)
    frozen.state = {"a node"}
    assert share_signatures(frozen, "serving_default") is frozen


def test_each_record_is_calibrated_on_once_for_equal_signatures(model, tmp_path, monkeypatch):
    calls, call = [], FrozenRuntime.call

    def count(runtime, arrays, **options):
        calls.append(set(runtime.outputs))
        return call(runtime, arrays, **options)

    monkeypatch.setattr(FrozenRuntime, "call", count)
    examples = write_split(tmp_path / "examples", {"x": ROWS})
    facts = quantize(SavedModel(model), tmp_path, Examples(examples), GraphQuantization())
    assert len(calls) == 2 * len(ROWS)  # for `other`, too
    assert len(facts["report"]["layers"]) == 2


def test_the_card_names_the_signature_that_is_compared(tmp_path):
    """Keras exports the model as two signatures, whose functions differ in names."""
    from keras import Sequential, layers

    keras_model = Sequential([layers.Input((4,), name="x"), layers.Dense(3), layers.BatchNormalization()])
    keras_model.export(str(tmp_path / "model"), verbose=False)
    (tmp_path / "folded").mkdir()
    facts = fold(SavedModel(tmp_path / "model"), tmp_path / "folded", None, None)
    assert facts["verified"]["not_compared"] == {"serve": "it computes the same as serving_default"}
    assert {name.partition("/")[0] for name in facts["verified"]["outputs"]} == {"serving_default"}
    assert set(read(tmp_path / "folded/Format-Serving").signatures) == {"serve", "serving_default"}
