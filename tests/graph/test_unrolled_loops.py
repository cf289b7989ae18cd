"""Property tests: loops of products over slices of random shapes become one product and preserve the function."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.graph.table import ops, view
from tfopt.graph.law_order import NORMALIZING
from tfopt.graph.law_runner import run
from tfopt.graph.report import Report
from tfopt.graph.session import evaluate

LAWS = (*NORMALIZING, "fuse_map_loops", "fuse_products_of_parts", "strip_unused")
TOLERANCE = 1e-12  # of the largest value, in float64: only rounding
JOINS = ("stack", "concat", "sum", "list", "loop", "total")


@st.composite
def loops(draw):
    """Draw sizes, the axis and order of the slices, the function of each, and how the results are joined."""
    count = draw(st.integers(2, 5))
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    axis = draw(st.integers(0, len(sizes)))
    start, step = draw(st.sampled_from([(0, 1), (1, 2), (count - 1, -1), (2 * count - 2, -2)]))
    join = draw(st.sampled_from(JOINS))
    own = join not in ("loop", "total") and draw(st.booleans())
    function = draw(st.sampled_from(("product", "bias", "layers", "einsum", "left")))
    place = draw(st.integers(0, len(sizes)))
    return count, sizes, axis, start, step, own, function, join, place


def built(count, sizes, axis, start, step, own, function, join, place):
    """Add a loop to the default graph, and return the shape of its input."""
    draw = np.random.default_rng(sum(sizes) + count)
    length = max(start, start + step * (count - 1)) + 1
    shape = [*sizes[:axis], length, *sizes[axis:]]
    x = tf.compat.v1.placeholder(tf.float64, shape, name="x")
    matrix = lambda rows, columns: tf.constant(draw.normal(size=(rows, columns)), tf.float64)  # noqa: E731
    inner, rows = sizes[-1], sizes[-2]
    each = [(matrix(inner, 3), matrix(3, 2), matrix(2, rows)) for _ in range(count if own else 1)] * (
        1 if own else count
    )
    take = lambda i: tf.gather(x, start + step * i, axis=axis)  # noqa: E731

    def result(i, kernels):
        part, (kernel, other, left) = take(i), kernels
        if function == "left":
            return tf.matmul(left, part)
        if function == "einsum":
            return tf.einsum("ij,jk->ik" if len(sizes) == 2 else "hij,jk->hik", part, kernel)
        product = tf.matmul(part, kernel)
        return {"product": product, "bias": product + 0.5}.get(function, tf.nn.relu(product) @ other)

    if join in ("loop", "total"):
        fixed = result(0, each[0]) * 0.0
        array = tf.TensorArray(tf.float64, count)
        body = lambda i, y, s: (i + 1, y.write(i, result(i, each[0])), s + result(i, each[0]))  # noqa: E731
        _, array, total = tf.while_loop(
            lambda i, *_: i < count, body, (tf.constant(0), array, tf.zeros(fixed.shape, tf.float64))
        )
        made = array.stack() if join == "loop" else total
    else:
        results = [result(i, kernels) for i, kernels in enumerate(each)]
        made = joined(results, join, place)
    tf.identity(made, name="y")
    return shape


def joined(results, join, place):
    """Return the results as one tensor."""
    if join == "list":
        array = tf.TensorArray(tf.float64, len(results))
        for i, result in enumerate(results):
            array = array.write(i, result)
        return array.stack()
    if join == "sum":
        return tf.add_n(results)
    return tf.stack(results, place) if join == "stack" else tf.concat(results, min(place, len(results[0].shape) - 1))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(loops())
def test_loops_of_products_become_one_product(loop):
    """The function stays, and each operation of an iteration occurs once."""
    with tf.Graph().as_default() as made:
        shape = built(*loop)
    before, report = made.as_graph_def(), Report()
    graph = view(before)
    run(LAWS, graph, report)
    after = graph.to_graph_def()
    feeds = {"x:0": np.random.default_rng(1).normal(size=shape)}
    [expected], [result] = (evaluate(each, ["y:0"], feeds) for each in (before, after))
    np.testing.assert_allclose(result, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
    left = ops(after)
    products = left["MatMul"] + left["BatchMatMulV2"] + left["Einsum"]
    assert products == (2 if loop[6] == "layers" else 1), report.refused
    assert not left["While"] + left["StatelessWhile"] + left["AddN"] + left["TensorListStack"]


@pytest.mark.parametrize("count", [200, pytest.param(400, marks=pytest.mark.nightly)])
def test_the_time_grows_with_the_size_of_the_graph(count):
    """Each part of a long sum or stack is visited a bounded number of times."""
    visits = []

    class Counted(dict):
        def __getitem__(self, key):
            visits.append(key)
            return super().__getitem__(key)

    with tf.Graph().as_default() as made:
        x = tf.compat.v1.placeholder(tf.float32, [count, 2, 3], name="x")
        kernel = tf.ones([3, 2])
        total = x[0] @ kernel
        for i in range(1, count):
            total = total + tf.cumsum(x[i]) @ kernel if i == count // 2 else total + x[i] @ kernel
        tf.identity(total, name="y")
    graph = view(made.as_graph_def())
    run(NORMALIZING, graph, Report())
    graph.nodes = Counted(graph.nodes)
    run(("fuse_products_of_parts",), graph, Report())
    assert len(visits) < 60 * count
