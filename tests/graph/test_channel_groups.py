"""Tests of groups of channels: a division by powers of two changes no digit of the outputs, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.laws.fold_batch_norm import conv, depthwise, image, transposed
from tests.graph.table import feed, holds, refuses, view, weights
from tfopt.graph.matching.channel_groups import channel_groups, divide_channels
from tfopt.graph.session import session


def dense(x, out, **options):
    """A dense layer with a bias."""
    return tf.matmul(x, weights(x.shape[-1], out), **options) + weights(out)


def trunk():
    """Two blocks with a residual: all that is added has common factors."""
    flow = conv(image(), window=(1, 1), out=6)
    for _ in range(2):
        flow += tf.nn.bias_add(conv(tf.nn.relu(conv(flow, window=(1, 1), out=5)), window=(1, 1), out=6), weights(6))
    return conv(tf.nn.relu(flow))


def shared():
    """Two branches with one kernel, which gets the factors of both."""
    kernel, last = weights(5, 7), weights(7, 3)
    return tf.add_n([tf.matmul(tf.nn.relu(feed(None, 5, name=name) @ kernel), last) for name in ("x", "z")])


def norm(**options):
    """A batch norm in inference."""
    return tf.compat.v1.nn.fused_batch_norm(
        image(), *(weights(4, low=0.5) for _ in range(4)), is_training=False, **options
    )[0]


def attention():
    """A layer norm before the projections of attention."""
    x = feed(None, 3, 8)
    normed = x * weights(8) + weights(8)
    heads = tf.einsum("abc,cde->abde", normed, weights(8, 2, 4))
    return tf.reshape(heads, [-1, 3, 8]) + tf.reshape(tf.reshape(normed, [-1, 8]) @ weights(8, 8), [-1, 3, 8])


TABLE = [
    holds("convolutions", lambda: conv(tf.nn.relu(tf.nn.bias_add(conv(image(), out=6), weights(6))))),
    holds("convolutions, SAME padding", lambda: conv(tf.nn.leaky_relu(conv(image(), out=6)), padding="SAME")),
    holds("depthwise with a multiplier", lambda: conv(depthwise(image(), multiplier=2)), fires=1),
    holds("a separable pair", lambda: conv(depthwise(tf.nn.relu(conv(image(), out=6)))), fires=2),
    holds("transposed", lambda: conv(transposed(feed(2, 6, 6, 4)))),
    holds("dense layers", lambda: dense(tf.nn.relu(dense(feed(None, 5), 7)), 3)),
    holds("transposed weights", lambda: tf.matmul(dense(feed(None, 5), 7), weights(3, 7), transpose_b=True)),
    holds("made by transposed weights", lambda: tf.matmul(feed(2, 5), weights(7, 5), transpose_b=True) @ weights(7, 2)),
    holds("a flattened image", lambda: dense(tf.reshape(tf.nn.relu(conv(image(), out=6)), [-1, 96]), 3)),
    holds(
        "pooling", lambda: conv(tf.nn.avg_pool2d(tf.nn.max_pool2d(conv(image(), out=6), 2, 1, "SAME"), 2, 1, "SAME"))
    ),
    holds("a mean of the pixels", lambda: dense(tf.reduce_mean(tf.nn.relu(conv(image(), out=6)), [1, 2]), 3)),
    holds("zeros around an image", lambda: conv(tf.pad(conv(image(), out=6), [[0, 0], [1, 1], [1, 1], [0, 0]]))),
    holds("residuals", trunk, fires=3),
    holds("shared kernels", shared),
    holds("a batch norm", lambda: conv(tf.nn.relu(norm()))),
    holds("a gain before projections", attention),
    holds("a difference", lambda: dense(weights(7) - tf.nn.relu(dense(feed(None, 5), 7)), 3)),
    refuses("ReLU6", lambda: conv(tf.nn.relu6(conv(image(), out=6))), because="Relu6 is in between"),
    refuses("an output", lambda: conv(image()), because="an output of the model"),
    refuses(
        "a second output",
        lambda: dense(tf.identity(dense(feed(None, 5), 7), name="inner"), 3),
        outputs=["inner"],
        because="an output of the model",
    ),
    refuses("a softmax", lambda: dense(tf.nn.softmax(dense(feed(None, 5), 7)), 3), because="Softmax is in between"),
    refuses("groups", lambda: conv(conv(image(), out=6), groups=2, out=6), because="Conv2D has groups"),
    refuses(
        "channels first", lambda: conv(conv(image("NCHW"), data_format="NCHW"), data_format="NCHW"), because="axis"
    ),
    refuses(
        "float16",
        lambda: feed(2, 5, dtype="float16") @ weights(5, 3, dtype="float16") @ weights(3, 2, dtype="float16"),
        because="not in float32",
    ),
    refuses(
        "a sum with an input", lambda: dense(dense(feed(None, 5), 7) + feed(None, 7, name="z"), 3), because="input"
    ),
    refuses(
        "a mean of the channels", lambda: dense(tf.reduce_mean(conv(image(), out=6), [2, 3]), 3), because="Mean is"
    ),
    refuses(
        "a product of two layers",
        lambda: (lambda x: dense(dense(x, 7) * dense(x, 7), 3))(feed(None, 5)),
        because="Mul is in between",
    ),
    refuses("a kernel that is computed", lambda: dense(feed(None, 5), 7) @ feed(7, 2, name="z"), because="no constant"),
    refuses(
        "a matrix that is read twice",
        lambda: (lambda k: tf.nn.relu(feed(None, 7) @ k) @ weights(7, 2) @ tf.transpose(k * feed(name="z"))[:2])(
            weights(7, 7)
        ),
        because="another operation reads its kernel",
    ),
    refuses(
        "training",
        lambda: conv(tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(image(), weights(4), weights(4))[0])),
        because="training mode",
    ),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_division_by_powers_of_two_changes_no_digit(row):
    before = row.graph_def()
    graph = view(before, outputs=("y", *row.outputs))
    results = [group for _, group in channel_groups(graph)]
    groups = [group for group in results if not isinstance(group, str)]
    if row.because:
        assert any(row.because in reason for reason in results if isinstance(reason, str)), results
    assert len(groups) == row.fires, results
    draw = np.random.default_rng(0)
    for group in groups:
        divide_channels(graph, group, 2.0 ** draw.integers(-5, 6, group.channels))
    after = graph.to_graph_def()
    inputs = [node for node in before.node if node.op == "Placeholder"]
    feeds = {
        f"{node.name}:0": draw.normal(size=[max(dim.size, 2) for dim in node.attr["shape"].shape.dim]).astype(
            tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype
        )
        for node in inputs
    }
    first, second = (session(each).run(["y:0"], feeds)[0] for each in (before, after))
    np.testing.assert_array_equal(first, second)
    names = {node.name: node for node in before.node}
    changed = [node.name for node in after.node if node.name not in names]
    assert bool(changed) == bool(groups)
