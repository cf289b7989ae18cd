"""Rows for `drop_idle_loops`."""

import tensorflow as tf

from tests.graph.frames import version_1
from tests.graph.laws.fold_branches import captured
from tests.graph.table import feed, holds, refuses


def loop(start=5, rounds=5, condition=None):
    """Build a loop over a counter and a matrix, which is entered if the start is less than the number of rounds."""
    arguments = [tf.constant(start) if isinstance(start, int) else start, feed(3, 4)]
    functions = {
        "cond": captured(condition or (lambda i, x: i < rounds), *arguments),
        "body": captured(lambda i, x: (i + 1, tf.tanh(x)), *arguments),
    }
    count, x = tf.raw_ops.StatelessWhile(input=arguments, output_shapes=[[], [3, 4]], **functions)
    return x * tf.cast(count, tf.float32)


def frame(start=5, rounds=5):
    """Build the same loop with Enter, Merge, LoopCond, Switch and Exit."""
    with version_1():
        start = tf.constant(start) if isinstance(start, int) else start
        count, x = tf.compat.v1.while_loop(
            lambda i, x: i < rounds, lambda i, x: (i + 1, tf.tanh(x)), [start, feed(3, 4)]
        )
    return x * tf.cast(count, tf.float32)


def number():
    """A start that is an input."""
    return tf.cast(feed(name="start"), tf.int32)


def random(i, x):
    """A condition that draws a number."""
    return tf.raw_ops.RandomUniformInt(shape=tf.zeros([0], tf.int32), minval=0, maxval=i, seed=3) < 0


TABLE = [
    holds("a loop that is not entered", loop, gone="StatelessWhile"),
    holds(
        "a condition without arguments", lambda: loop(condition=lambda i, x: tf.constant(False)), gone="StatelessWhile"
    ),
    holds("of version 1", frame),
    refuses("a loop that is entered", lambda: loop(4), because="is entered"),
    refuses("a start that is an input", lambda: loop(number()), because="depends on an input"),
    refuses("a random condition", lambda: loop(condition=random), because="effect"),
    refuses("of version 1, entered", lambda: frame(4), because="is entered"),
    refuses("of version 1, an input", lambda: frame(number()), because="depends on an input"),
]
