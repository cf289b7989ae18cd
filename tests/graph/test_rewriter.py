"""Tests of the rewriter: termination, linear time, unchanged inputs, and the report."""

import gc
import time

import pytest
import tensorflow as tf

from tests.graph.laws.fold_batch_norm import biased, conv, image, norm
from tests.graph.laws.fold_scale import dense
from tests.graph.same_function import assert_same_function
from tests.graph.table import feed, holds, ops, view, weights
from tfopt.errors import ComponentError
from tfopt.graph.law import LocalLaw
from tfopt.graph.law_order import ORDER
from tfopt.graph.law_runner import garbage_collection_disabled, run, run_law, unmet_requirements
from tfopt.graph.laws import laws
from tfopt.graph.matching.pattern import op
from tfopt.graph.report import Report
from tfopt.graph.rewriter import apply

ALL = ORDER


def test_a_law_that_undoes_what_it_did_raises():
    swap = LocalLaw(
        (op("Relu", "x"), op("Elu", "x")),
        lambda match: None,
        lambda match, make: make.node(
            "Elu" if match.node().op == "Relu" else "Relu", match.tensor("x"), like=match.node()
        ),
    )
    graph = view(holds("", lambda: tf.nn.relu(feed(3))).graph_def())
    with pytest.raises(RuntimeError, match="still firing"):
        apply("swap", swap, graph, Report())


def test_law_that_changes_the_dtype_raises():
    wrong = LocalLaw(
        (op("Relu", "x"),),
        lambda match: None,
        lambda match, make: make.node("Cast", match.tensor("x"), like=match.node(), SrcT=1, DstT=2),
    )
    graph = view(holds("", lambda: tf.nn.relu(feed(3))).graph_def())
    with pytest.raises(TypeError, match="another data type"):
        apply("wrong", wrong, graph, Report())


def test_source_graph_is_not_changed():
    before = holds("", lambda: norm(biased(conv(image())))).graph_def()
    bytes_before = before.SerializeToString(deterministic=True)
    run(ALL, view(before), Report())
    assert before.SerializeToString(deterministic=True) == bytes_before


def test_folded_convolution_and_root_keep_their_names():
    def network():
        x = tf.nn.conv2d(image(), weights(3, 3, 4, 4), 1, "SAME", name="conv")
        return tf.nn.relu(tf.identity(norm(x), name="normed"))

    graph = view(holds("", network).graph_def(), ("y", "normed"))
    run(ALL, graph, Report())
    assert graph.nodes["conv"].op == "Conv2D"
    assert graph.nodes["normed"].op == "Identity"
    assert graph.nodes[graph.nodes["normed"].inputs[0].node].op == "BiasAdd"


def test_report_counts_firings_and_lists_reasons():
    def network():
        x = biased(conv(image()))
        return norm(norm(x)) + tf.nn.relu(x)

    graph, report = view(holds("", network).graph_def()), Report()
    run(["fold_batch_norm"], graph, report)
    facts = report.facts()
    assert facts["refused"]["fold_batch_norm"] == [
        {"reason": "the add BiasAdd has 2 consumers", "times": 1, "for_example": ["FusedBatchNormV3"]}
    ]
    assert facts["fired"] == {}


def test_refusal_is_removed_after_the_law_fires():
    def network():
        x = conv(image())
        tf.nn.relu(x, name="unread")
        return norm(x)

    graph, report = view(holds("", network).graph_def()), Report()
    assert run_law("fold_batch_norm", graph, report) == 0
    assert run(["fold_batch_norm", "strip_unused"], graph, report) > 1
    assert report.facts()["refused"] == {}
    assert ops(graph.to_graph_def())["FusedBatchNormV3"] == 0


def test_missing_attributes_have_the_defaults_of_the_operation():
    before = holds("", lambda: norm(conv(image()), epsilon=1e-4)).graph_def()
    node = next(node for node in before.node if node.op == "FusedBatchNormV3")
    del node.attr["epsilon"], node.attr["data_format"]
    graph = view(before)
    run(ALL, graph, Report())
    assert ops(graph.to_graph_def())["FusedBatchNormV3"] == 0
    assert_same_function(before, graph.to_graph_def())


def test_requirements_of_laws_are_met_in_the_order():
    assert unmet_requirements(ALL) == {}
    assert unmet_requirements(["fold_scale"]) == {"fold_scale": ["direct edges", "folded constants"]}
    with pytest.raises(ComponentError, match="did you mean fold_scale"):
        run_law("fold_scales", view(holds("", dense).graph_def()), Report())


def test_laws_preserve_while_loops_of_tensorflow_1():
    def network():
        tf.compat.v1.disable_control_flow_v2()
        try:
            kernel, x = weights(3, 3), feed(2, 3)
            return tf.compat.v1.while_loop(
                lambda i, _: i < 3,
                lambda i, value: (i + 1, tf.matmul(value, tf.identity(kernel)) * weights(3) + weights(3)),
                (tf.constant(0), x),
            )[1]
        finally:
            tf.compat.v1.enable_control_flow_v2()

    before = holds("", network).graph_def()
    graph = view(before)
    run(ALL, graph, Report())
    assert_same_function(before, graph.to_graph_def())


def test_time_is_linear_in_the_size_of_the_graph():
    with tf.Graph().as_default() as made:
        flow = tf.nn.relu(tf.matmul(feed(None, 4), weights(4, 4)) * weights(4) + weights(4), name="end")
        tf.identity(flow, name="y")
    block = made.as_graph_def()

    def graph_of(blocks):
        """Return a chain of copies of the block, whose first one reads the placeholder."""
        chain = type(block)(versions=block.versions)
        for number in range(blocks):
            previous = f"end_{number - 1}" if number else "x"
            for node in block.node:
                if node.name not in ("x", "y") or (node.name, number) == ("x", 0):
                    copied = chain.node.add()
                    copied.CopyFrom(node)
                    names = {"x": previous} | {
                        own.name: f"{own.name}_{number}" for own in block.node if own.name != "x"
                    }
                    copied.name = "x" if node.name == "x" else names[node.name]
                    copied.input[:] = [names[name] for name in node.input]
        output = chain.node.add()
        output.CopyFrom(next(node for node in block.node if node.name == "y"))
        output.input[:] = [f"end_{blocks - 1}"]
        return chain

    def seconds(graph_def):
        graph = view(graph_def)
        start = time.thread_time()
        run(["fold_scale", "fold_shift"], graph, Report())
        return time.thread_time() - start

    seconds(graph_of(20))
    large, small = (min(seconds(graph_def) for _ in range(2)) for graph_def in map(graph_of, (1200, 300)))
    assert large < 3 * 4 * small  # four times the nodes; a quadratic law takes sixteen times as long


def test_every_law_documents_its_equation():
    import importlib

    for name in laws():
        text = importlib.import_module(f"tfopt.graph.laws.{name}").__doc__ or ""
        assert "before" in text, name
        assert "after" in text, name
        assert name.split("_")[0] in {"fold", "fuse", "push", "drop", "cancel", "share", "strip", "freeze"}


def test_garbage_collection_is_restored():
    with pytest.raises(ZeroDivisionError), garbage_collection_disabled():
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.disable()
    try:
        with garbage_collection_disabled():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
