"""Test that recurrent networks, whose cells are loops, pass through the components that rewrite graphs."""

import numpy as np
import openvino
import pytest

from tests.conftest import write_examples
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model
from tfopt.components.cast_precision.component import cast_precision
from tfopt.components.compile_xla.component import compile_xla
from tfopt.components.export_openvino.component import export_openvino
from tfopt.components.export_openvino.openvino_graph import int8_layers
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.components.quantize_graph.component import quantize_graph

KINDS = {
    "lstm by default": lambda layers: layers.LSTM(96),
    "lstm by parts": lambda layers: layers.LSTM(96, implementation=1, recurrent_activation="hard_sigmoid"),
    "gru by parts": lambda layers: layers.GRU(96, implementation=1, reset_after=False),
    "bidirectional": lambda layers: layers.Bidirectional(layers.LSTM(48, implementation=1)),
    "convolutional": lambda layers: (
        lambda x: layers.Flatten()(layers.ConvLSTM1D(16, 3, padding="same")(layers.Reshape((10, 4, 4))(x)))
    ),
}


NIGHTLY = {"lstm by default", "gru by parts", "bidirectional", "convolutional"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[pytest.mark.nightly] if kind in NIGHTLY else []) for kind in KINDS],
)
def model(request, tmp_path_factory):
    """Return a Keras 2 model of tokens: an embedding, a convolution, a recurrent layer, and a dense one."""
    import tf_keras

    layers = tf_keras.layers
    tf_keras.utils.set_random_seed(0)
    tokens = tf_keras.Input((12,), dtype="int32", name="tokens")
    steps = layers.Conv1D(16, 3, activation="relu")(layers.Embedding(40, 16)(tokens))
    outputs = layers.Dense(4, activation="softmax")(KINDS[request.param](layers)(steps))
    file = tmp_path_factory.mktemp("recurrent") / "model.h5"
    tf_keras.Model(tokens, outputs).save(file)
    return Model(file)


def outputs(model):
    tokens = np.random.default_rng(0).integers(0, 40, (8, 12)).astype(np.int32)
    with runtimes.load(model) as runtime:
        (values,) = runtime.run({"tokens": tokens}).values()
    return values


def test_optimized_networks_are_not_larger_than_their_parents(model, tmp_path):
    optimized = optimize_graph(model, tmp_path / "optimized")["optimized"]
    np.testing.assert_allclose(outputs(optimized), outputs(model), atol=1e-5)
    weights = 4 * sum(weight.size for weight in keras_models.load(model).get_weights())
    assert weights < optimized.sizes()["raw"] < model.sizes()["raw"]


def test_lists_that_loops_read_stay_in_float32(model, tmp_path):
    cast = cast_precision(model, tmp_path / "cast")["cast"]
    np.testing.assert_allclose(outputs(cast), outputs(model), atol=0.01)
    assert cast.card.facts["report"]["cast"] > 2


@pytest.mark.nightly  # daily: test_compile_xla.py
def test_loops_are_compiled_next_to_the_loops_of_the_parent(model, tmp_path):
    compiled = compile_xla(model, tmp_path / "compiled", batch_sizes=["1"], warm_up=False)["compiled"]
    np.testing.assert_allclose(outputs(compiled), outputs(model), atol=1e-5)


def test_openvino_computes_the_layers_behind_a_loop_in_8_bits(model, tmp_path):
    generator = np.random.default_rng(0)
    for split in ("train", "eval"):
        columns = {"tokens": generator.integers(0, 40, (60, 12)), "label": generator.integers(0, 4, 60)}
        write_examples(tmp_path / "examples" / f"Split-{split}" / "a", columns)
    examples = Examples(tmp_path / "examples")
    exported = export_openvino(model, tmp_path / "out", examples, precision="int8", calibration_count=60)["exported"]
    (output,) = exported.card.facts["verified"]["outputs"].values()
    assert output["correlation"] > 0.99
    graph = openvino.Core().read_model(str(exported.openvino))
    assert len(int8_layers(graph)) >= 1  # the loop itself stays in float


@pytest.mark.parametrize("library", [pytest.param("keras", marks=pytest.mark.nightly), "tf_keras"])
def test_products_of_unrolled_steps_are_computed_in_8_bits(library, tmp_path):
    keras = pytest.importorskip(library)
    keras.utils.set_random_seed(0)
    x = keras.Input((3, 5), name="x")
    keras.Model(x, keras.layers.Dense(3)(keras.layers.GRU(8, unroll=True)(x))).save(tmp_path / "model.keras")
    data = np.random.default_rng(0).normal(size=(60, 3, 5)).astype(np.float32)
    write_examples(tmp_path / "examples" / "Split-train" / "a", {"x": data, "label": np.zeros(60, np.int64)})
    parent = Model(tmp_path / "model.keras")
    quantized = quantize_graph(parent, Examples(tmp_path / "examples"), tmp_path / "quantized")["quantized"]
    with runtimes.load(parent) as old, runtimes.load(quantized) as new:
        ((expected,), (received,)) = (runtime.run({"x": data}).values() for runtime in (old, new))
    assert 0 < np.abs(received - expected).max() < 0.1 * np.ptp(expected)
