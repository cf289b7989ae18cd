"""Tests of `quantize_graph`: 8-bit operations, errors of each kind of layer, calibration, refusals."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.model_card import LineageStep
from tfopt.components.quantize_graph.component import quantize_graph
from tfopt.components.quantize_graph.int8_operations import FUSED, quantized_weights
from tfopt.components.quantize_graph.parameters import GraphQuantization
from tfopt.components.quantize_graph.quantize import quantize
from tfopt.declaration import step_order
from tfopt.errors import ComponentError
from tfopt.graph.mutable_graph import Graph
from tfopt.runtimes import environment
from tfopt.saved_models.saved_model import read

CONV, DEPTHWISE, PRODUCT = FUSED["Conv2D"], FUSED["DepthwiseConv2dNative"], FUSED["MatMul"]


@pytest.fixture(scope="module")
def quantized(digits_model, digits_examples, tmp_path_factory):
    """The digits model in 8 bits, calibrated on real digits."""
    target = tmp_path_factory.mktemp("quantized") / "quantized"
    return quantize_graph(model=digits_model, quantized=target, examples=digits_examples)["quantized"]


def counts(folder) -> dict[str, int]:
    """Count the operations of a SavedModel."""
    names = [node.op for node in read(folder).graph.node]
    return {op: names.count(op) for op in set(names)}


def write_model(folder, serve, *shape):
    """Export a function of ``x`` that returns ``y``."""
    spec = tf.TensorSpec(shape, name="x")
    function = tf.function(lambda x: {"y": serve(x)}, input_signature=[spec])
    tf.saved_model.save(tf.Module(), str(folder), signatures=function)


def quantized_and_parent(folder, serve, inputs, calibrated=None, **parameters):
    """Quantize a function, calibrated on its inputs or on others; return its operations and both outputs."""
    write_model(folder / "model", serve, None, *inputs.shape[1:])
    records = inputs if calibrated is None else calibrated
    for split in ("train", "eval"):
        write_examples(folder / "examples" / f"Split-{split}" / "data.gz", {"x": records.reshape(len(records), -1)})
    quantize_graph(model=folder / "model", quantized=folder / "quantized", examples=folder / "examples", **parameters)
    parent, child = (
        runtimes.load(SavedModel(folder / name)).run({"x": inputs})["y"] for name in ("model", "quantized")
    )
    return counts(SavedModel(folder / "quantized").saved_model), parent, child


def weights(seed, *shape):
    """Draw weights whose channels differ in size by a factor of up to 100."""
    draw = np.random.default_rng(seed)
    scale = 10 ** draw.uniform(-1, 1, shape[-1])
    return tf.constant((draw.normal(size=shape) * scale / np.sqrt(np.prod(shape[:-1]))).astype(np.float32))


def images(*shape, low=0.0, high=1.0):
    """Draw inputs."""
    return np.random.default_rng(7).uniform(low, high, shape).astype(np.float32)


def error(parent, child):
    """Return the largest difference as a fraction of the range."""
    return np.abs(parent - child).max() / np.ptp(parent)


def test_all_layers_compute_in_8_bits_and_pass_8_bits_on(quantized, digits_model):
    ops = counts(quantized.saved_model)
    assert ops[CONV] == ops[DEPTHWISE] == ops[PRODUCT] == ops["QuantizeV2"] == ops["QuantizedMaxPool"] == 1
    assert not {"Conv2D", "DepthwiseConv2dNative", "MatMul", "MaxPool", "Dequantize"} & set(ops)
    report = quantized.card.facts["report"]
    assert len(report["layers"]) == 3 and report["stays"] == {}
    before, after = (runtimes.load(SavedModel(path)) for path in (digits_model, quantized.path))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)


def test_the_card_has_calibration_and_parity_on_other_records(quantized):
    facts = quantized.card.facts
    assert facts["calibration"]["used"] == 200 and facts["calibration"]["split"] == "train"
    verified = facts["verified"]
    assert verified["inputs"] == "examples, split 'eval'" and verified["records"] == 256
    assert verified["outputs"]["digit"]["agreement"] >= 0.97
    assert 0 < verified["outputs"]["digit"]["relative_error"] < 0.2
    assert facts["stability"]["activations"] == 5


def test_weights_need_a_quarter_of_the_bytes(tmp_path):
    kernel = weights(0, 256, 512)
    ops, *_ = quantized_and_parent(tmp_path, lambda x: x @ kernel, images(8, 256))
    before, after = ((tmp_path / name).rglob("saved_model.pb") for name in ("model", "quantized"))
    assert next(after).stat().st_size < 0.3 * next(before).stat().st_size
    assert ops[PRODUCT] == 1


def residual(x):
    """Return a block with a projected shortcut, and one with an identity, as in ResNet."""
    flow = tf.nn.relu(tf.nn.conv2d(x, weights(0, 3, 3, 3, 16), 1, "SAME") + weights(1, 16))
    flow = tf.nn.max_pool2d(flow, 3, 2, "SAME")
    left = tf.nn.bias_add(tf.nn.conv2d(flow, weights(2, 1, 1, 16, 8), 1, "SAME"), weights(3, 8))
    right = tf.nn.bias_add(tf.nn.conv2d(flow, weights(4, 1, 1, 16, 8), 1, "SAME"), weights(5, 8))
    flow = tf.nn.relu(left + right)
    inner = tf.nn.relu(tf.nn.conv2d(flow, weights(6, 1, 1, 8, 4), 1, "SAME"))
    inner = tf.nn.bias_add(tf.nn.conv2d(inner, weights(7, 3, 3, 4, 8), 1, "SAME"), weights(8, 8))
    return tf.reduce_mean(tf.nn.relu(inner + flow), [1, 2])


def test_residuals_are_added_in_8_bits(tmp_path):
    ops, parent, child = quantized_and_parent(tmp_path, residual, images(32, 12, 12, 3))
    assert ops[CONV] == 5 and ops["QuantizeV2"] == ops["Dequantize"] == 1
    assert not {"AddV2", "Relu", "BiasAdd"} & set(ops)
    assert error(parent, child) < 0.05


def two_dense(x):
    """Return a dense layer after another, with a reshape in between."""
    flow = tf.nn.relu(tf.nn.bias_add(x @ weights(0, 32, 24), weights(1, 24)))
    return tf.nn.bias_add(tf.reshape(flow, [-1, 12]) @ weights(2, 12, 6), weights(3, 6))


CASES = {
    "dense": (two_dense, (64, 32), -1.0, {PRODUCT: 2, "Reshape": 1, "QuantizeV2": 1, "Dequantize": 0}),
    "transposed weights": (
        lambda x: tf.matmul(x, tf.transpose(weights(0, 32, 6)), transpose_b=True),
        (64, 32),
        -1.0,
        {PRODUCT: 1},
    ),
    "signed input of a convolution": (
        *(lambda x: tf.nn.conv2d(x, weights(0, 3, 3, 4, 8), 1, "VALID"), (32, 6, 6, 4), -1.0),
        {CONV: 1, "Dequantize": 1},
    ),
    "stride, dilation and explicit padding": (
        lambda x: tf.nn.conv2d(
            tf.nn.relu(tf.nn.conv2d(x, weights(0, 3, 3, 4, 8), 2, [[0, 0], [0, 1], [1, 0], [0, 0]])),
            *(weights(1, 3, 3, 8, 4), 1, "SAME"),
            dilations=2,
        ),
        *((32, 9, 9, 4), 0.0, {CONV: 2, "QuantizeV2": 1}),
    ),
    "depthwise of two channels each": (
        lambda x: tf.nn.depthwise_conv2d(x, weights(0, 3, 3, 6, 2), [1, 2, 2, 1], "SAME"),
        *((32, 9, 9, 6), -1.0, {DEPTHWISE: 1}),
    ),
    "ReLU6": (
        lambda x: tf.nn.relu6(2 * tf.nn.conv2d(x, weights(0, 3, 3, 4, 8), 1, "SAME")),
        *((32, 6, 6, 4), 0.0, {CONV: 1, "Relu6": 0}),
    ),
    "read in 8 bits and in float32": (
        lambda x: (lambda y: tf.nn.tanh(y) + y @ weights(2, 24, 24))(tf.nn.relu(x @ weights(0, 32, 24))),
        *((64, 32), -1.0, {PRODUCT: 2, "Dequantize": 1, "QuantizeV2": 1}),
    ),
    "a sum without ReLU stays": (
        lambda x: tf.nn.conv2d(x, weights(0, 1, 1, 4, 4), 1, "SAME") + x,
        *((32, 6, 6, 4), 0.0, {CONV: 1, "AddV2": 1}),
    ),
    "a channel of zeros": (lambda x: x @ (weights(0, 32, 4) * [0.0, 1, 1, 1]), (64, 32), -1.0, {PRODUCT: 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_form_of_a_layer_is_near_its_parent(case, tmp_path):
    serve, shape, low, expected = CASES[case]
    ops, parent, child = quantized_and_parent(tmp_path, serve, images(*shape, low=low))
    assert {op: ops.get(op, 0) for op in expected} == expected
    assert parent.shape == child.shape and 0 < error(parent, child) < 0.03


def test_values_beyond_the_calibrated_range_saturate(tmp_path):
    inputs = images(16, 8)
    _, parent, child = quantized_and_parent(tmp_path, lambda x: x @ weights(0, 8, 4), 3 * inputs, calibrated=inputs)
    expected = runtimes.load(SavedModel(tmp_path / "model")).run({"x": np.minimum(3 * inputs, inputs.max())})["y"]
    assert error(expected, child) < 0.03 and error(parent, child) > 0.1


def test_seven_bit_weights_for_processors_without_vnni(tmp_path):
    kernel = weights(0, 32, 8)
    _, parent, child = quantized_and_parent(tmp_path, lambda x: x @ kernel, images(64, 32, low=-1.0), reduce_range="on")
    assert error(parent, child) < 0.03
    graph = Graph.of(read(tmp_path / "model").graph)
    (node,) = graph.of_op("MatMul")
    integers, limits = quantized_weights(node, kernel.numpy(), 63)
    assert np.abs(integers).max() == 63
    assert np.allclose(integers * limits / 127, kernel, atol=np.abs(kernel).max(axis=0) / 100)


def test_only_requested_operations(tmp_path):
    def serve(x):
        return tf.reshape(tf.nn.relu(tf.nn.conv2d(x, weights(0, 1, 1, 4, 4), 1, "SAME")), [-1, 16]) @ weights(1, 16, 3)

    ops, *_ = quantized_and_parent(tmp_path, serve, images(16, 2, 2, 4), operations=["MatMul"])
    assert ops["Conv2D"] == ops[PRODUCT] == 1
    report = SavedModel(tmp_path / "quantized").card.facts["report"]
    assert report["stays"] == {"not among the requested operations": {"Conv2D": 1}}


def test_a_signature_with_other_inputs_stays_and_one_with_the_same_is_quantized(tmp_path):
    kernel = weights(0, 8, 4)

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
        def serve(self, x):
            return {"y": x @ kernel}

        @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
        def doubled(self, x):
            return {"y": (2 * x) @ kernel}

        @tf.function(input_signature=[tf.TensorSpec([None, 8], name="other")])
        def other(self, other):
            return {"z": tf.exp(other) @ kernel}

    model = Model()
    signatures = {"serving_default": model.serve, "doubled": model.doubled, "other": model.other}
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=signatures)
    for split in ("train", "eval"):
        write_examples(tmp_path / "examples" / f"Split-{split}" / "data.gz", {"x": images(16, 8)})
    made = quantize_graph(model=tmp_path / "model", quantized=tmp_path / "made", examples=tmp_path / "examples")
    assert made["quantized"].card.facts["report"]["stays"] == {"the examples do not reach it": {"MatMul": 1}}
    for key, name, output in (("doubled", "x", "y"), ("other", "other", "z")):
        parent, child = (
            runtimes.load(SavedModel(tmp_path / one), signature=key).run({name: images(16, 8)})[output]
            for one in ("model", "made")
        )
        assert error(parent, child) < (1e-6 if key == "other" else 0.03)


def test_text_and_lookup_tables_stay(tmp_path):
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            words, numbers = tf.constant(["dog", "fish"]), tf.constant([1, 2])
            self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, numbers), 0)

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.string, name="words")])
        def serve(self, words):
            rows = tf.gather(weights(0, 3, 4), self.table.lookup(words))
            return {"y": tf.reshape(rows, [-1, 12]) @ weights(1, 12, 2)}

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=model.serve)
    environment.add_variables(tmp_path / "model", {"TF_ENABLE_ONEDNN_OPTS": "1"})
    words = np.random.default_rng(0).choice(["dog", "fish", "bird"], size=(16, 3))
    for split in ("train", "eval"):
        write_examples(tmp_path / "examples" / f"Split-{split}" / "data.gz", {"words": words})
    made = quantize_graph(model=tmp_path / "model", quantized=tmp_path / "made", examples=tmp_path / "examples")
    assert PRODUCT in counts(made["quantized"].saved_model)
    assert environment.read_variables(made["quantized"]) == {"TF_ENABLE_ONEDNN_OPTS": "1"}
    before, after = (runtimes.load(SavedModel(tmp_path / name)) for name in ("model", "made"))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)


@pytest.mark.parametrize(
    ("serve", "parameters", "message"),
    [
        (tf.exp, {}, "nothing to quantize: no convolution"),
        (lambda x: x @ tf.transpose(x), {}, "its weights are computed: MatMul"),
        (lambda x: x @ weights(0, 8, 2), {"operations": ["Conv2D"]}, "not among the requested operations: MatMul"),
        (lambda x: x @ weights(0, 8, 2), {"operations": ["Conv3D"]}, "did you mean Conv2D"),
        (lambda x: tf.minimum(tf.math.log(x - 2), 9.0) @ weights(0, 8, 2), {}, "NaN"),
        (lambda x: x @ weights(0, 8, 2), {"split": "validation"}, "validation"),
        (lambda x: x @ weights(0, 8, 2), {"tolerance": 1e-5}, "of the output's range"),
    ],
    ids=["no layer", "computed weights", "none requested", "unknown operation", "NaN", "no split", "tolerance"],
)
def test_refusals(tmp_path, serve, parameters, message):
    with pytest.raises(ComponentError, match=message):
        quantized_and_parent(tmp_path, serve, images(16, 8), **parameters)
    assert not (tmp_path / "quantized").exists()


def test_a_tensorflow_without_the_kernels_is_refused(tmp_path, monkeypatch):
    from tensorflow.python.framework import kernels

    nothing = type("Kernels", (), {"kernel": []})()
    monkeypatch.setattr(kernels, "get_registered_kernels_for_op", lambda _: nothing)
    with pytest.raises(ComponentError, match="built with oneDNN"):  # in the child process, before it reads the model
        quantize(SavedModel(tmp_path), tmp_path, Examples(tmp_path), GraphQuantization())


def test_trained_ranges_are_refused(digits_model, digits_examples, tmp_path, monkeypatch):
    steps = (LineageStep(component="quantize", parameters={}),)
    monkeypatch.setattr(step_order, "applied_steps", lambda model: steps)
    with pytest.raises(ComponentError, match="quantize_graph after quantize"):
        quantize_graph(model=digits_model, quantized=tmp_path / "made", examples=digits_examples)
