"""Test copies of graphs without the values of their weights: sessions compute the same, and shapes stay."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.grappler import tf_optimizer

from tfopt.graph import grappler
from tfopt.graph.const_arrays import (
    LARGE_BYTES,
    WEIGHT,
    array_of,
    feed_weights,
    fold_constants,
    transform,
    zero_weights,
)
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.session import evaluate
from tfopt.graph.shape_inference import shapes_of
from tfopt.graph_checks.frozen_runtime import FrozenRuntime

KEY = "serving_default"
ROWS = LARGE_BYTES // 4 // 16
KERNEL = np.random.default_rng(0).normal(size=(ROWS, 16)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(3, ROWS)).astype(np.float32)


def frozen(build, **inputs):
    """Build a graph of TensorFlow 1; ``build`` returns the tensors of the outputs by name."""
    with tf.Graph().as_default() as graph:
        tensors = {name: tf.compat.v1.placeholder(*spec, name=name) for name, spec in inputs.items()}
        outputs = build(**tensors)
        read = lambda tensor: Endpoint(tensor.name, tensor.dtype.name, tuple(tensor.shape))  # noqa: E731
        ends = [{name: read(tensor) for name, tensor in side.items()} for side in (tensors, outputs)]
        return Frozen(graph.as_graph_def(), {KEY: Signature(*ends)})


def run_both(model, **batch):
    """Return the outputs of the runtime, after a comparison with those of a session that has the constants."""
    ends = model.signatures[KEY].outputs
    expected = evaluate(
        model.graph, [ends[name].tensor for name in sorted(ends)], {f"{n}:0": a for n, a in batch.items()}
    )
    with FrozenRuntime(model, KEY) as runtime:
        outputs = runtime.call(batch)
    for name, array in zip(sorted(ends), expected, strict=True):
        np.testing.assert_array_equal(outputs[name], array)
    return outputs


def bytes_of_constants(graph_def):
    return sum(node.ByteSize() for node in graph_def.node if node.op == "Const")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
def test_a_session_gets_weights_as_feeds_and_computes_the_same(dtype):
    kernel = (16 * KERNEL.repeat(4, 0)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    model = frozen(lambda x: {"y": x @ tf.cast(tf.constant(kernel), "float32")}, x=("float32", [None, 4 * ROWS]))
    graph, values = feed_weights(model.graph)
    assert bytes_of_constants(graph) < 1000 < LARGE_BYTES <= bytes_of_constants(model.graph)
    (value,) = values.values()
    np.testing.assert_array_equal(value, kernel)
    assert np.ptp(run_both(model, x=np.tile(X, 4))["y"]) > 0
    with FrozenRuntime(model, KEY) as runtime:
        assert bytes_of_constants(runtime._session.graph.as_graph_def()) < 1000


def test_small_constants_and_integers_stay_because_they_determine_shapes():
    def build(x):
        rows = tf.constant(np.arange(LARGE_BYTES // 4, dtype=np.int32) % ROWS)
        return {"y": tf.gather(x @ tf.constant(KERNEL[:, :1]), rows, axis=0)}

    model = frozen(build, x=("float32", [ROWS, ROWS]))
    graph, values = feed_weights(model.graph)
    assert not values
    assert list(graph.node) == list(zero_weights(model.graph).node) == list(model.graph.node)


def test_a_weight_may_be_an_output_or_an_input():
    def build(x):
        kernel = tf.constant(KERNEL, name="kernel")
        return {"y": x @ kernel, "kernel": kernel}

    model = frozen(build, x=("float32", [None, ROWS]))
    np.testing.assert_array_equal(run_both(model, x=X)["kernel"], KERNEL)
    model.signatures[KEY].inputs["kernel"] = model.signatures[KEY].outputs.pop("kernel")  # a default of TensorFlow 1
    assert not run_both(model, x=X, kernel=0 * KERNEL)["y"].any()


@pytest.fixture
def version_1_loops():
    tf.compat.v1.disable_control_flow_v2()
    yield
    tf.compat.v1.enable_control_flow_v2()


def test_a_weight_inside_a_loop_of_tensorflow_1_stays(version_1_loops):
    def build(x):
        body = lambda step, total: (step + 1, total + x @ tf.constant(KERNEL))  # noqa: E731
        return {"y": tf.while_loop(lambda step, total: step < 2, body, (0, tf.zeros((3, 16))))[1]}

    model = frozen(build, x=("float32", [3, ROWS]))
    assert any(node.op == "Enter" for node in model.graph.node)
    np.testing.assert_allclose(run_both(model, x=X)["y"], 2 * X @ KERNEL, rtol=1e-4, atol=1e-4)


def test_the_initializer_of_a_table_gets_weights():
    def build(x):
        filler = tf.lookup.KeyValueTensorInitializer(np.arange(ROWS * 16), KERNEL.ravel())
        table = tf.compat.v1.lookup.StaticHashTable(filler, 0.0)
        return {"y": table.lookup(x)}

    model = frozen(build, x=("int64", [None]))
    model.initializer = next(node.name for node in model.graph.node if node.op.startswith("LookupTableImport"))
    with FrozenRuntime(model, KEY) as runtime:
        np.testing.assert_array_equal(runtime.call({"x": np.arange(5)})["y"], KERNEL.ravel()[:5])


def test_shapes_are_inferred_without_the_values():
    model = frozen(lambda x: {"y": tf.nn.relu(x @ tf.constant(KERNEL, name="kernel"))}, x=("float32", [None, ROWS]))
    zeros = zero_weights(model.graph)
    assert zeros.ByteSize() < 2000 < model.graph.ByteSize()
    (constant,) = [node for node in zeros.node if node.op == "Const"]
    assert array_of(constant.attr["value"].tensor).shape == KERNEL.shape
    shapes = shapes_of(model.graph)
    assert (shapes["kernel", 0], shapes["Relu", 0]) == (KERNEL.shape, (None, 16))


def test_a_fed_array_begins_where_tensorflow_reads_it_without_a_copy():
    for size in (1, 7, 4096, LARGE_BYTES):
        proto = tf.make_tensor_proto(np.ones(size + 1, np.float32))
        assert array_of(proto).ctypes.data % 64 == 0


def test_code_that_reads_no_weights_gets_none_and_its_result_has_them():
    model = frozen(lambda x: {"y": tf.nn.relu(x @ tf.constant(KERNEL, name="kernel"))}, x=("float32", [None, ROWS]))
    sizes = []

    def function(graph_def):
        sizes.append(graph_def.ByteSize())
        return graph_def

    for change in (transform, fold_constants):
        assert list(change(model.graph, function).node) == list(model.graph.node)
    assert max(sizes) < 2000 < model.graph.ByteSize()


def test_weights_that_constant_folding_changes_keep_their_values():
    def build(x):
        first, second, third, fourth, filters = (
            tf.constant(KERNEL + number, name=name)
            for number, name in enumerate(("read", "added", "transposed", "squared", "filters"))
        )
        product = x @ tf.identity(first) + x @ tf.raw_ops.AddV2(x=second, y=tf.ones(16))
        image = tf.nn.conv2d(x[:, :, None, None], tf.reshape(filters, [ROWS, 1, 1, 16]), 1, "SAME")[:, 0, 0]
        return {"y": product + x @ tf.transpose(tf.transpose(third)) + x @ (fourth * fourth) + 2.0 * image}

    model = frozen(build, x=("float32", [None, ROWS]))
    fed, folded = [], []

    def fold(graph_def):
        fed.extend(node.name for node in graph_def.node if node.op == "Placeholder")
        folded.append(grappler.run(replace(model, graph=graph_def), ["constant_folding"]).graph)
        return folded[0]

    graph = fold_constants(model.graph, fold)
    assert fed == ["x", "read"]
    assert not [node for node in graph.node if WEIGHT in node.attr]
    tensor = model.signatures[KEY].outputs["y"].tensor
    before, after = (evaluate(each, [tensor], {"x:0": X})[0] for each in (model.graph, graph))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-2)
    kernels = [node for node in graph.node if node.op == "MatMul"]
    ops = {node.name: node.op for node in graph.node}
    assert [ops[node.input[1]] for node in kernels].count("Const") == 3, "those that are folded"


def test_grappler_inlines_functions_without_the_weights_that_they_get(monkeypatch):
    sizes, original = [], tf_optimizer.OptimizeGraph

    def measured(config, item):
        sizes.append(item.ByteSize())
        return original(config, item)

    monkeypatch.setattr(tf_optimizer, "OptimizeGraph", measured)

    @tf.function(autograph=False)
    def product(x, kernel):
        return x @ kernel

    def build(x):
        kernel = tf.constant(KERNEL, name="kernel")
        function = product.get_concrete_function(tf.TensorSpec([None, ROWS]), tf.TensorSpec(KERNEL.shape))
        return {"y": function(x, kernel) + function(x, tf.constant(2 * KERNEL, name="double"))}

    model = frozen(build, x=("float32", [None, ROWS]))
    inlined = grappler.run(model, ["function"])
    assert sum(node.op == "MatMul" for node in inlined.graph.node) == 2
    assert max(sizes) < 10_000 < model.graph.ByteSize()
    np.testing.assert_allclose(run_both(inlined, x=X)["y"], 3 * X @ KERNEL, rtol=1e-4, atol=1e-3)
