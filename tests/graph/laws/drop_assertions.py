"""Rows for `drop_assertions`."""

import tensorflow as tf

from tests.graph.table import feed, holds


def after(check):
    """Something that waits for a check of the input."""
    x = feed(3)
    with tf.control_dependencies([check(x)]):
        return tf.nn.relu(x)


def plain(x):
    """The operation."""
    return tf.raw_ops.Assert(condition=tf.reduce_max(x) < 1e9, data=[x])


def branch(x):
    """Return what TensorFlow 2 builds for tf.debugging.assert_less: an If with an Assert in one branch."""

    def body(x, wrong):
        if wrong:
            with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.constant(False), data=[x])]):
                return tf.identity(False)
        return tf.constant(True)

    made = [
        tf.function(lambda x, wrong=wrong: body(x, wrong)).get_concrete_function(tf.TensorSpec([3]))
        for wrong in (False, True)
    ]
    checked = tf.raw_ops.If(
        cond=tf.reduce_max(x) < 1e9, input=[x], Tout=[tf.bool], then_branch=made[0], else_branch=made[1]
    )
    return tf.identity(checked[0])


def noisy(x):
    """A branch that prints as well."""

    def body(x):
        tf.raw_ops.PrintV2(input="seen")
        return tf.constant(True)

    made = tf.function(body).get_concrete_function(tf.TensorSpec([3]))
    return tf.raw_ops.If(cond=tf.reduce_max(x) < 1e9, input=[x], Tout=[tf.bool], then_branch=made, else_branch=made)[0]


def printing(x):
    """A check that waits for something with an effect."""
    with tf.control_dependencies([tf.raw_ops.PrintV2(input="seen")]):
        return plain(x)


def two(x):
    """Both at once."""
    return tf.group(plain(x), plain(tf.exp(x)))


TABLE = [
    holds("a check", lambda: after(plain)),
    holds("a branch that checks", lambda: after(branch), fires=1),
    holds("two checks", lambda: after(two), fires=3),
    holds("a check that waits for an effect", lambda: after(printing), fires=0),
    holds("a branch with an effect", lambda: after(noisy), fires=0),
    holds("an effect", lambda: after(lambda x: tf.raw_ops.PrintV2(input="seen")), fires=0),
]
