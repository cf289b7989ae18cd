"""Test each way to shrink a model on each kind of model, of both Keras versions."""

import importlib

import numpy as np
import pytest

from tfopt import keras_models
from tfopt.components.cluster.cluster_weights import find_kernels as cluster_kernels
from tfopt.components.cluster.cluster_weights import share
from tfopt.components.prune.channels.selection import remove_channels
from tfopt.components.prune.kernels import find_kernels
from tfopt.components.prune.masked_training import Masks
from tfopt.components.prune.parameters import Pattern, PruningSettings
from tfopt.components.quantize import quantize_aware
from tfopt.errors import ComponentError

KINDS = ("sequential", "functional", "nested", "subclassed", "two by two")
# Combinations that are refused, with the message; all others are supported.
REFUSED = {
    ("channels", "keras", "subclassed"): "own call",
    ("channels", "tf_keras", "subclassed"): "own call",
    ("quantize", "keras", "subclassed"): "a subclassed model",
    ("quantize", "tf_keras", "subclassed"): "a subclassed model",
    ("quantize", "tf_keras", "nested"): "nested models",
}
TABLE = [
    (way, library, kind, REFUSED.get((way, library, kind)))
    for way in ("prune", "channels", "cluster", "quantize")
    for library in ("keras", "tf_keras")
    for kind in KINDS
]


# Daily of Keras 2: what is refused, and the largest of the models.
NIGHTLY = [row for row in TABLE if row[1] == "tf_keras" and row[2] != "two by two" and not row[3]]
ROWS = [pytest.param(*row, marks=[pytest.mark.nightly] if row in NIGHTLY else []) for row in TABLE]


@pytest.mark.parametrize(("way", "library", "kind", "refused"), ROWS)
def test_a_model_is_shrunk_or_refused_with_the_reason(way, library, kind, refused):
    model = build_model(importlib.import_module(library), kind)
    records = [np.random.default_rng(1).normal(size=(5, 6)).astype("float32") for _ in inputs(model)]
    records = records if len(records) > 1 else records[0]
    before = outputs(model, records)
    if refused:
        with pytest.raises(ComponentError, match=refused):
            WAYS[way](model)
        return
    after = outputs(WAYS[way](model), records)
    assert [answer.shape for answer in after] == [answer.shape for answer in before]
    assert all(np.isfinite(answer).all() for answer in after)
    assert any(np.abs(new - old).max() > 1e-6 for new, old in zip(after, before, strict=True))


def build_model(keras, kind):
    """Build a model with at least two kernels of 48 weights or more."""
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    left, right = keras.layers.Input((6,), name="left"), keras.layers.Input((6,), name="right")
    if kind == "sequential":
        return keras.Sequential([left, dense(16, "relu"), dense(8, name="answer")])
    if kind == "functional":
        flow = dense(16, "relu")(left)
        return keras.Model(left, dense(8, name="answer")(keras.layers.Concatenate()([flow, dense(8, "relu")(flow)])))
    if kind == "nested":
        inner = keras.Sequential([keras.layers.Input((6,)), dense(16, "relu"), dense(6)], name="inner")
        return keras.Model(left, dense(8, name="answer")(inner(inner(left))))
    if kind == "two by two":
        hidden = [dense(16, "relu")(left), dense(16, "relu")(right)]
        flow = dense(16, "relu")(keras.layers.Concatenate()(hidden))
        return keras.Model([left, right], [dense(8, name="first")(flow), dense(4, name="second")(flow)])

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.answer = dense(16, "relu"), dense(8)

        def call(self, inputs):
            return self.answer(self.hidden(inputs))

    model = Own()
    model(np.zeros((1, 6), "float32"))
    return model


def inputs(model):
    return list(model.inputs) if getattr(model, "inputs", None) else [None]


def outputs(model, records):
    results = model(records, training=False)
    return [np.asarray(result) for result in (results if isinstance(results, list | tuple) else [results])]


def prune_half(model):
    kernels = find_kernels(model, Pattern("magnitude"), [])
    Masks(kernels, Pattern("magnitude")).update(0.5)
    for kernel in kernels:
        assert (kernel.values == 0).mean() == 0.5
    return model


def prune_channels(model):
    removal = remove_channels(model, PruningSettings(0.3, multiple=1))
    assert removal.model.count_params() < model.count_params()
    return removal.model


def cluster_kernels_to_four(model):
    for kernel in cluster_kernels(model, 4, []):
        assert kernel.left is None
        kernel.variable.assign(share(kernel.values, 4, "linear", keep_zeros=False, seed=0))
        assert len(np.unique(kernel.values)) <= 4
    return model


def quantize_model(model):
    quantize_aware._check_layers(model, [])
    if keras_models.is_keras_2(model):
        from tfopt.components.quantize.tfmot import ToolkitTrainee as Trainee
    else:
        from tfopt.components.quantize.fake_quant_training import Trainee
    trainee = Trainee(model, [], {}, zeros=True, clusters=True)
    count = len(inputs(model))
    records = [np.random.default_rng(0).normal(size=(20, 6)).astype("float32") for _ in range(count)]
    trainee.observe([(records if count > 1 else records[0], None)])
    trainee.finish()
    assert keras_models.served_names(trainee.model) == keras_models.served_names(model)
    assert len(trainee.report()["kernels"]) >= 2
    return trainee.model


WAYS = {"prune": prune_half, "channels": prune_channels, "cluster": cluster_kernels_to_four, "quantize": quantize_model}
