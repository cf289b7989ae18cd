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
    """Return an If with a branch that passes one of its two outputs through."""
    predicate = tf.constant(condition)
    first, second = either(predicate, lambda x: (tf.exp(x), x), lambda x: (x, tf.exp(x)), feed(3, 4), outputs=2)
    return first - 2 * second


def nested(x, kernel):
    """A constant condition in a branch."""
    return either(tf.constant(False), relu, tanh, x, kernel)[0]


def noisy(x, kernel):
    """A branch with an effect: a generator moves on."""
    return tf.nn.relu(x @ kernel) + 0.0 * tf.random.uniform([2])


def case(number, *branches):
    """A Case."""
    x, kernel = feed(3, 4), weights(4, 2)
    functions = [captured(branch, x, kernel) for branch in branches]
    index = tf.convert_to_tensor(number)
    return tf.raw_ops.StatelessCase(branch_index=index, input=[x, kernel], Tout=[tf.float32], branches=functions)[0]


def through_call(x, kernel):
    """A branch with a call."""
    return tf.raw_ops.PartitionedCall(args=[x, kernel], Tout=[tf.float32], f=captured(tanh, x, kernel))[0]


def waiting(before):
    """An If that waits for an effect, or for which something waits."""
    effect = tf.raw_ops.Assert(condition=feed(name="p") < 1e9, data=[1.0])
    if before:
        with tf.control_dependencies([effect]):
            return chosen(True)
    made = chosen(True)
    with tf.control_dependencies([made.op]):
        return tf.exp(feed(2, name="q"))


def on_a_side():
    """An If on one side of a switch of version 1: a constant of its branch would come on both."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=tf.reduce_sum(feed(3, name="p")) > 0)
    result = either(tf.constant(True), lambda x: x * 0.5, lambda x: x, on)[0]
    return tf.raw_ops.Merge(inputs=[off, result])[0]


TABLE = [
    holds("true", lambda: chosen(True), gone=("StatelessIf", "Tanh")),
    holds("false", lambda: chosen(False), gone=("StatelessIf", "Relu")),
    holds("a number", lambda: chosen(0.5), gone="StatelessIf"),
    holds("a list, which is true unless it is empty", lambda: chosen([False]), gone="Tanh"),
    holds("two outputs", lambda: both_outputs(True), gone="StatelessIf"),
    holds("two outputs the other way", lambda: both_outputs(False), gone="StatelessIf"),
    holds("one in the other", lambda: chosen(True, nested), fires=2, gone=("StatelessIf", "Relu")),
    holds("a case", lambda: case(1, tanh, relu, tanh), gone=("StatelessCase", "Tanh")),
    holds("a case beyond the last", lambda: case(7, tanh, tanh, relu), gone=("StatelessCase", "Tanh")),
    holds("a case below the first", lambda: case(-1, tanh, relu), gone=("StatelessCase", "Tanh")),
    holds("a case below the first of three", lambda: case(-2, tanh, relu, tanh), gone=("StatelessCase", "Relu")),
    holds("a branch with a call", lambda: chosen(True, through_call), gone="StatelessIf"),
    refuses("an unknown case", lambda: case(tf.cast(feed(name="p"), tf.int32), tanh, relu), because="not a constant"),
    refuses("an unknown condition", lambda: chosen(tf.reduce_sum(feed(3, name="p")) > 0), because="not a constant"),
    refuses("waiting for an effect", lambda: waiting(True), because="control edge"),
    refuses("being waited for", lambda: waiting(False), because="control edge"),
    refuses("an output", lambda: chosen(True), because="output of the graph itself", outputs=["StatelessIf"]),
    refuses("a side of a switch", on_a_side, because="version 1"),
    refuses("an effect", lambda: chosen(True, noisy), because="RandomUniform"),
]
