"""Whatever is built of these operations, all laws together leave its function as it is."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.graph.same_function import probes
from tests.graph.table import view
from tfopt.graph.evaluation import evaluate
from tfopt.graph.passes import ORDER, run
from tfopt.graph.report import Report

CHANNELS = 3
TOLERANCE = 1e-12  # of the largest value, in float64: what is left of an error is only rounding
STEPS = (
    "conv", "depthwise", "norm", "bias", "scale", "shift", "divide", "less", "from", "relu", "identity", "pad",
    "branch", "join", "concat", "transpose", "reshape", "cast", "neutral", "wait", "computed",
)  # fmt: skip


class Builder:
    """A graph that grows step by step; all tensors are [2, 5, 5, 3], so that any step may follow any other."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.seen = [tf.compat.v1.placeholder(tf.float64, [None, 5, 5, CHANNELS], name="x")]

    def weights(self, *shape: int, low: float | None = None):
        values = self.draw.normal(0, 0.6, shape) if low is None else self.draw.uniform(low, 2, shape)
        return tf.constant(values, tf.float64)

    def vector(self):
        shapes = [(), (1,), (CHANNELS,), (1, 1, CHANNELS), (1, 1, 1, CHANNELS), (5, 1), (5, 5, CHANNELS)]
        return shapes[self.draw.integers(len(shapes))]

    def add(self, step: str, source: int) -> None:
        x, other = self.seen[-1], self.seen[source % len(self.seen)]
        self.seen.append(tf.ensure_shape(getattr(self, step)(x, other), [None, 5, 5, CHANNELS]))

    def conv(self, x, _):
        return tf.nn.conv2d(x, self.weights(3, 3, CHANNELS, CHANNELS), 1, "SAME", dilations=self.draw.integers(1, 3))

    def depthwise(self, x, _):
        return tf.nn.depthwise_conv2d(x, self.weights(3, 3, CHANNELS, 1), [1, 1, 1, 1], "SAME")

    def norm(self, x, _):
        scale = tf.math.rsqrt(self.weights(CHANNELS, low=0.3) + 0.01) * self.weights(CHANNELS)
        return x * scale + (self.weights(CHANNELS) - self.weights(CHANNELS) * scale)

    def bias(self, x, _):
        return tf.nn.bias_add(x, self.weights(CHANNELS))

    def scale(self, x, _):
        return self.weights(*self.vector()) * x

    def shift(self, x, _):
        return x + self.weights(*self.vector())

    def divide(self, x, _):
        return x / self.weights(*self.vector(), low=0.5)

    def less(self, x, _):
        return x - self.weights(*self.vector())

    def from_(self, x, _):
        return self.weights(*self.vector()) - x

    def relu(self, x, _):
        return tf.nn.relu(x)

    def identity(self, x, _):
        return tf.stop_gradient(tf.identity(x))

    def pad(self, x, _):
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.conv2d(padded, self.weights(3, 3, CHANNELS, CHANNELS), 1, "VALID")

    def branch(self, _, other):
        return tf.identity(other)

    def join(self, x, other):
        return x + other

    def concat(self, x, other):
        both = tf.concat([x, other, self.weights(1, 1, 1, 1) + tf.zeros_like(x[..., :1])], -1)
        return tf.nn.conv2d(both, self.weights(1, 1, 2 * CHANNELS + 1, CHANNELS), 1, "VALID")

    def transpose(self, x, _):
        return tf.transpose(tf.nn.relu(tf.transpose(x, [0, 3, 1, 2])), [0, 2, 3, 1])

    def reshape(self, x, _):
        return tf.reshape(tf.reshape(x, [-1, 25, CHANNELS]), [-1, 5, 5, CHANNELS])

    def cast(self, x, _):
        return tf.cast(tf.cast(tf.cast(x, tf.float32), tf.float64), tf.float64)

    def neutral(self, x, _):
        return (x * 1.0 + np.zeros([1, 1, CHANNELS])) / tf.ones([], tf.float64)

    def wait(self, x, other):
        with tf.control_dependencies([other]):
            return tf.identity(x)

    def computed(self, x, _):
        return x * (tf.reduce_mean(self.weights(4)) + tf.constant(2.0, tf.float64))


@st.composite
def graphs(draw):
    steps = draw(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), min_size=1, max_size=9))
    asked = draw(st.sets(st.integers(1, len(steps)), max_size=2))
    with tf.Graph().as_default() as graph:
        builder = Builder(draw(st.integers(0, 2**16)))
        for step, source in steps:
            builder.add({"from": "from_"}.get(step, step), source)
        tf.identity(builder.seen[-1], name="y")
        outputs = ["y", *sorted({builder.seen[index].op.name for index in asked})]
    return graph.as_graph_def(), outputs


def check(found) -> None:
    before, outputs = found
    graph, report = view(before, outputs), Report()
    run([name for name, _ in ORDER], graph, report)
    after = graph.to_graph_def()
    feeds, fetches = probes(before), [f"{name}:0" for name in outputs]
    for one, other in zip(evaluate(before, fetches, feeds), evaluate(after, fetches, feeds), strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_less(np.abs(one - other).max(), TOLERANCE * max(np.abs(one).max(), 1))
    again = view(after, outputs)
    assert run([name for name, _ in ORDER], again, Report()) == 0


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_all_laws_together_keep_the_function_of_random_graphs(found):
    check(found)


@pytest.mark.nightly
@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_all_laws_together_keep_the_function_of_thousands_of_random_graphs(found):
    check(found)
