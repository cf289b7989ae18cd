"""Test properties of channel pruning on random graphs: shapes, computed costs, and outputs without dead channels."""

import importlib

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.components.channel_models import (
    MAKERS,
    assert_dead_channels_change_nothing,
    build,
    programs,
    random_selection,
)
from tfopt.components.prune.channels.cost import count_cost
from tfopt.components.prune.channels.groups import follow_channels
from tfopt.components.prune.channels.selection import remove_channels
from tfopt.components.prune.channels.surgery import build_smaller_model, zero_channels
from tfopt.components.prune.parameters import PruningSettings

# Programs are small, and each further try of a failing one builds three models: examples are not shrunk.
FEW = settings(
    max_examples=4,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
MANY = settings(FEW, max_examples=150, derandomize=False)
LIBRARIES = pytest.mark.parametrize("library", ["keras", "tf_keras"])


@given(programs, st.integers(0, 100))
@FEW
def test_dead_channels_are_removed_without_a_difference(program, seed):
    check("keras", program, seed)


@given(programs, st.integers(0, 100))
@settings(FEW, max_examples=1)
def test_dead_channels_are_removed_without_a_difference_with_keras_2(program, seed):
    check("tf_keras", program, seed)


@pytest.mark.nightly
@LIBRARIES
@given(programs, st.integers(0, 100_000))
@MANY
def test_dead_channels_are_removed_without_a_difference_from_any_graph(library, program, seed):
    check(library, program, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50", "DenseNet121", "EfficientNetB0", "MobileNetV3Small"])
@LIBRARIES
def test_dead_channels_of_known_architectures_are_removed_without_a_difference(library, name):
    keras, rng = importlib.import_module(library), np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(96, 96, 3), classes=10)
    for layer in model.layers:
        if type(layer).__name__ == "BatchNormalization":
            gamma, beta, mean, variance = (rng.uniform(-0.1, 0.1, weight.shape) for weight in layer.weights)
            layer.set_weights([1 + 5 * gamma, beta, mean, 1 + 5 * variance])
    graph = follow_channels(model)
    remaining = random_selection(graph, rng)
    small, dead = build_smaller_model(model, graph, remaining), zero_channels(model, graph, remaining, MAKERS)
    records = 255 * rng.random((2, 96, 96, 3)).astype("float32")
    np.testing.assert_allclose(small(records, training=False), dead(records, training=False), rtol=1e-4, atol=1e-5)
    assert small.count_params() == count_cost(model, graph, remaining).parameters < model.count_params()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50", "EfficientNetB0"])
@LIBRARIES
def test_half_of_the_flops_of_known_architectures_are_removed_and_outputs_are_finite(library, name):
    keras = importlib.import_module(library)
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(96, 96, 3), classes=10)
    removal = remove_channels(model, PruningSettings(0.5))
    answer = np.asarray(removal.model(255 * np.random.default_rng(0).random((2, 96, 96, 3)), training=False))
    assert answer.shape == (2, 10)
    assert np.isfinite(answer).all()
    assert removal.report["flops"]["after"] <= removal.report["flops"]["before"] / 2
    assert removal.model.count_params() == removal.report["parameters"]["after"] < model.count_params()


def check(library, program, seed):
    keras = importlib.import_module(library)
    keras.backend.clear_session()
    records = np.random.default_rng(seed).normal(size=(3, 8, 8, 2)).astype("float32")
    assert_dead_channels_change_nothing(build(keras, program), records, seed)
