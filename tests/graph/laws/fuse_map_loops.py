"""Rows for `fuse_map_loops`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights
from tfopt.graph.law_runner import run
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report

PLAIN = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")


def plain(build):
    """The graph that a builder makes, as it is after the laws that this one requires."""
    with tf.Graph().as_default() as made:
        tf.identity(build(), name="mapped")
    definition = made.as_graph_def()
    fed = [node.name for node in definition.node if node.op == "Placeholder"]
    graph = Graph.of(definition, fed=fed, fetched=["mapped"])
    run(PLAIN, graph, Report())
    return tf.import_graph_def(graph.to_graph_def(), name="", return_elements=["mapped:0"])[0]


def mapped(body, *shape):
    """tf.map_fn over the slices of an input; the body captures a matrix."""

    def build():
        kernel = weights(4, 2)
        return tf.map_fn(lambda part: body(part, kernel), feed(*shape))

    return lambda: plain(build)


def dense(part, kernel):
    """Return a typical mapped function."""
    return tf.nn.relu(part @ kernel) * 2.0


def drawn(part, kernel):
    """A body with an effect."""
    return part @ kernel + 0.0 * tf.random.uniform([2])


def written(body=None, *, first=0, step=1, going=None, size=None, shape=(None, 4)):
    """Build a loop as tf.map_fn does; each part can be replaced."""

    def build():
        x = feed(*shape)
        count = tf.shape(x)[0]
        slices = tf.TensorArray(tf.float32, size=count, clear_after_read=False).unstack(x)
        results = tf.TensorArray(tf.float32, size=count if size is None else size(x), element_shape=[shape[1]])
        more = (lambda i: i < count) if going is None else going(x)
        each = body or (lambda i, x, results, count: (x, results.write(i, tf.tanh(x.read(i)) * 2.0)))
        looped = tf.while_loop(
            lambda i, *_: more(i),
            lambda i, x, y: (i + step, *each(i, x, y, count)),
            (tf.constant(first), slices, results),
        )
        return looped[2].stack()

    return lambda: plain(build)


def adjacent(x):
    """A number of rounds that is that of another tensor."""
    count = tf.shape(feed(None, 4, name="other"))[0]
    return lambda i: i < count


def across(x):
    """The size of another axis."""
    count = tf.shape(x)[1]
    return lambda i: i < count


def changing(i, x, results, count):
    """A round that changes what the next one reads."""
    part = x.read(i)
    return x.write((i + 1) % count, part * 2.0), results.write(i, part)


def backwards(i, x, results, count):
    """Write results from the end."""
    return x, results.write(count - 1 - i, tf.tanh(x.read(i)))


def from_behind(i, x, results, count):
    """Read slices from the end."""
    return x, results.write(i, tf.tanh(x.read(count - 1 - i)))


def numbered(i, x, results, count):
    """A round that reads its number."""
    return x, results.write(i, x.read(i) * tf.cast(i, tf.float32))


def indexed(take, like="x"):
    """A loop that takes slices of a tensor that is no list, as many as another has or the same."""

    def build():
        x = feed(None, 4)
        count = tf.shape(x if like == "x" else feed(None, name=like))[0]
        results = tf.TensorArray(tf.float32, size=count, element_shape=[4])
        body = lambda i, y: (i + 1, y.write(i, tf.tanh(take(x, i)) * 2.0))  # noqa: E731
        return tf.while_loop(lambda i, _: i < count, body, (tf.constant(0), results))[1].stack()

    return lambda: plain(build)


def array(take, *shape, axis=0, count=None, dynamic=False, body=None):
    """Write a function of the slices that ``take`` reads to a TensorArray, as AutoGraph does."""

    def build():
        x = feed(*(shape or (None, 5, 4)))
        kernel, n = weights(4, 2), tf.shape(x)[axis] if count is None else count
        results = tf.TensorArray(tf.float32, 0 if dynamic else n, dynamic_size=dynamic)
        each = body or (lambda part: part @ kernel)
        write = lambda i, y: (i + 1, y.write(i, each(take(x, i, n))))  # noqa: E731
        return tf.while_loop(lambda i, _: i < n, write, (tf.constant(0), results))[1].stack()

    return lambda: plain(build)


def of_both():
    """Products of slices of two tensors, one that is a constant in the body."""
    x, kernels = feed(3, 5, 4), weights(3, 4, 2)
    results = tf.TensorArray(tf.float32, 3)
    body = lambda i, y: (i + 1, y.write(i, x[i] @ kernels[i]))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 3, body, (tf.constant(0), results))[1].stack()


def summed(shape=(5, 2), first=(5, 2), read=False):
    """Add up products of slices."""

    def build():
        x, kernel = feed(3, 5, 4), weights(4, 2)
        body = lambda i, y: (i + 1, y + x[i] @ kernel * (tf.reduce_sum(y) if read else 1.0))  # noqa: E731
        start = (tf.constant(0), weights(*first))
        return tf.while_loop(lambda i, _: i < 3, body, start, (tf.TensorShape([]), tf.TensorShape(shape)))[1]

    return lambda: plain(build)


def framed():
    """A loop on a side of a switch of version 1."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=tf.reduce_sum(feed(3, name="p")) > 0)
    return tf.raw_ops.Merge(inputs=[off, tf.map_fn(lambda part: tf.tanh(part) * 2.0, on)])[0]


