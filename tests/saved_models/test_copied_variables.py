"""Test reading SavedModels whose variables `tf.saved_model.save` copies: those of Keras 3 models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfopt.saved_models import saved_model


class KerasModule(tf.Module):
    """A module around a Keras 3 model."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.model = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4) for _ in range(layers))])

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")], autograph=False)
    def serve(self, x):
        return {"y": self.model(x)}


@pytest.mark.parametrize("layers", [1, 6])
def test_the_number_of_session_runs_does_not_grow_with_the_number_of_variables(layers, tmp_path, monkeypatch):
    """The first run after a change of the graph takes a time that grows with the graph."""
    module = KerasModule(layers)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    runs = []
    run = tf.compat.v1.Session.run
    monkeypatch.setattr(tf.compat.v1.Session, "run", lambda *all, **named: runs.append(all) or run(*all, **named))

    frozen = saved_model.read(tmp_path / "model")

    assert len(runs) == 5  # restore, initialize, look at the variables, copy them, read them
    stored = [tf.make_ndarray(node.attr["value"].tensor) for node in frozen.graph.node if node.op == "Const"]
    for weight in module.model.get_weights():
        assert any(array.shape == weight.shape and np.array_equal(array, weight) for array in stored)
