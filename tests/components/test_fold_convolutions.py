"""Test that the batch norm after each kind of convolution is folded and counted, in the Keras form and the graph."""

import numpy as np
import pytest

from tfopt import runtimes
from tfopt.artifacts import Model, SavedModel
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.components.inspect_model.component import inspect_model

RANKS = {1: (20, 8), 2: (10, 10, 8), 3: (6, 6, 6, 8)}
KINDS = {
    1: {
        "conv1d": lambda layers: layers.Conv1D(8, 3, padding="same"),
        "causal": lambda layers: layers.Conv1D(8, 3, padding="causal"),
        "dilated": lambda layers: layers.Conv1D(8, 3, padding="same", dilation_rate=2, use_bias=False),
        "separable1d": lambda layers: layers.SeparableConv1D(8, 3),
        "depthwise1d": lambda layers: layers.DepthwiseConv1D(3),
        "transposed1d": lambda layers: layers.Conv1DTranspose(8, 3),
        "dense": lambda layers: layers.Dense(8),
    },
    2: {
        "conv2d": lambda layers: layers.Conv2D(8, 3),
        "depthwise2d": lambda layers: layers.DepthwiseConv2D(3),
        "transposed2d": lambda layers: layers.Conv2DTranspose(8, 3, strides=2),
    },
    3: {"conv3d": lambda layers: layers.Conv3D(8, 3)},
}


@pytest.mark.nightly  # daily: the counts below, and test_batch_norm_positions.py
@pytest.mark.parametrize("library", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("rank", KINDS)
def test_the_norm_after_each_kind_is_folded_once_in_both_forms(rank, library, tmp_path):
    keras = pytest.importorskip(library)
    keras.utils.set_random_seed(0)
    x, generator, outputs = keras.Input(RANKS[rank], name="x"), np.random.default_rng(0), {}
    for kind, layer in KINDS[rank].items():
        norm = keras.layers.BatchNormalization(name=f"norm_{kind}")
        outputs[kind] = keras.layers.ReLU(name=f"out_{kind}")(norm(layer(keras.layers)(x)))
        norm.set_weights([generator.uniform(0.5, 1.5, weight.shape) for weight in norm.get_weights()])
    model, count = keras.Model(x, outputs), len(outputs)
    model.save(tmp_path / "model.keras")
    model.export(str(tmp_path / "saved"), **({} if library == "tf_keras" else {"verbose": False}))
    inputs = {"x": generator.normal(size=(3, *RANKS[rank])).astype(np.float32)}
    for source in (Model(tmp_path / "model.keras"), SavedModel(tmp_path / "saved")):
        folded = fold_batch_norm(source, tmp_path / f"folded {source.format}")["folded"]
        summary = f"{count} of {count} batch norms folded"
        assert folded.card.facts["report"]["summary"] == summary, folded.card.facts["report"]
        with runtimes.load(source) as parent, runtimes.load(folded) as child:
            expected, received = parent.run(inputs), child.run(inputs)
        assert len(expected) == count and received.keys() == expected.keys()
        for output, values in expected.items():
            np.testing.assert_allclose(received[output], values, atol=1e-4, err_msg=output)
        report = inspect_model(source, tmp_path / f"inspection {source.format}")["inspection"].read()
        counts = report["batch_norms"]
        assert (counts["found"], counts["foldable"]) == (count, count)


def behind_views(keras, x):
    layers = keras.layers
    values = layers.Dropout(0.5)(layers.Reshape((14, 8))(layers.Conv2D(8, (3, 1))(x)))
    values = layers.Conv1D(6, 3)(layers.ReLU()(layers.BatchNormalization()(values)))
    return layers.BatchNormalization()(layers.Flatten()(values))  # it has another scale for each value, and stays


def grouped(keras, x):
    layers = keras.layers
    return layers.BatchNormalization()(layers.Conv3D(8, (3, 1, 1), groups=2)(layers.Reshape((16, 1, 1, 4))(x)))


def for_each_time(keras, x):
    layers = keras.layers
    values = layers.TimeDistributed(layers.Dense(8))(layers.Reshape((16, 4))(x))
    return layers.TimeDistributed(layers.BatchNormalization())(values)


NETWORKS = [
    ("keras", behind_views, "1 of 2", "1 of 2"),
    ("keras", grouped, "1 of 1", "0 of 1"),
    pytest.param("tf_keras", behind_views, "1 of 2", "1 of 2", marks=pytest.mark.nightly),
    pytest.param("tf_keras", for_each_time, "0 of 1", "1 of 1", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("library", "network", "in_keras", "in_graph"), NETWORKS)
def test_the_inspection_counts_what_is_folded_in_the_same_form(library, network, in_keras, in_graph, tmp_path):
    keras = pytest.importorskip(library)
    keras.utils.set_random_seed(0)
    generator, x = np.random.default_rng(0), keras.Input((16, 1, 4), name="x")
    model = keras.Model(x, network(keras, x))
    for weight in model.weights:
        weight.assign(generator.uniform(0.5, 1.5, weight.shape))
    model.save(tmp_path / "model.keras")
    model.export(str(tmp_path / "saved"), **({} if library == "tf_keras" else {"verbose": False}))
    inputs = {"x": generator.normal(size=(3, 16, 1, 4)).astype(np.float32)}
    forms = {Model(tmp_path / "model.keras"): in_keras, SavedModel(tmp_path / "saved"): in_graph}
    for source, expected_count in forms.items():
        folded = fold_batch_norm(source, tmp_path / f"folded {source.format}")["folded"]
        summary = folded.card.facts["report"]["summary"].removeprefix("unchanged: ")
        assert summary == f"{expected_count} batch norms folded"
        with runtimes.load(source) as parent, runtimes.load(folded) as child:
            (expected,), (received,) = parent.run(inputs).values(), child.run(inputs).values()
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-4)
        report = inspect_model(source, tmp_path / f"inspection {source.format}")["inspection"].read()
        counts = report["batch_norms"]
        assert f"{counts['foldable']} of {counts['found']}" == expected_count
