"""Property tests: all laws together preserve the function of random graphs."""

from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.graph.frames import version_1
from tests.graph.same_function import assert_same_function, assert_same_on_special_values, probes
from tests.graph.table import view
from tfopt.components.optimize_graph.parameters import read_passes
from tfopt.components.optimize_graph.verified_passes import VerifiedPasses
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.law_order import ORDER
from tfopt.graph.law_runner import optimize, run
from tfopt.graph.report import Report
from tfopt.graph.session import evaluate
from tfopt.graph_checks.comparison import Comparison
from tfopt.graph_checks.frozen_runtime import FrozenRuntime

CHANNELS = 3
TOLERANCE = 1e-12  # of the largest value, in float64: only rounding
STEPS = (
    "conv", "depthwise", "norm", "bias", "scale", "shift", "divide", "less", "from", "relu", "identity", "pad",
    "branch", "join", "concat", "transpose", "reshape", "cast", "neutral", "wait", "computed",
    "blocks", "squeeze", "flip", "negative", "slice", "checked", "dropout",
    "inverse", "negated", "choice", "products", "bounds", "fills", "nothing",
    "gelu", "layer_norm", "rows", "batch", "attention", "power", "listed", "tree",
)  # fmt: skip

FLOW = ("loop", "either", "case")
INNER = [{"from": "from_"}.get(step, step) for step in STEPS if step not in ("concat", "blocks", "dropout")]


class Builder:
    """A graph that grows step by step; all tensors are [2, 5, 5, 3], so any step can follow any other."""

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

    def power(self, x, _):
        exponent = tf.constant(self.draw.choice([2, 3, -1, 0, 0.5, -0.5]), tf.float64)
        return tf.pow(tf.square(tf.tanh(x)) + 0.5, exponent)

    def listed(self, x, other):
        return tf.identity_n([x, other])[self.draw.integers(2)]

    def tree(self, x, other):
        grown = [x, other, self.weights(CHANNELS, low=1), self.weights(low=1), tf.tanh(x)]
        operations = [tf.add, tf.subtract] if self.draw.integers(2) else [tf.multiply]
        while len(grown) > 1:
            left, right = (grown.pop(self.draw.integers(len(grown))) for _ in range(2))
            grown.append(operations[self.draw.integers(len(operations))](left, right))
        return tf.tanh(grown[0])

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

    def blocks(self, x, _):
        return tf.nn.depthwise_conv2d(x, self.weights(3, 3, CHANNELS, 1), [1] * 4, "SAME", dilations=[2, 2])

    def squeeze(self, x, _):
        rows = tf.expand_dims(tf.reshape(x, [-1, 25, CHANNELS]), 1)
        made = tf.nn.conv2d(rows, self.weights(1, 3, CHANNELS, CHANNELS), 1, "SAME")
        return tf.reshape(tf.squeeze(made, [1]) * self.weights(CHANNELS), [-1, 5, 5, CHANNELS])

    def flip(self, x, _):
        first = tf.transpose(x, [0, 3, 1, 2]) * self.weights(CHANNELS, 1, 1)
        return tf.transpose(first + self.weights(CHANNELS, 1, 1), [0, 2, 3, 1])

    def negative(self, x, _):
        return (0.0 - x) / tf.constant(4.0, tf.float64)

    def slice(self, x, _):
        return x[:, :5, 0:5] + tf.cast(tf.cast(x > 0, tf.int32) * 0, tf.float64)

    def checked(self, x, other):
        with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.reduce_min(other) < 1e300, data=[other])]):
            return tf.abs(x)

    def dropout(self, x, _):
        return tf.nn.dropout(x, rate=tf.constant(0.0, tf.float64))

    def inverse(self, x, _):
        return tf.clip_by_value(1.0 / (x + 0.0), -3.0, 3.0)  # 3 or -3 for a zero

    def negated(self, x, other):
        return tf.cast(tf.logical_not(x < other), tf.float64)

    def choice(self, x, other):
        return tf.where(x > 0.25, x, other) + tf.where(True, x, other)

    def products(self, x, _):
        return (x * tf.constant(8.0, tf.float64)) * tf.constant([0.5, 0.0625, -1.0], tf.float64)

    def bounds(self, x, _):
        return tf.minimum(tf.maximum(tf.maximum(x, -0.0), 0.0), tf.constant(4.0, tf.float64))

    def fills(self, x, _):
        return tf.tanh(x * tf.ones_like(x) + tf.zeros_like(x) - tf.zeros_like(x))

    def nothing(self, x, other):
        return x + other * 0.0

    def gelu(self, x, _):
        return 0.5 * x * (1.0 + tf.math.erf(x / tf.constant(2**0.5, tf.float64)))

    def layer_norm(self, x, _):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        scale = tf.math.rsqrt(variance + 1e-3) * self.weights(1, 1, 1, CHANNELS)
        return x * scale + (-mean * scale + self.weights(CHANNELS))

    def rows(self, x, _):
        sizes = tf.shape(x)
        matrix = tf.reshape(x, [tf.reduce_prod(tf.gather(sizes, [0, 1, 2])), CHANNELS])
        made = tf.nn.bias_add(tf.matmul(matrix, self.weights(CHANNELS, CHANNELS)), self.weights(CHANNELS))
        return tf.reshape(made, tf.concat([tf.gather(sizes, [0, 1, 2]), [CHANNELS]], 0))

    def batch(self, x, _):
        rows = tf.reshape(x, [-1, 25, CHANNELS])
        return tf.reshape(tf.matmul(rows, self.weights(CHANNELS, CHANNELS)), [-1, 5, 5, CHANNELS])

    def attention(self, x, _):
        rows = tf.reshape(x, [-1, 25, CHANNELS])
        made = (tf.matmul(rows, self.weights(CHANNELS, CHANNELS)) + self.weights(CHANNELS) for _ in range(3))
        query, key, value = (tf.reshape(one, [-1, 25, 1, CHANNELS]) for one in made)
        scores = tf.nn.softmax(tf.einsum("btnh,bsnh->bnts", query, key) * tf.constant(0.3, tf.float64))
        return tf.reshape(tf.einsum("bnts,bsnh->btnh", scores, value), [-1, 5, 5, CHANNELS])

    def inside(self, x, other):
        """Add a few steps to a body, with its arguments, captured tensors and constants."""
        outer, self.seen = self.seen, [x, other]
        for _ in range(self.draw.integers(1, 4)):
            self.add(str(self.draw.choice(INNER)), int(self.draw.integers(8)))
        result, self.seen = self.seen[-1], outer
        return tf.tanh(result)

    def condition(self, other):
        """Return a condition: computed, or constant."""
        kinds = [tf.reduce_mean(other) > 0.1, tf.constant(True), tf.constant(False)]
        return kinds[self.draw.integers(3)]

    def loop(self, x, other):
        count = int(self.draw.integers(0, 4))
        body = lambda i, y: (i + 1, tf.ensure_shape(self.inside(y, other), x.shape))  # noqa: E731
        return tf.while_loop(lambda i, _: i < count, body, (tf.constant(0), x))[1]

    def either(self, x, other):
        return tf.cond(self.condition(other), lambda: self.inside(x, other), lambda: self.inside(other, x))

    def case(self, x, other):
        index = tf.cast(tf.reduce_sum(other) * 2, tf.int32) % 3 if self.draw.integers(2) else tf.constant(1)
        return tf.switch_case(index, [lambda: self.inside(x, other), lambda: tf.identity(x), lambda: -other])

    def computed(self, x, _):
        return x * (tf.reduce_mean(self.weights(4)) + tf.constant(2.0, tf.float64))


