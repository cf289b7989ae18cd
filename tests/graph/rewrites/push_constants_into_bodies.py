"""Rows for `push_constants_into_bodies`."""

import tensorflow as tf

from tests.graph.rewrites.fold_branches import captured, either, relu, tanh
from tests.graph.table import feed, holds, refuses, weights


def loop(kernel, body=None, *, rounds=3, x=None):
    """A loop that captured a matrix: the body hands it on."""
    x = feed(3, 4) if x is None else x
    start = tf.stack(tf.cast(feed(name="start"), tf.int32))  # no constant
    given = [start, x, kernel]
    body = body or (lambda i, x, kernel: (i + 1, tf.tanh(x @ kernel), tf.identity(kernel)))
    functions = {
        "cond": captured(lambda i, x, kernel: i < rounds, *given),
        "body": captured(body, *given),
    }
    return tf.raw_ops.StatelessWhile(input=given, output_shapes=[[], [None, 4], [4, 4]], **functions)


def changes(i, x, kernel):
    """A body that changes what it was given."""
    return i + 1, tf.tanh(x @ kernel), kernel * 2.0


def branches(condition=None):
    """An If whose branches read one matrix."""
    x, kernel = feed(3, 4), weights(4, 2)
    condition = tf.reduce_sum(feed(3, name="p")) > 0 if condition is None else condition
    return either(condition, relu, tanh, x, kernel)[0]


def call():
    """A call that was not inlined."""
    x, kernel = feed(3, 4), weights(4, 2)
    return tf.raw_ops.PartitionedCall(args=[x, kernel], Tout=[tf.float32], f=captured(tanh, x, kernel))[0]


def large_in_both():
    """A large constant that two branches read."""
    return either(tf.reduce_sum(feed(3, name="p")) > 0, relu, tanh, feed(3, 40), weights(40, 20))[0]


def large_and_outside():
    """A large constant that something else reads as well."""
    kernel = weights(40, 40)
    found = tf.raw_ops.PartitionedCall(
        args=[feed(3, 40), kernel], Tout=[tf.float32], f=captured(tanh, feed(3, 40, name="like"), kernel)
    )[0]
    return found + kernel[0]


def both():
    """Two calls with the same constants: one function serves both."""
    kernel = weights(40, 40)
    function = captured(tanh, feed(3, 40, name="like"), kernel)
    x = feed(3, 40)
    for _ in range(2):
        x = tf.raw_ops.PartitionedCall(args=[x, kernel], Tout=[tf.float32], f=function)[0]
    return x


def each(*sliced, captured_inputs):
    """A function of each slice of some tensors, and of others as they are."""
    like = [feed(*tensor.shape[1:], name="like") for tensor in sliced]
    return tf.raw_ops.MapDefun(
        arguments=sliced,
        captured_inputs=captured_inputs,
        output_types=[tf.float32],
        output_shapes=[[4, 2]],
        f=captured(lambda part, *rest: tanh(part, rest[-1]) * (1.0 + tf.reduce_sum(rest[0])), *like, *captured_inputs),
    )[0]


TABLE = [
    holds("what a map captures", lambda: each(feed(3, 4, 4), captured_inputs=[feed(2, name="p"), weights(4, 2)])),
    holds("all that it captures", lambda: each(feed(3, 4, 4), captured_inputs=[weights(4, 2)])),
    refuses("what it slices", lambda: each(weights(3, 4, 4), captured_inputs=[feed(4, 2)]), because=""),
    holds("a loop", lambda: loop(weights(4, 4))[1]),
    holds("a loop whose constant is read after it", lambda: tf.matmul(*loop(weights(4, 4))[1:])),
    holds("two branches", branches),
    holds("a call", call),
    holds("two calls", both, fires=2),
    refuses("a larger one for two branches", large_in_both, because="would be held 2 times"),
    refuses("a larger one that is read elsewhere", large_and_outside, because="would be held 2 times"),
    refuses("a body that changes it", lambda: loop(weights(4, 4), changes)[1], because=""),
    refuses("what is no constant", lambda: loop(feed(4, 4, name="k"))[1], because=""),
]
