"""Build control flow of TensorFlow 1 (Switch, Merge, Enter, Exit), as in old frozen graphs."""

from contextlib import contextmanager

from tests.graph.table import feed


@contextmanager
def version_1():
    """Make `tf.compat.v1.cond` and `while_loop` build control flow of TensorFlow 1."""
    import tensorflow as tf

    was_enabled = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if was_enabled:
            tf.compat.v1.enable_control_flow_v2()


def in_frames(build):
    """Build nodes in a branch in a loop of two iterations; the first ``rounds`` iterations take the branch."""
    import tensorflow as tf

    def weighted_sum():
        values = tf.reshape(build(), [-1])
        flat = tf.cast(tf.math.real(values) if values.dtype.is_complex else values, tf.float64)
        count = flat.shape[0] or tf.size(flat)
        return tf.reduce_sum(flat * tf.sin(tf.cast(tf.range(1, count + 1), tf.float64)))

    with tf.Graph().as_default() as graph, version_1():
        rounds, start = feed(name="rounds"), feed(name="start", dtype="float64")

        def body(i, total):
            value = tf.compat.v1.cond(i < tf.cast(rounds, tf.int32), weighted_sum, lambda: tf.tanh(total))
            return i + 1, total * 0.5 + value

        tf.identity(tf.compat.v1.while_loop(lambda i, _: i < 2, body, [0, start * 0.1])[1], name="y")
    return graph.as_graph_def()
