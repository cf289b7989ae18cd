"""Rows for `cancel_transposes_around`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def first(x):
    """Channels first."""
    return tf.transpose(x, [0, 3, 1, 2])


def last(x):
    """Channels last."""
    return tf.transpose(x, [0, 2, 3, 1])


def image(name="x"):
    """An input of an open batch size."""
    return feed(None, 4, 5, 6, name=name)


def read_twice():
    """An operation in between that something else reads."""
    inner = tf.nn.relu(first(image()))
    return last(tf.tanh(inner)) + tf.reduce_sum(inner)


def two_ends():
    """A sum that is transposed for one reader, and an activation of it for another one."""
    total = first(image()) + tf.tanh(first(image("z")))
    return last(tf.nn.relu(total)) * tf.sqrt(tf.abs(last(total)))


def gate():
    """An activation that is averaged, and multiplied with a function of its averages."""
    inner = tf.nn.relu(first(image()))
    return last(inner * tf.sigmoid(tf.reduce_mean(inner, [2, 3], keepdims=True)))


def read_by_softmax():
    """An operation in between that an operation along the last axis reads."""
    inner = tf.nn.relu(first(image()))
    return last(tf.tanh(inner)) + tf.reduce_sum(tf.nn.softmax(inner))


def bias(x, values, data_format="NHWC"):
    """Add a bias, or one of a number of values."""
    values = weights(values) if isinstance(values, int) else values
    return tf.raw_ops.BiasAdd(value=x, bias=values, data_format=data_format)


TABLE = [
    holds("around one operation", lambda: last(tf.nn.relu(first(image()))), gone="Transpose"),
    holds("around several", lambda: last(tf.tanh(-tf.nn.relu(first(image())))), gone="Transpose"),
    holds("around a sum", lambda: last(first(image()) + first(image("z"))), gone="Transpose"),
    holds("around a constant per channel", lambda: last(first(image()) * weights(6, 1, 1)), gone="Transpose"),
    holds("around a scalar", lambda: last(2.0 - first(image())), gone="Transpose"),
    holds("around a cast", lambda: last(tf.cast(first(image()) > 0.0, tf.float32)), gone="Transpose"),
    holds("around a bias along the second axis", lambda: last(bias(first(image()), 6, "NCHW")), gone="Transpose"),
    holds(
        "around a bias and another operation",
        lambda: last(tf.nn.relu(bias(first(image()), 6, "NCHW"))),
        gone="Transpose",
    ),
    holds("around a bias that is fed", lambda: last(bias(first(image()), feed(6, name="b"), "NCHW")), gone="Transpose"),
    holds("around a sine", lambda: last(tf.sin(first(image()))), gone="Transpose"),
    holds("around a test", lambda: last(tf.math.is_nan(first(image()))), gone="Transpose"),
    holds("around a sum of three", lambda: last(tf.add_n([first(image(name)) for name in "xyz"])), gone="Transpose"),
    holds(
        "around a choice",
        lambda: last(tf.where(first(image()) > 0.5, first(image("z")), weights(6, 1, 1))),
        gone="Transpose",
    ),
    holds(
        "around a quotient", lambda: last(tf.math.divide_no_nan(first(image()), first(image("z")))), gone="Transpose"
    ),
    holds("around a concatenation", lambda: last(tf.concat([first(image()), first(image("z"))], 1)), gone="Transpose"),
    holds(
        "around a concatenation along a negative axis",
        lambda: last(tf.concat([first(image()), first(image("z"))], -1)),
        gone="Transpose",
    ),
    holds("around padding", lambda: last(tf.pad(first(image()), [[0, 0], [0, 1], [2, 3], [4, 0]])), gone="Transpose"),
    holds(
        "around padding with a value",
        lambda: last(tf.pad(first(image()), [[0, 0], [0, 1], [2, 3], [4, 0]], constant_values=1.5)),
        gone="Transpose",
    ),
    holds(
        "around a mirror",
        lambda: last(tf.pad(first(image()), [[0, 0], [0, 1], [2, 3], [4, 0]], "REFLECT")),
        gone="Transpose",
    ),
    holds(
        "around a gate of channels",
        lambda: last(first(image()) * tf.sigmoid(tf.reduce_mean(first(image()), [2, -1], keepdims=True))),
        gone="Transpose",
    ),
    holds("around a maximum", lambda: last(tf.reduce_max(first(image()), 1, keepdims=True)), gone="Transpose"),
    refuses(
        "a reduction that removes axes",
        lambda: tf.transpose(tf.reduce_mean(first(image()), 1), [0, 2, 1]),
        because="removes axes",
    ),
    refuses(
        "axes that are fed",
        lambda: last(tf.raw_ops.Pad(input=first(image()), paddings=tf.cast(feed(4, 2, name="p") > 0.0, tf.int32))),
        because="not constant",
    ),
    refuses(
        "a constant of fewer axes that is padded",
        lambda: last(first(image()) * tf.pad(weights(4), [[0, 1]])),
        because="fewer axes",
    ),
    refuses("a bias along another axis", lambda: last(bias(first(image()), 5)), because="not along the last axis"),
    refuses("the same permutation twice", lambda: first(tf.tanh(first(image()))), because="do not undo"),
    refuses("no Transpose before it", lambda: last(tf.tanh(image())), because="is in between"),
    refuses("another reader", read_twice, because="removes axes"),
    holds("around a residual block with two ends", two_ends, gone="Transpose"),
    holds("around a gate of the channels of an activation", gate, gone="Transpose"),
    refuses(
        "two ends with other permutations",
        lambda: (lambda inner: last(inner) * tf.reduce_sum(tf.transpose(inner, [1, 0, 2, 3])))(
            tf.nn.relu(first(image()))
        ),
        because="do not undo",
    ),
    refuses("a reader that is another operation", read_by_softmax, because="Softmax is in between"),
    refuses("a side without one", lambda: last(first(image()) + feed(None, 6, 4, 5, name="z")), because="in between"),
]
