"""Control flow of version 1, as frozen graphs have it: branches are switches and merges, loops are frames."""

from contextlib import contextmanager

from tests.graph.table import feed


@contextmanager
def version_1():
    """Build `tf.compat.v1.cond` and `while_loop` as version 1 did."""
    import tensorflow as tf

    was = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if was:
            tf.compat.v1.enable_control_flow_v2()


def in_frames(build):
    """The graph of a builder in a branch in a loop: the branch is taken in as many of two rounds as are fed."""
    import tensorflow as tf

    def number():
        made = tf.reshape(build(), [-1])
        flat = tf.cast(tf.math.real(made) if made.dtype.is_complex else made, tf.float64)
        count = flat.shape[0] or tf.size(flat)
        return tf.reduce_sum(flat * tf.sin(tf.cast(tf.range(1, count + 1), tf.float64)))

    with tf.Graph().as_default() as graph, version_1():
        rounds, start = feed(name="rounds"), feed(name="start", dtype="float64")

        def body(i, total):
            side = tf.compat.v1.cond(i < tf.cast(rounds, tf.int32), number, lambda: tf.tanh(total))
            return i + 1, total * 0.5 + side

        tf.identity(tf.compat.v1.while_loop(lambda i, _: i < 2, body, [0, start * 0.1])[1], name="y")
    return graph.as_graph_def()
