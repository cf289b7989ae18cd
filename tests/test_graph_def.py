"""Tests of the functions that read, copy and cut GraphDefs."""

import tensorflow as tf

from tfopt.graph_def import reach, readers, subgraph, unused_name, without_nodes


def _graph():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder("float32", [2], name="x")
        doubled = tf.add(x, x, name="doubled")
        with tf.control_dependencies([x]):
            tf.no_op(name="later")
        called = tf.function(lambda value: value + 1).get_concrete_function(tf.TensorSpec([2], tf.float32))
        called.add_to_graph(graph)
        tf.identity(doubled, name="y")
    return graph.as_graph_def()


def test_readers_are_nodes_that_read_a_tensor_and_optionally_nodes_that_wait():
    assert readers(_graph())["x"] == ["doubled", "doubled", "later"]
    assert readers(_graph(), controls=False)["x"] == ["doubled", "doubled"]


def test_reach_follows_cycles_once():
    following = {"a": ["b"], "b": ["a", "c"], "c": [], "d": ["a"]}
    assert reach(["a"], following.__getitem__) == {"a", "b", "c"}


def test_a_subgraph_has_the_ancestors_and_no_functions_that_nothing_calls():
    graph = _graph()
    assert graph.library.function
    part = subgraph(graph, ["doubled", "doubled"])
    assert [node.name for node in part.node] == ["x", "doubled"]
    assert not part.library.function
    assert graph.library.function


def test_a_copy_without_nodes_has_the_functions_and_the_version():
    graph = _graph()
    empty = without_nodes(graph)
    assert not empty.node
    assert empty.library == graph.library
    assert empty.versions == graph.versions


def test_a_used_name_gets_the_next_number():
    assert unused_name("x", {"y"}) == "x"
    assert unused_name("x", {"x", "x_1"}) == "x_2"
