"""Test float8 quantization of ONNX files: against NumPy, with ONNX's reference and with ONNX Runtime; GPUs by age."""

import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.components.test_convert_tensorrt import write_network
from tests.components.test_convert_tensorrt_int8_scales import quantized, run
from tfopt.artifacts import Model
from tfopt.components.convert_tensorrt import float8_scales, int8_scales
from tfopt.components.convert_tensorrt.component import convert_tensorrt
from tfopt.errors import ComponentError
from tfopt.tensorrt.machine import Machine


def rounded(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Round to float8 levels by NumPy."""
    return np.clip(values / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale


@pytest.mark.parametrize("by_channel", [False, True])
def test_a_model_computes_the_products_of_float8_values(by_channel):
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(4, 4)).astype(np.float32)
    scales = np.abs(weights).max(0 if by_channel else None) / np.float32(127)
    integers = np.round(weights / scales).astype(np.int8)
    zeros = np.zeros(scales.shape, np.int8)
    model = quantized(np.array(0, np.int8), np.array(0.02, np.float32), integers, zeros, scales)
    model.graph.node[2].output[0] = model.graph.node[3].input[1] = "w_DequantizeLinear_Output"
    int8_scales.make_symmetric(model)
    model = float8_scales.cast_float8(model, {"w": weights})
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 19
    x = draw.uniform(-4, 4, (50, 4)).astype(np.float32)  # the range ends at 2.54
    expected = rounded(x, np.float32(0.02 * 127 / 448)) @ rounded(weights, scales * np.float32(127 / 448))
    np.testing.assert_allclose(ReferenceEvaluator(model).run(["y"], {"x": x})[0], expected, atol=1e-5)
    np.testing.assert_allclose(run(model, x), expected, atol=1e-5)


def test_a_calibrated_model_is_in_float8_and_keeps_the_weights(digits_model, digits_examples, tmp_path):
    facts, made = write_network(digits_model, digits_examples, tmp_path / "out", precision="fp8")
    floats = write_network(digits_model, None, tmp_path / "floats", precision="fp32")[1]
    assert facts["opset"] == 19 and facts["calibration"]["used"] == 50
    assert facts["onnx"]["records"] == 256 and facts["onnx"]["outputs"]["digit"]["agreement"] >= 0.95
    stored = {tensor.name: tensor for tensor in made.graph.initializer}
    nodes = [node for node in made.graph.node if node.op_type in int8_scales.QUANTIZERS]
    assert nodes and {stored[node.input[2]].data_type for node in nodes} == {TensorProto.FLOAT8E4M3FN}
    assert not any(numpy_helper.to_array(stored[node.input[2]]).astype(np.float32).any() for node in nodes)
    kernels = [numpy_helper.to_array(tensor) for name, tensor in stored.items() if name.endswith("_floats")]
    exact = [numpy_helper.to_array(tensor) for tensor in floats.graph.initializer]
    assert len(kernels) == 4  # the scale of a batch norm is in one of them
    assert sum(any(np.array_equal(kernel, other) for other in exact) for kernel in kernels) == 3
    for kernel in [kernel for kernel in kernels if kernel.size > 1]:  # not rounded to int8 before
        levels = 127 * kernel / np.abs(kernel).max()
        assert np.abs(levels - np.round(levels)).max() > 0.3


def test_only_gpus_with_products_in_float8_are_accepted():
    for capability in ("8.9", "9.0", "10.0", "12.0"):
        float8_scales.check_capability(capability, "GPU")
    for capability in ("7.5", "8.0", "8.6"):
        with pytest.raises(ComponentError, match=rf"NVIDIA X with compute capability {capability}") as error:
            float8_scales.check_capability(capability, "NVIDIA X")
        assert "8.9" in error.value.expected and "int8 or fp16" in error.value.fix


def test_an_older_gpu_makes_a_failed_model_before_any_work(digits_model, digits_examples, tmp_path, monkeypatch):
    component = sys.modules["tfopt.components.convert_tensorrt.component"]
    older = Machine(tensorrt="10.6.0.26", compute_capability="8.0", gpu="NVIDIA A100", driver="570.86.15")
    monkeypatch.setattr(component, "detect_machine", lambda: older)
    monkeypatch.setattr(component, "convert_in_child", None)  # is not called
    convert_tensorrt(str(digits_model), str(tmp_path / "out"), str(digits_examples), precision="fp8", on_failure="row")
    assert "fp8' on NVIDIA A100 with compute capability 8.0" in str(Model(tmp_path / "out").failure)
