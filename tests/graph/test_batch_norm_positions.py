"""Tests that all laws together fold every form of batch norm next to every linear operation."""

import pytest
import tensorflow as tf

from tests.graph.laws.fold_batch_norm import GLOBAL, conv, depthwise, image, norm, transposed
from tests.graph.same_function import assert_same_function
from tests.graph.table import feed, holds, ops, view, weights
from tfopt.graph.law_order import ORDER
from tfopt.graph.law_runner import run
from tfopt.graph.matching.batch_norms import batch_norms
from tfopt.graph.report import Report


def decomposed(x, layout="NHWC"):
    """Apply a batch norm as Keras 3 exports it: arithmetic on variables, which are constants after freezing."""
    shape = [4, 1, 1] if layout == "NCHW" else [4]
    gamma, beta, mean, variance = weights(*shape), weights(*shape), weights(*shape), weights(*shape, low=0.2)
    factor = gamma * tf.math.rsqrt(variance + 1e-3)
    return x * factor + (beta - mean * factor)


def rows(x):
    """Apply a fused batch norm to a matrix with reshapes, as TF-Slim does."""
    return tf.reshape(norm(tf.reshape(x, [-1, 1, 1, 4])), [-1, 4])


NORMS = {
    "decomposed": decomposed,
    "FusedBatchNorm": lambda x: norm(x, op="V1"),
    "FusedBatchNormV2": lambda x: norm(x, op="V2"),
    "FusedBatchNormV3": norm,
    GLOBAL: lambda x: norm(x, op="global"),
    "not scaled": lambda x: norm(x, op="global", after=False),
}
LINEAR = {
    "Conv2D": conv,
    "strided, SAME": lambda x: conv(x, strides=2, padding="SAME"),
    "grouped": lambda x: conv(x, groups=2),
    "dilated": lambda x: conv(x, dilations=2),
    "dilated by blocks": lambda x: tf.nn.atrous_conv2d(x, weights(3, 3, 4, 4), 2, "SAME"),
    "depthwise": depthwise,
    "dilated depthwise": lambda x: tf.nn.depthwise_conv2d(x, weights(3, 3, 4, 1), [1] * 4, "SAME", dilations=[2, 2]),
    "transposed": lambda x: transposed(tf.ensure_shape(x, [None, 6, 6, 4])),
}
BETWEEN = {
    "": lambda x: x,
    "BiasAdd": lambda x: tf.nn.bias_add(x, weights(4)),
    "AddV2": lambda x: x + weights(1, 1, 1, 4),
    "Sub": lambda x: x - weights(4),
}
AFTER = [(one, other, "BiasAdd") for one in LINEAR for other in NORMS]
AFTER += [("Conv2D", norm_, between) for norm_ in NORMS for between in BETWEEN]


@pytest.mark.parametrize(("linear", "form", "between"), AFTER)
def test_batch_norm_after_a_linear_operation_is_folded(linear, form, between):
    check(lambda: NORMS[form](BETWEEN[between](LINEAR[linear](feed(2, 6, 6, 4)))))


@pytest.mark.parametrize("form", NORMS)
@pytest.mark.parametrize("linear", ["Conv2D", "grouped", "dilated"])
def test_batch_norm_before_an_unpadded_convolution_is_folded(linear, form):
    check(lambda: LINEAR[linear](NORMS[form](image())))


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
def test_batch_norm_in_other_precisions_is_folded(kind):
    def network():
        factor, offset = weights(4, dtype=kind), weights(4, dtype=kind)
        return conv(image(dtype=kind), dtype=kind) * factor + offset

    check(network)


NETWORKS = {
    "a convolution of one axis": lambda: decomposed(
        tf.nn.bias_add(tf.nn.conv1d(feed(None, 9, 3), weights(3, 3, 4), 1, "SAME"), weights(4))
    ),
    "two of them": lambda: decomposed(
        tf.nn.conv1d(
            decomposed(tf.nn.conv1d(feed(None, 9, 3), weights(3, 3, 4), 1, "VALID")), weights(3, 4, 4), 1, "VALID"
        )
    ),
    "rows": lambda: rows(tf.nn.bias_add(feed(None, 3) @ weights(3, 4), weights(4))),
    "rows, decomposed": lambda: decomposed(feed(None, 3) @ weights(3, 4)),
    "a sequence": lambda: decomposed(tf.reshape(tf.reshape(feed(None, 5, 3), [-1, 3]) @ weights(3, 4), [-1, 5, 4])),
    "before rows": lambda: tf.reshape(norm(feed(None, 3, 3, 4)), [-1, 36]) @ weights(36, 2),
    "between a kernel and rows": lambda: tf.reshape(norm(depthwise(feed(None, 3, 3, 4))), [-1, 36]) @ weights(36, 2),
    "channels first": lambda: norm(conv(image("NCHW"), data_format="NCHW"), layout="NCHW"),
    "channels first, decomposed": lambda: decomposed(conv(image("NCHW"), data_format="NCHW"), "NCHW"),
    "a volume": lambda: decomposed(conv(feed(None, 5, 5, 5, 2), window=(3, 3, 3))),
    "a chain": lambda: norm(decomposed(norm(conv(image()), op="global"))),
    "between two convolutions": lambda: conv(norm(conv(image()), op="global")),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_batch_norms_in_networks_are_folded(network):
    check(network)


def check(build):
    before = holds("", build).graph_def()
    graph = view(before)
    run(ORDER, graph, Report())
    after = graph.to_graph_def()
    assert batch_norms(graph) == {}
    assert not {"Mul", "Rsqrt", "Sub", "AddV2"} & set(ops(after))
    assert_same_function(before, after)
    assert run(ORDER, view(after), Report()) == 0  # no law undoes another
