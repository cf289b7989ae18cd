"""Test symmetric int8 quantization of ONNX files, as TensorRT requires it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.components.test_convert_tensorrt import write_network
from tests.runtimes.formulas import saved
from tfopt.artifacts import Examples, Model
from tfopt.components.convert_tensorrt import int8_scales
from tfopt.conversion.convert import is_quantized
from tfopt.errors import ComponentError


def assert_symmetric(model: onnx.ModelProto) -> None:
    """Assert that every quantizer is int8 with zero point 0, and that dequantizers of weights follow a quantizer."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type in int8_scales.QUANTIZERS]
    assert nodes
    for node in nodes:
        zero = stored[node.input[2]]
        assert zero.dtype == np.int8 and not zero.any()
        assert stored[node.input[1]].dtype == np.float32 and (stored[node.input[1]] > 0).all()
        assert node.op_type == "QuantizeLinear" or node.input[0] not in stored


def test_a_calibrated_model_is_quantized_symmetrically(digits_model, digits_examples, tmp_path):
    facts, made = write_network(digits_model, digits_examples, tmp_path / "out", precision="int8")
    assert_symmetric(made)
    assert facts["levels"]["weights"] >= 3 and facts["ranges"] == "explicit"
    assert facts["calibration"]["used"] == 50 and facts["stability"]["activations"] > 5


def test_the_ranges_of_an_int8_onnx_file_become_symmetric(digits_model, digits_examples, tmp_path):
    from tfopt.components.export_onnx.export import export
    from tfopt.components.export_onnx.parameters import OnnxConversion

    source = tmp_path / "int8"
    source.mkdir()
    parameters = OnnxConversion(precision="int8", calibration_count=50)
    export(Model(digits_model), Examples(digits_examples), source, parameters)
    assert is_quantized(Model(source)) and not is_quantized(Model(digits_model))
    facts, made = write_network(source, digits_examples, tmp_path / "out", precision="int8")
    assert_symmetric(made)
    assert facts["ranges"] == "given" and facts["levels"]["widened"] >= 5 and facts["levels"]["biases"] >= 2
    assert facts["onnx"]["outputs"]["digit"]["agreement"] >= 0.98


def test_trained_ranges_become_symmetric_and_kernels_keep_their_scales(tmp_path):
    import tensorflow as tf

    integers = np.random.default_rng(0).integers(-127, 128, (6, 5))
    integers[0] = 127
    scales = np.array([0.01, 0.02, 0.005, 0.1, 0.03], np.float32)
    kernel = tf.constant((integers * scales).astype(np.float32))
    fake = tf.quantization.fake_quant_with_min_max_vars
    model = saved(tmp_path / "m", lambda x: {"y": fake(x, -0.5, 0.75) @ kernel}, x=([None, 6], tf.float32))
    facts, made = write_network(model, None, tmp_path / "out", precision="int8")
    assert_symmetric(made)
    assert (facts["ranges"], facts["levels"]) == ("trained", {"widened": 1, "weights": 1, "biases": 0})
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    floats = next(array for array in stored.values() if array.shape == (6, 5))
    np.testing.assert_allclose(floats, integers * scales, rtol=1e-5)
    assert any(array.shape == (5,) and np.allclose(array, scales, rtol=1e-5) for array in stored.values())
    assert [node.op_type for node in made.graph.node].count("Clip") == 1  # to -0.5 and 0.75, the limits of the training
    assert facts["onnx"]["outputs"]["y"]["relative_error"] < 0.02


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize(("kind", "zero"), [("uint8", 0), ("uint8", 100), ("int8", -128), ("int8", 20), ("int8", 0)])
def test_symmetric_ranges_clip_to_the_previous_ranges(kind, zero, by_channel):
    draw = np.random.default_rng(abs(zero))
    scale = np.array(0.02, np.float32)
    integers = draw.integers(-127, 128, (4, 4)).astype(np.int8)
    scales = draw.uniform(0.01, 0.1, 4).astype(np.float32) if by_channel else np.array(0.05, np.float32)
    model = quantized(np.array(zero, kind), scale, integers, np.zeros(scales.shape, np.int8), scales)
    low, high = ((end - zero) * 0.02 for end in ((0, 255) if kind == "uint8" else (-128, 127)))
    x = draw.uniform(2 * low - 1, 2 * high + 1, (50, 4)).astype(np.float32)  # also values outside of the range
    x[0, :2] = low, high
    before = run(model, x)
    counts = int8_scales.make_symmetric(model)
    onnx.checker.check_model(model, full_check=True)
    assert_symmetric(model)
    assert counts == {"widened": int((kind, zero) != ("int8", 0)), "weights": 1, "biases": 0}
    widest = max(-low, high) / 127  # rounding costs at most half a scale of each
    limit = (0.02 + widest) / 2 * np.abs(integers * scales).sum(0).max() * 1.01
    assert np.abs(run(model, x) - before).max() <= limit
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_allclose(stored["wd_floats"], integers * scales, rtol=1e-6)  # the weights are unchanged


def test_uint8_weights_become_symmetric_int8():
    draw = np.random.default_rng(0)
    integers, zeros = draw.integers(0, 256, (4, 4)).astype(np.uint8), np.array([128, 0, 255, 7], np.uint8)
    scales = np.array([0.1, 0.2, 0.05, 1.0], np.float32)
    model = quantized(np.array(0, np.int8), np.array(0.02, np.float32), integers, zeros, scales)
    x = draw.uniform(-2, 2, (20, 4)).astype(np.float32)
    before = run(model, x)
    int8_scales.make_symmetric(model)
    assert_symmetric(model)
    widest = np.abs((integers.astype(np.float32) - zeros) * scales).max(0) / 127
    assert (np.abs(run(model, x) - before) <= widest / 2 * np.abs(x).sum(1, keepdims=True) + 1e-3).all()


def test_16_bit_and_float_models_raise():
    model = quantized(
        np.array(0, np.uint16), np.array(1, np.float32), *[np.ones(4, np.int8)] * 2, np.ones(4, np.float32)
    )
    with pytest.raises(ComponentError, match="uint16 levels"):
        int8_scales.make_symmetric(model)
    del model.graph.node[:3]
    with pytest.raises(ComponentError, match="nothing in the model has 8-bit levels"):
        int8_scales.check_quantized(model, "int8")


def quantized(x_zero: np.ndarray, x_scale: np.ndarray, weights: np.ndarray, zeros: np.ndarray, scales: np.ndarray):
    """Build y = dequantize(quantize(x)) @ dequantize(weights), per channel if there are several scales."""
    constants = {"xs": x_scale, "xz": x_zero, "w": weights, "ws": scales, "wz": zeros}
    axis = {"axis": 1} if scales.size > 1 else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], **axis),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 4]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]