TABLE = [
    holds("slices of any number", mapped(dense, None, 5, 4), gone=("While", "StatelessWhile", "MatMul")),
    holds("of a known one", mapped(dense, 3, 5, 4), gone=("While", "StatelessWhile", "MatMul")),
    holds("a softmax", mapped(lambda x, k: tf.nn.softmax(x @ k), None, 5, 4), gone="StatelessWhile"),
    holds("a sum over rows", mapped(lambda x, k: tf.reduce_sum(x @ k, 0), None, 5, 4), gone="StatelessWhile"),
    holds(
        "an axis from behind", mapped(lambda x, k: tf.reduce_max(x, -2, True) - x, None, 5, 4), gone="StatelessWhile"
    ),
    holds("all axes", mapped(lambda x, k: tf.reduce_mean(x), None, 5, 4), gone="StatelessWhile"),
    holds("no axis", mapped(lambda x, k: tf.reduce_sum(x, []), None, 5, 4), fires=1),
    holds("a transposition", mapped(lambda x, k: tf.transpose(x, [1, 0]), None, 5, 4), gone="StatelessWhile"),
    holds("a reshape", mapped(lambda x, k: tf.reshape(x, [2, 10]), None, 5, 4), gone="StatelessWhile"),
    holds("slices by index", indexed(lambda x, i: x[i]), gone=("While", "StatelessWhile")),
    holds("slices by gather", indexed(tf.gather), gone=("While", "StatelessWhile")),
    holds("slices of the second axis", array(lambda x, i, n: x[:, i], None, None, 4, axis=1), gone="StatelessWhile"),
    holds("of the last", array(lambda x, i, n: x[..., i], 3, 4, None, axis=2), gone="StatelessWhile"),
    holds("of an axis in the middle", array(lambda x, i, n: x[:, i, :], 5, 3, 4, axis=1), gone="StatelessWhile"),
    holds("gathered from the second axis", array(lambda x, i, n: tf.gather(x, i, axis=1), 5, 3, 4, axis=1)),
    holds("an array that grows", array(lambda x, i, n: x[i], dynamic=True), gone="StatelessWhile"),
    holds("in reversed order", array(lambda x, i, n: x[n - 1 - i]), gone="StatelessWhile"),
    holds("every second slice", array(lambda x, i, n: x[2 * i + 1], 6, 5, 4, count=3), gone="StatelessWhile"),
    holds("some slices of an open number", array(lambda x, i, n: x[i], None, 5, 4, count=2), gone="StatelessWhile"),
    holds("slices of two tensors", lambda: plain(of_both), gone="StatelessWhile"),
    holds("a sum of products", summed(), gone="StatelessWhile"),
    refuses("a sum of any shape", summed(shape=(None, 2)), because="shape of a sum"),
    refuses("a sum that is read", summed(read=True), because="results of others"),
    refuses("slices from behind", array(lambda x, i, n: x[i - 1], 6, 5, 4, count=6), because="beyond the end"),
    refuses("an open number from behind", array(lambda x, i, n: x[-1 - i]), because="number of rounds"),
    refuses("an index by a square", array(lambda x, i, n: x[i * i], 6, 5, 4, count=2), because="counter gives"),
    refuses("rows of a slice", array(lambda x, i, n: x[i, 1:]), because="counter"),
    refuses("a reshape to an open size", mapped(lambda x, k: tf.reshape(x, [-1]), None, 5, 4), because="not all known"),
    refuses("always the same slice", indexed(lambda x, i: x[i * 0]), because="index that the counter gives"),
    refuses("a slice of one more", indexed(tf.gather, "other"), because="number of rounds"),
    refuses("what sorts a slice", mapped(lambda x, k: tf.math.cumsum(x), None, 5, 4), because="Cumsum"),
    holds("written by hand", written(), gone=("While", "StatelessWhile")),
    holds("more axes than a slice has", mapped(lambda x, k: x + k, 3, 2), gone="StatelessWhile"),
    refuses("a counter from 1", written(first=1), because="no counter from 0 by 1"),
    refuses("a counter by 2", written(step=2), because="no counter from 0 by 1"),
    refuses(
        "up to the last, and that too", written(going=lambda x: lambda i: i <= tf.shape(x)[0] - 1), because="LessEqual"
    ),
    refuses("one round less", written(going=lambda x: lambda i: i < tf.shape(x)[0] - 1), because="number of rounds"),
    refuses(
        "one round less of a known number",
        written(going=lambda x: lambda i: i < 2, shape=(3, 4)),
        because="as long as",
    ),
    refuses("as many rounds as another has slices", written(going=adjacent), because="as long as"),
    refuses("as many rounds as another axis is long", written(going=across, shape=(None, None)), because="as long as"),
    refuses("more results than slices", written(size=lambda x: tf.shape(x)[0] + 1), because="as long as"),
    refuses("results from the end", written(backwards), because="not written at the counter"),
    holds("slices from the end", written(from_behind), gone="StatelessWhile"),
    refuses("slices that change", written(changing), because="also written"),
    refuses("the number of the round", written(numbered), because="reads the counter"),
    refuses("the same in each round", mapped(lambda x, k: tf.exp(k), 3, 4), because="the same in each iteration"),
    refuses("a side of a switch", lambda: plain(framed), because="version 1"),
    refuses("an effect", mapped(drawn, 3, 5, 4), because="effect"),
    refuses("a sum over rounds", lambda: plain(lambda: tf.scan(lambda c, x: c + x, feed(3, 4))), because="condition"),
]
