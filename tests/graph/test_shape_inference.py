"""Tests of shape inference."""

import tensorflow as tf

from tfopt.graph.shape_inference import shapes_of


def test_shapes_follow_from_the_shapes_of_placeholders():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder("float32", [None, 5, 4], name="x")
        tf.compat.v1.placeholder("string", None, name="words")
        tf.compat.v1.placeholder("int64", [], name="number")
        tf.matmul(x[:, 2], tf.ones((4, 3)), name="product")
        tf.unstack(x, axis=1, name="parts")
    shapes = shapes_of(graph.as_graph_def())
    assert shapes["x", 0] == (None, 5, 4)
    assert shapes["number", 0] == ()
    assert shapes["product", 0] == (None, 3)
    assert shapes["parts", 4] == (None, 4)
    assert ("words", 0) not in shapes


def test_a_graph_on_which_inference_fails_has_no_known_shapes():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder("float32", [3, 4], name="x")
        tf.shape(x, name="shape")
        tf.raw_ops.Shape(input=x)[::-1]
    assert shapes_of(graph.as_graph_def()) == {}
