"""Tests that the effect of each Grappler optimizer is stored in the SavedModel."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.errors import ComponentError
from tfopt.graph import grappler
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph_def import nodes
from tfopt.saved_models.saved_model import read, write

X = tf.TensorSpec([None, 4, 4, 8], tf.float32, name="x")
DRAW = np.random.default_rng(0)
KERNEL = DRAW.normal(size=(3, 3, 8, 8)).astype(np.float32)
BIAS = DRAW.normal(size=8).astype(np.float32)


def conv(x):
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, KERNEL, 1, "SAME"), BIAS))


def called(x):
    return tf.function(lambda y: tf.tanh(y))(x)


def training_leftovers(x):
    return tf.identity(tf.stop_gradient(tf.identity(x))) * 2.0


def checked(x):
    return tf.debugging.check_numerics(x, "no numbers") * 2.0


def volume(x):
    return tf.cast(tf.reduce_prod(tf.shape(x)), tf.float32) + x


def constants(x):
    return x * (tf.constant(BIAS) * 2.0 + 1.0)


def square(x):
    return tf.pow(x, 2.0)


def channels_first(x):
    y = tf.nn.max_pool(tf.transpose(x, [0, 3, 1, 2]), 2, 2, "VALID", data_format="NCHW")
    return tf.transpose(tf.tanh(y), [0, 2, 3, 1])


def twice(x):
    return tf.tanh(x) * 2.0 + tf.tanh(x) * 3.0


def dead_branch(x):
    dead, alive = tf.raw_ops.Switch(data=x, pred=tf.constant(True))
    return tf.raw_ops.Merge(inputs=[tf.tanh(dead), tf.nn.relu(alive)])[0] * 2.0


def waits(x):
    with tf.control_dependencies([tf.no_op(), tf.identity(x)]):
        return x * 2.0


# By optimizer: a function, an operation, and the minimal change of its count.
STORED = {
    "function": (called, "PartitionedCall", -1),
    "pruning": (training_leftovers, "StopGradient", -1),
    "debug_stripper": (checked, "CheckNumerics", -1),
    "shape": (volume, "Prod", -1),
    "constant_folding": (constants, "AddV2", -1),
    "arithmetic": (square, "Pow", -1),
    "common_subgraph": (twice, "Tanh", -1),
    "loop": (dead_branch, "Switch", -1),
    "dependency": (waits, "NoOp", -1),
    "layout": (channels_first, "Transpose", +2),
    "remapper": (conv, "_FusedConv2D", +1),
    "auto_mixed_precision_cpu": (conv, "Cast", +1),
}
NO_EFFECT_ON_CPU = {"auto_mixed_precision": "acts on nodes placed on a GPU"}


@pytest.mark.parametrize("name", STORED)
def test_effect_is_stored_and_outputs_are_unchanged(name, tmp_path):
    function, op, change = STORED[name]
    before = frozen(function)
    after = grappler.run(before, [name])
    write(before, tmp_path / "before")
    write(after, tmp_path / "after")
    counts = [Counter(node.op for node in nodes(graph)) for graph in (before.graph, on_disk(tmp_path / "after"))]
    difference = counts[1][op] - counts[0][op]
    assert difference <= change if change < 0 else difference >= change, counts
    x = DRAW.normal(size=(2, 4, 4, 8)).astype(np.float32)
    parent, child = (runtimes.load(SavedModel(tmp_path / one)) for one in ("before", "after"))
    tolerance = 0.1 if "mixed" in name else 1e-5
    np.testing.assert_allclose(child.run({"x": x})["y"], parent.run({"x": x})["y"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NO_EFFECT_ON_CPU)
def test_optimizer_for_other_devices_has_no_effect(name):
    before = frozen(conv)
    assert ops(grappler.run(before, [name])) == ops(before)


ACTIVATIONS = {"Relu": tf.nn.relu, "Relu6": tf.nn.relu6, "Elu": tf.nn.elu, "LeakyRelu": tf.nn.leaky_relu}
LINEAR = {
    "_FusedConv2D": lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME"),
    "_FusedMatMul": lambda x: tf.matmul(tf.reshape(x, [-1, 8]), KERNEL[0, 0]),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("fused", LINEAR)
def test_remapper_fuses_bias_and_activation(fused, activation):
    act, linear = ACTIVATIONS[activation], LINEAR[fused]
    after = grappler.run(frozen(lambda x: act(tf.nn.bias_add(linear(x), BIAS))), ["remapper"])
    (fused_node,) = [node for node in after.graph.node if node.op == fused]
    assert list(fused_node.attr["fused_ops"].list.s) == [b"BiasAdd", activation.encode()]
    assert not {"BiasAdd", activation} & set(ops(after))


def test_remapper_fuses_batch_norm_and_bias_after_squeeze_into_convolution():
    def norm(x):
        flow = tf.nn.conv2d(x, KERNEL, 1, "SAME")
        return tf.compat.v1.nn.fused_batch_norm(flow, BIAS, BIAS, BIAS, BIAS**2, is_training=False)[0]

    def squeezed(x):
        return tf.nn.bias_add(tf.squeeze(tf.nn.conv2d(x[:, :3], KERNEL, 1, "VALID"), [1]), BIAS)

    for function, inside in ((norm, b"FusedBatchNorm"), (squeezed, b"BiasAdd")):
        after = grappler.run(frozen(function), ["remapper"])
        (fused_node,) = [node for node in after.graph.node if node.op == "_FusedConv2D"]
        assert list(fused_node.attr["fused_ops"].list.s) == [inside]


def test_every_optimizer_is_tested():
    assert set(grappler.OPTIMIZERS) == {*STORED, *NO_EFFECT_ON_CPU}


def test_default_writes_no_private_ops():
    after = grappler.run(frozen(conv))
    assert not [op for op in ops(after) if op.startswith("_")]


def test_input_model_is_unchanged_and_result_has_no_devices():
    before = frozen(conv)
    copy = before.graph.SerializeToString(deterministic=True)
    after = grappler.run(before, ["remapper"])
    assert before.graph.SerializeToString(deterministic=True) == copy
    assert not {node.device for node in nodes(after.graph)} - {""}


def test_model_from_disk_keeps_its_signature(digits_model, tmp_path):
    parent = read(digits_model / "Format-Serving")
    write(grappler.run(parent), tmp_path / "model")
    before, after = (runtimes.load(SavedModel(path)) for path in (digits_model, tmp_path / "model"))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    assert len(on_disk(tmp_path / "model").node) < len(parent.graph.node)


def test_unknown_optimizer_is_refused_with_the_nearest():
    with pytest.raises(ComponentError, match="did you mean remapper"):
        grappler.run(frozen(conv), ["remaper"])


def frozen(function) -> Frozen:
    concrete = tf.function(function).get_concrete_function(X)
    (y,) = concrete.outputs
    ends = {"x": Endpoint("x:0", "float32", (None, 4, 4, 8))}, {"y": Endpoint(y.name, "float32", tuple(y.shape))}
    return Frozen(concrete.graph.as_graph_def(), {"serving_default": Signature(*ends)})


def ops(model: Frozen) -> Counter:
    return Counter(node.op for node in nodes(model.graph))


def on_disk(folder):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    return Proto.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
