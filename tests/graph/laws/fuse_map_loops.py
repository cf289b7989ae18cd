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
    refuses("a reshape to an open size", mapped(lambda x, k: tf.reshape(x, [-1]), None, 5, 4), because="not all known"),
    refuses("a slice by another index", indexed(lambda x, i: x[i * 0]), because="loop-invariant list of slices"),
    refuses("a slice of one more", indexed(tf.gather, "other"), because="number of rounds"),
    refuses("what sorts a slice", mapped(lambda x, k: tf.math.cumsum(x), None, 5, 4), because="Cumsum"),
    holds("written by hand", written(), gone=("While", "StatelessWhile")),
    refuses("more axes than a slice has", mapped(lambda x, k: x + k, 3, 2), because="of higher rank"),
    refuses("a counter from 1", written(first=1), because="no counter from 0 by 1"),
    refuses("a counter by 2", written(step=2), because="no counter from 0 by 1"),
    refuses(
        "up to the last, and that too", written(going=lambda x: lambda i: i <= tf.shape(x)[0] - 1), because="LessEqual"
    ),
    refuses("one round less", written(going=lambda x: lambda i: i < tf.shape(x)[0] - 1), because="number of rounds"),
    refuses(
        "one round less of a known number",
        written(going=lambda x: lambda i: i < 2, shape=(3, 4)),
        because="number of rounds",
    ),
    refuses("as many rounds as another has slices", written(going=adjacent), because="number of rounds"),
    refuses(
        "as many rounds as another axis is long", written(going=across, shape=(None, None)), because="number of rounds"
    ),
    refuses("more results than slices", written(size=lambda x: tf.shape(x)[0] + 1), because="as long as"),
    refuses("results from the end", written(backwards), because="not written at the counter"),
    refuses("slices from the end", written(from_behind), because="not at the counter"),
    refuses("slices that change", written(changing), because="loop-invariant list of slices"),
    refuses("the number of the round", written(numbered), because="reads the counter"),
    refuses("the same in each round", mapped(lambda x, k: tf.exp(k), 3, 4), because="the same in each iteration"),
    refuses("a side of a switch", lambda: plain(framed), because="version 1"),
    refuses("an effect", mapped(drawn, 3, 5, 4), because="effect"),
    refuses("a sum over rounds", lambda: plain(lambda: tf.scan(lambda c, x: c + x, feed(3, 4))), because="condition"),
]