@st.composite
def graphs(draw, steps=STEPS, most=9):
    steps = draw(st.lists(st.tuples(st.sampled_from(steps), st.integers(0, 7)), min_size=1, max_size=most))
    extra_outputs = draw(st.sets(st.integers(1, len(steps)), max_size=2))
    with tf.Graph().as_default() as graph:
        builder = Builder(draw(st.integers(0, 2**16)))
        for step, source in steps:
            builder.add({"from": "from_"}.get(step, step), source)
        tf.identity(builder.seen[-1], name="y")
        outputs = ["y", *sorted({builder.seen[index].op.name for index in extra_outputs})]
    return graph.as_graph_def(), outputs


def check(example) -> None:
    before, outputs = example
    graph, report = view(before, outputs), Report()
    run(ORDER, graph, report)
    after = graph.to_graph_def()
    fired = {law for law, nodes in report.fired.items() if nodes}
    assert_same_function(before, after, outputs, laws=fired, tolerance=TOLERANCE)
    again = view(after, outputs)
    assert run(ORDER, again, Report()) == 0


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_all_laws_together_preserve_the_function_of_random_graphs(example):
    check(example)


@pytest.mark.nightly
@settings(max_examples=2500, derandomize=False, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_all_laws_together_preserve_the_function_of_thousands_of_random_graphs(example):
    check(example)


def check_preset(example) -> None:
    """Check the default preset, with Grappler's stages, on other special values than its passes were compared on."""
    before, outputs = example
    ends = {name: Endpoint(f"{name}:0", "float64", (None, 5, 5, CHANNELS)) for name in ("x", *outputs)}
    model = Frozen(before, {"s": Signature({"x": ends["x"]}, {name: ends[name] for name in outputs})})
    comparison = Comparison(["s"], lambda key: FrozenRuntime(model, key), None, "s", special=True)
    passes = VerifiedPasses(model, comparison, 1e-4)
    passes.run_all(read_passes(["inference"]))
    assert_same_on_special_values(before, passes.model.graph, outputs, laws={row["pass"] for row in passes.rows})


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_the_default_preset_preserves_random_graphs_on_special_values(example):
    check_preset(example)


@pytest.mark.nightly
@settings(max_examples=400, derandomize=False, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_the_default_preset_preserves_hundreds_of_random_graphs_on_special_values(example):
    check_preset(example)


def check_flow(example, *, frames: bool) -> None:
    """Check a model with functional control flow, or with frames of TensorFlow 1."""
    before, outputs = example
    fetched = [name for name in outputs if name == "y"]
    if frames:
        return check((before, fetched))
    ends = {"y": Endpoint("y:0", "float64", None)}
    model = Frozen(before, {"s": Signature({"x": Endpoint("x:0", "float64", None)}, ends)})
    after = optimize(model, ORDER, Report()).graph
    one, other = (evaluate(each, ["y:0"], probes(before))[0] for each in (before, after))
    np.testing.assert_array_less(np.abs(one - other).max(), TOLERANCE * max(np.abs(one).max(), 1))
    return None


@st.composite
def flows(draw):
    frames = draw(st.booleans())
    with version_1() if frames else nullcontext():
        return draw(graphs((*STEPS[:8], *FLOW, *FLOW), 4)), frames


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(flows())
def test_all_laws_together_preserve_the_function_of_random_graphs_with_branches_and_loops(example):
    check_flow(example[0], frames=example[1])


@pytest.mark.nightly
@settings(max_examples=600, derandomize=False, suppress_health_check=list(HealthCheck))
@given(flows())
def test_all_laws_together_preserve_the_function_of_hundreds_of_random_graphs_with_branches_and_loops(example):
    check_flow(example[0], frames=example[1])
