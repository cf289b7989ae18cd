"""Test that recurrent layers with an open batch size become LiteRT files that take one record a call."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.benchmark.component import benchmark
from tfopt.components.evaluate.component import evaluate
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.errors import ComponentError

LAYERS = {
    "tf_keras LSTM": ("tf_keras", lambda layers: layers.LSTM(8)),
    "tf_keras GRU by parts": ("tf_keras", lambda layers: layers.GRU(8, reset_after=False)),
    "tf_keras cell": ("tf_keras", lambda layers: layers.RNN(layers.LSTMCell(8))),
    "tf_keras distributed LSTM": (
        "tf_keras",
        lambda layers: lambda x: layers.TimeDistributed(layers.LSTM(8))(layers.Reshape((2, 3, 8))(x)),
    ),
    "keras LSTM": ("keras", lambda layers: layers.LSTM(8)),
    "keras bidirectional GRU": ("keras", lambda layers: layers.Bidirectional(layers.GRU(8))),
    "keras cells": ("keras", lambda layers: layers.RNN([layers.LSTMCell(4), layers.GRUCell(8)])),
    "keras convolutional LSTM": (
        "keras",
        lambda layers: lambda x: layers.ConvLSTM1D(4, 3, padding="same")(layers.Reshape((6, 4, 2))(x)),
    ),
}

UNMASKED = {"tf_keras distributed LSTM", "keras convolutional LSTM"}  # behind a Reshape
DAILY = {"keras LSTM"}


def save(folder, kind, steps=6):
    """Save a model of masked tokens; its outputs have a range near 1, as those of a trained one."""
    library, layer = LAYERS[kind]
    keras = pytest.importorskip(library)
    keras.utils.set_random_seed(0)
    tokens = keras.Input((steps,), dtype="int32", name="tokens")
    words = keras.layers.Embedding(20, 8, embeddings_initializer="normal", mask_zero=kind not in UNMASKED)(tokens)
    flow = layer(keras.layers)(words)
    model = keras.Model(
        tokens, keras.layers.Dense(3, activation="softmax", kernel_initializer="normal")(keras.layers.Flatten()(flow))
    )
    model.set_weights([weight * 20 if weight.ndim > 1 else weight for weight in model.get_weights()])
    model.save(folder / "model.keras")
    return KerasModel(folder / "model.keras")


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    generator = np.random.default_rng(0)
    for split, count in (("train", 60), ("eval", 40)):
        columns = {"tokens": generator.integers(0, 20, (count, 6)), "label": generator.integers(0, 3, count)}
        write_examples(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
    return Examples(folder)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in DAILY else [pytest.mark.nightly]) for kind in LAYERS],
)
def test_outputs_are_those_of_the_parent_in_every_call(kind, examples, tmp_path):
    model = save(tmp_path, kind)
    exported = export_tflite(model, tmp_path / "lite", examples)["exported"]
    assert exported.card.facts["batch_size"] == 1
    assert exported.card.facts["verified"]["outputs"]
    tokens = np.random.default_rng(1).integers(0, 20, (10, 6)).astype(np.int32)
    with runtimes.load(model) as parent, runtimes.load(exported) as child:
        (expected,) = parent.run({"tokens": tokens}).values()
        received = [next(iter(child.run({"tokens": row[None]}).values()))[0] for row in tokens]
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(received, expected, atol=1e-5)


def test_an_optimized_model_whose_loops_have_fewer_arguments_is_converted(examples, tmp_path):
    optimized = optimize_graph(save(tmp_path, "keras LSTM"), tmp_path / "optimized", examples)["optimized"]
    exported = export_tflite(optimized, tmp_path / "lite", examples)["exported"]
    assert exported.card.facts["batch_size"] == 1


@pytest.mark.nightly  # daily: test_evaluate.py has a fixed batch size
def test_such_a_file_is_evaluated_record_by_record(examples, tmp_path):
    model = save(tmp_path, "keras LSTM")
    exported = export_tflite(model, tmp_path / "lite", examples, precision="dynamic")["exported"]
    report = evaluate(model, [exported], examples, tmp_path / "evaluation", replicates=100)["evaluation"].read()
    assert report["models"][1]["error"] is None
    assert report["models"][1]["parity"]["agreement"] > 0.9


@pytest.mark.nightly
def test_such_a_file_is_measured_record_by_record(examples, tmp_path):
    model = save(tmp_path, "keras LSTM")
    exported = export_tflite(model, tmp_path / "lite", examples, precision="dynamic")["exported"]
    measured = benchmark(model, [exported], tmp_path / "benchmark", examples, batch_sizes=["1"], seconds=0.2, rounds=8)[
        "benchmark"
    ].read()
    assert measured["models"][1]["error"] is None


OTHERS = [pytest.param("tf_keras LSTM", name, marks=pytest.mark.nightly) for name in ("float16", "dynamic", "int4")]


@pytest.mark.parametrize(("kind", "other"), [("keras LSTM", "int4"), *OTHERS])
def test_integers_are_refused_with_the_reason_and_precisions_that_work(kind, other, examples, tmp_path):
    model = save(tmp_path, kind)
    with pytest.raises(ComponentError, match="loops over lists, as of recurrent layers") as error:
        export_tflite(model, tmp_path / "lite", examples, precision="int8")
    for precision in ("float16", "dynamic", "int4"):
        assert precision in error.value.fix
    export_tflite(model, tmp_path / other, examples, precision=other)
