"""Rows for `drop_training_nodes`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def waiting():
    """An Identity that waits for an assertion."""
    x = feed(3)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=True, data=[1])]):
        return tf.nn.relu(tf.identity(x))


def waited_for():
    """A node that waits for an Identity."""
    x = feed(3)
    with tf.control_dependencies([tf.identity(tf.exp(x))]):
        return tf.nn.relu(x)


def learning():
    """Return a graph that depends on a learning phase with the default false."""
    x = feed(3)
    phase = tf.compat.v1.placeholder_with_default(False, [], name="keras_learning_phase")
    return tf.where(phase, tf.exp(x), tf.sin(x))


def branch():
    """Control flow of version 1."""
    x = feed(3)
    _, selected = tf.raw_ops.Switch(data=x, pred=tf.reduce_sum(x) < 1e9)
    return tf.nn.relu(tf.identity(selected))


TABLE = [
    holds("Identity", lambda: tf.nn.relu(tf.identity(feed(3)))),
    holds("StopGradient", lambda: tf.nn.relu(tf.stop_gradient(feed(3))), gone="StopGradient"),
    holds("PreventGradient", lambda: tf.nn.relu(tf.raw_ops.PreventGradient(input=feed(3))), gone="PreventGradient"),
    holds(
        "a default that is not overridden", lambda: tf.compat.v1.placeholder_with_default(tf.exp(feed(3)), [3]) * 2.0
    ),
    holds("a learning phase that has a default", learning),
    holds("several in a row", lambda: tf.nn.relu(tf.identity(tf.identity(tf.stop_gradient(feed(3))))), fires=3),
    holds("one that another waits for", waited_for),
    refuses("an output", lambda: tf.nn.relu(feed(3)), because="is an output"),
    refuses("one that waits", waiting, because="control edge"),
    refuses("a branch", branch, because="control flow operation Switch"),
]
