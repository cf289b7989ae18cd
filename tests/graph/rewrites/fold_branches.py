"""Rows for `fold_branches`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def captured(function, *tensors):
    """A function of arguments like these tensors."""
    return tf.function(function).get_concrete_function(*(tf.TensorSpec(t.shape, t.dtype) for t in tensors))


def relu(x, kernel):
    """A branch."""
    return tf.nn.relu(x @ kernel)


def tanh(x, kernel):
    """The other branch."""
    return tf.tanh(x @ kernel) + 1.0


def chosen(condition, then=relu, other=tanh):
    """An If of two branches."""
    x, kernel = feed(3, 4), weights(4, 2)
    return either(tf.convert_to_tensor(condition), then, other, x, kernel)[0]


def either(condition, then, other, *tensors, outputs=1):
    """The operation."""
    return tf.raw_ops.StatelessIf(
        cond=condition,
        input=tensors,
        Tout=[tf.float32] * outputs,
        then_branch=captured(then, *tensors),
        else_branch=captured(other, *tensors),
    )


def both_outputs(condition):
    """A branch with two outputs, of which one goes straight through."""
    known = tf.constant(condition)
    first, second = either(known, lambda x: (tf.exp(x), x), lambda x: (x, tf.exp(x)), feed(3, 4), outputs=2)
    return first - 2 * second


def nested(x, kernel):
    """A known condition in a branch."""
    return either(tf.constant(False), relu, tanh, x, kernel)[0]


def noisy(x, kernel):
    """A branch with an effect: a generator moves on."""
    return tf.nn.relu(x @ kernel) + 0.0 * tf.random.uniform([2])


TABLE = [
    holds("true", lambda: chosen(True), gone=("StatelessIf", "Tanh")),
    holds("false", lambda: chosen(False), gone=("StatelessIf", "Relu")),
    holds("a number", lambda: chosen(0.5), gone="StatelessIf"),
    holds("a list, which is true unless it is empty", lambda: chosen([False]), gone="Tanh"),
    holds("two outputs", lambda: both_outputs(True), gone="StatelessIf"),
    holds("two outputs the other way", lambda: both_outputs(False), gone="StatelessIf"),
    holds("one in the other", lambda: chosen(True, nested), fires=2, gone=("StatelessIf", "Relu")),
    refuses("an unknown condition", lambda: chosen(tf.reduce_sum(feed(3, name="p")) > 0), because="not a constant"),
    refuses("an effect", lambda: chosen(True, noisy), because="RandomUniform"),
]
