"""Rows for `drop_identity_lists`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def _both(use):
    one, other = tf.identity_n([feed(None, 4) * 2.0, tf.exp(feed(None, 4, name="z"))])
    return use(one, other)


def _waiting():
    one, other = tf.identity_n([feed(None, 4) * 2.0, feed(None, 4, name="z")])
    with tf.control_dependencies([one.op]):
        return tf.tanh(feed(4, name="w")) + other


def _types():
    number, other = tf.identity_n([feed(3, dtype="int32"), feed(3, name="z")])
    return tf.cast(number, "float32") + other


TABLE = [
    holds("all outputs", lambda: _both(lambda one, other: one - other), gone="IdentityN"),
    holds("the first output", lambda: _both(lambda one, other: tf.tanh(one)), gone=("IdentityN", "Exp")),
    holds("the last output, twice", lambda: _both(lambda one, other: other * tf.tanh(other)), gone="IdentityN"),
    holds("an output of the graph", lambda: _both(lambda one, other: other), gone="IdentityN"),
    holds("several types", _types, gone="IdentityN"),
    holds("one after another", lambda: sum(tf.identity_n(_both(lambda *two: list(two)))), fires=2, gone="IdentityN"),
    refuses("a node that waits for it", _waiting, because="control edge"),
    refuses("outputs of the graph", lambda: _both(lambda one, other: one), because="an output", outputs=("IdentityN",)),
]
