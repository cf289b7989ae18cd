"""Test cases of `push_constants_into_bodies`."""

import tensorflow as tf

from tests.graph.laws.fold_branches import captured, either, relu, tanh
from tests.graph.table import feed, holds, refuses, weights


def loop(kernel, body=None, *, rounds=3, x=None):
    """Build a loop that captures a matrix; the body returns it unchanged."""
    x = feed(3, 4) if x is None else x
    # Not a constant; NaN and infinities become the smallest integer, from which a loop would count for minutes.
    start = tf.clip_by_value(tf.cast(feed(name="start"), tf.int32), 0, 9)
    arguments = [start, x, kernel]
    body = body or (lambda i, x, kernel: (i + 1, tf.tanh(x @ kernel), tf.identity(kernel)))
    functions = {
        "cond": captured(lambda i, x, kernel: i < rounds, *arguments),
        "body": captured(body, *arguments),
    }
    return tf.raw_ops.StatelessWhile(input=arguments, output_shapes=[[], [None, 4], [4, 4]], **functions)


def scale_kernel(i, x, kernel):
    """Return a kernel that differs from the argument."""
    return i + 1, tf.tanh(x @ kernel), kernel * 2.0


def branches(condition=None):
    """Build an If whose branches read one matrix."""
    x, kernel = feed(3, 4), weights(4, 2)
    condition = tf.reduce_sum(feed(3, name="p")) > 0 if condition is None else condition
    return either(condition, relu, tanh, x, kernel)[0]


def call():
    """Build a call that is not inlined."""
    x, kernel = feed(3, 4), weights(4, 2)
    return tf.raw_ops.PartitionedCall(args=[x, kernel], Tout=[tf.float32], f=captured(tanh, x, kernel))[0]


def large_in_both():
    """Build two branches that read a large constant."""
    return either(tf.reduce_sum(feed(3, name="p")) > 0, relu, tanh, feed(3, 40), weights(40, 20))[0]


def large_and_outside():
    """Build a call whose large constant has another reader."""
    kernel = weights(40, 40)
    result = tf.raw_ops.PartitionedCall(
        args=[feed(3, 40), kernel], Tout=[tf.float32], f=captured(tanh, feed(3, 40, name="like"), kernel)
    )[0]
    return result + kernel[0]


def two_calls():
    """Build two calls with the same constant, which share one function."""
    kernel = weights(40, 40)
    function = captured(tanh, feed(3, 40, name="like"), kernel)
    x = feed(3, 40)
    for _ in range(2):
        x = tf.raw_ops.PartitionedCall(args=[x, kernel], Tout=[tf.float32], f=function)[0]
    return x


def map_slices(*sliced, captured_inputs):
    """Build a MapDefun over slices of some tensors, which captures others."""
    like = [feed(*tensor.shape[1:], name="like") for tensor in sliced]
    return tf.raw_ops.MapDefun(
        arguments=sliced,
        captured_inputs=captured_inputs,
        output_types=[tf.float32],
        output_shapes=[[4, 2]],
        f=captured(lambda part, *rest: tanh(part, rest[-1]) * (1.0 + tf.reduce_sum(rest[0])), *like, *captured_inputs),
    )[0]


TABLE = [
    holds(
        "MapDefun with a captured constant",
        lambda: map_slices(feed(3, 4, 4), captured_inputs=[feed(2, name="p"), weights(4, 2)]),
    ),
    holds("MapDefun with captured constants only", lambda: map_slices(feed(3, 4, 4), captured_inputs=[weights(4, 2)])),
    refuses(
        "MapDefun with a sliced constant",
        lambda: map_slices(weights(3, 4, 4), captured_inputs=[feed(4, 2)]),
        because="",
    ),
    holds("a loop", lambda: loop(weights(4, 4))[1]),
    holds("a loop whose constant is read after it", lambda: tf.matmul(*loop(weights(4, 4))[1:])),
    holds("two branches", branches),
    holds("a call", call),
    holds("two calls", two_calls, fires=2),
    refuses("a large constant in two branches", large_in_both, because="would be stored 2 times"),
    refuses("a large constant with another reader", large_and_outside, because="would be stored 2 times"),
    refuses("a body that changes the constant", lambda: loop(weights(4, 4), scale_kernel)[1], because=""),
    refuses("a placeholder", lambda: loop(feed(4, 4, name="k"))[1], because=""),
]
