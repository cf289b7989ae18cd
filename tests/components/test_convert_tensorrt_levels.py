"""The 8-bit levels of a network as TensorRT takes them: whole numbers around zero, and weights that lie on them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.components.test_convert_tensorrt import prepared
from tests.runtimes.formulas import saved
from tfopt.artifacts import Examples, Model
from tfopt.components.convert_tensorrt import checks as asked
from tfopt.components.convert_tensorrt import int8_scales as levels
from tfopt.errors import ComponentError


def only_what_tensorrt_takes(model: onnx.ModelProto) -> None:
    """Every quantizer and dequantizer is int8 around zero, and every one of weights has its quantizer."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type in levels.PAIR]
    assert nodes
    for node in nodes:
        zero = stored[node.input[2]]
        assert zero.dtype == np.int8 and not zero.any()
        assert stored[node.input[1]].dtype == np.float32 and (stored[node.input[1]] > 0).all()
        assert node.op_type == "QuantizeLinear" or node.input[0] not in stored


def test_int8_has_levels_that_tensorrt_takes_and_weights_on_them(digits_model, digits_examples, tmp_path):
    facts, made = prepared(digits_model, digits_examples, tmp_path / "out", precision="int8")
    only_what_tensorrt_takes(made)
    assert facts["levels"]["weights"] >= 3 and facts["ranges"] == "explicit"
    assert facts["calibration"]["used"] == 50 and facts["stability"]["activations"] > 5


def test_an_int8_onnx_file_keeps_its_weights_and_gets_ranges_around_zero(digits_model, digits_examples, tmp_path):
    from tfopt.components.export_onnx.export import export
    from tfopt.components.export_onnx.request import Request as ExportRequest

    source = tmp_path / "int8"
    source.mkdir()
    wish = ExportRequest(precision="int8", reduce_range="off", calibration_count=50)
    export(Model(digits_model), Examples(digits_examples), source, wish)
    assert asked.has_levels(Model(source)) and not asked.has_levels(Model(digits_model))
    facts, made = prepared(source, digits_examples, tmp_path / "out", precision="int8")
    only_what_tensorrt_takes(made)
    assert facts["ranges"] == "given" and facts["levels"]["widened"] >= 5 and facts["levels"]["biases"] >= 2
    assert facts["onnx"]["outputs"]["digit"]["agreement"] >= 0.98


def test_trained_ranges_are_widened_and_their_kernels_kept_on_their_levels(tmp_path):
    import tensorflow as tf

    whole = np.random.default_rng(0).integers(-127, 128, (6, 5))
    whole[0] = 127
    steps = np.array([0.01, 0.02, 0.005, 0.1, 0.03], np.float32)
    kernel = tf.constant((whole * steps).astype(np.float32))
    fake = tf.quantization.fake_quant_with_min_max_vars
    model = saved(tmp_path / "m", lambda x: {"y": fake(x, -0.5, 0.75) @ kernel}, x=([None, 6], tf.float32))
    facts, made = prepared(model, None, tmp_path / "out", precision="int8")
    only_what_tensorrt_takes(made)
    assert (facts["ranges"], facts["levels"]) == ("trained", {"widened": 1, "weights": 1, "biases": 0})
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    floats = next(array for array in stored.values() if array.shape == (6, 5))
    np.testing.assert_allclose(floats, whole * steps, rtol=1e-5)
    assert any(array.shape == (5,) and np.allclose(array, steps, rtol=1e-5) for array in stored.values())
    assert [node.op_type for node in made.graph.node].count("Clip") == 1  # to -0.5 and 0.75, where training cut off
    assert facts["onnx"]["outputs"]["y"]["relative_error"] < 0.02


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize(("kind", "zero"), [("uint8", 0), ("uint8", 100), ("int8", -128), ("int8", 20), ("int8", 0)])
def test_widened_ranges_hold_what_they_held_before(kind, zero, by_channel):
    draw = np.random.default_rng(abs(zero))
    step = np.array(0.02, np.float32)
    whole = draw.integers(-127, 128, (4, 4)).astype(np.int8)
    steps = draw.uniform(0.01, 0.1, 4).astype(np.float32) if by_channel else np.array(0.05, np.float32)
    model = quantized(np.array(zero, kind), step, whole, np.zeros(steps.shape, np.int8), steps)
    low, high = ((end - zero) * 0.02 for end in ((0, 255) if kind == "uint8" else (-128, 127)))
    x = draw.uniform(2 * low - 1, 2 * high + 1, (50, 4)).astype(np.float32)  # also what the range cuts off
    x[0, :2] = low, high
    before = answer(model, x)
    done = levels.symmetric(model)
    onnx.checker.check_model(model, full_check=True)
    only_what_tensorrt_takes(model)
    assert done == {"widened": int((kind, zero) != ("int8", 0)), "weights": 1, "biases": 0}
    widest = max(-low, high) / 127  # half a step of each is what rounding may cost
    limit = (0.02 + widest) / 2 * np.abs(whole * steps).sum(0).max() * 1.01
    assert np.abs(answer(model, x) - before).max() <= limit
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_allclose(stored["wd_floats"], whole * steps, rtol=1e-6)  # the weights lie on the same levels


def test_unsigned_weights_move_to_levels_around_zero():
    draw = np.random.default_rng(0)
    bytes_, zeros = draw.integers(0, 256, (4, 4)).astype(np.uint8), np.array([128, 0, 255, 7], np.uint8)
    steps = np.array([0.1, 0.2, 0.05, 1.0], np.float32)
    model = quantized(np.array(0, np.int8), np.array(0.02, np.float32), bytes_, zeros, steps)
    x = draw.uniform(-2, 2, (20, 4)).astype(np.float32)
    before = answer(model, x)
    levels.symmetric(model)
    only_what_tensorrt_takes(model)
    widest = np.abs((bytes_.astype(np.float32) - zeros) * steps).max(0) / 127
    assert (np.abs(answer(model, x) - before) <= widest / 2 * np.abs(x).sum(1, keepdims=True) + 1e-3).all()


def test_levels_of_16_bits_and_models_without_any_are_refused():
    model = quantized(
        np.array(0, np.uint16), np.array(1, np.float32), *[np.ones(4, np.int8)] * 2, np.ones(4, np.float32)
    )
    with pytest.raises(ComponentError, match="uint16 levels"):
        levels.symmetric(model)
    del model.graph.node[:3]
    with pytest.raises(ComponentError, match="nothing in the model has 8-bit levels"):
        levels.check(model)


def quantized(x_zero: np.ndarray, x_step: np.ndarray, weights: np.ndarray, zeros: np.ndarray, steps: np.ndarray):
    """y = dequantize(quantize(x)) @ dequantize(weights), per channel where there are several steps."""
    draw = {"xs": x_step, "xz": x_zero, "w": weights, "ws": steps, "wz": zeros}
    axis = {"axis": 1} if steps.size > 1 else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], **axis),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 4]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in draw.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]
