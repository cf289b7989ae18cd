"""Tests of `assert_same_function`, the comparison that the tests of laws use."""

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.laws.fold_batch_norm import biased, conv, image, norm
from tests.graph.same_function import assert_same_function
from tests.graph.table import holds


@pytest.fixture(scope="module")
def network():
    return holds("a network", lambda: norm(biased(conv(image())))).graph_def()


def altered(graph_def, change):
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    for node in copy.node:
        if node.op == "Const" and node.attr["dtype"].type == tf.float32.as_datatype_enum:
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(change(tf.make_ndarray(node.attr["value"].tensor))))
            return copy
    raise AssertionError("no constant")


def test_graph_equals_itself(network):
    assert_same_function(network, network)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w * np.float32(1 + 1e-5),
        lambda w: -w,
        lambda w: w + np.float32(1e-4) * (np.arange(w.size) == 0).reshape(w.shape),
        lambda w: np.full_like(w, np.nan),
    ],
    ids=["scaled by 1e-5", "another sign", "one weight moved by 1e-4", "NaN"],
)
def test_slightly_changed_weight_is_detected(network, change):
    with pytest.raises(AssertionError):
        assert_same_function(network, altered(network, change))


def test_changed_epsilon_is_detected(network):
    other = type(network)()
    other.CopyFrom(network)
    next(node for node in other.node if node.op == "FusedBatchNormV3").attr["epsilon"].f = 0.011
    with pytest.raises(AssertionError):
        assert_same_function(network, other)


def test_infinity_and_nan_must_be_at_the_same_positions():
    one, other = (holds("", lambda v=v: tf.constant([1.0, v])).graph_def() for v in (np.inf, np.nan))
    with pytest.raises(AssertionError):
        assert_same_function(one, other)
    assert_same_function(other, other)
