"""Rows for `freeze_learning_phase`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def phase(name, kind="bool"):
    """Something that depends on a switch."""
    x, switch = feed(3), tf.compat.v1.placeholder(kind, [], name=name)
    return tf.where(tf.cast(switch, tf.bool), tf.exp(x), tf.sin(x))


TABLE = [
    *(
        holds(name, lambda name=name: phase(name), unfed=[name])
        for name in ("keras_learning_phase", "is_training", "scope/phase_train")
    ),
    holds("an input of the signature", lambda: phase("is_training"), fires=0),
    refuses("another name", lambda: phase("flipped"), because="is not one of a learning phase", unfed=["flipped"]),
    holds("a number", lambda: phase("is_training", "float32"), fires=0, unfed=["is_training"]),
]
