"""Test mixes of int8 and float16 for TensorRT without a GPU: the search, the rounded scales, refusals."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.components.test_convert_tensorrt import write_network
from tests.components.test_convert_tensorrt_int8_scales import quantized, run
from tests.components.test_export_onnx_by_layer import write_uneven
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, Sensitivities
from tfopt.components.convert_tensorrt import float16_scales, int8_scales, onnx_network
from tfopt.components.convert_tensorrt.component import convert_tensorrt
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.components.measure_sensitivities.component import measure_sensitivities
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.errors import ComponentError

LIMIT = 0.08


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Return a network whose second product 8 bits break, and its examples."""
    return write_uneven(tmp_path_factory.mktemp("uneven"))


def data_types(network: onnx.ModelProto) -> set[int]:
    """Return the types of the matrices."""
    return {tensor.data_type for tensor in network.graph.initializer if len(tensor.dims) == 2}


def products(network: onnx.ModelProto) -> dict[str, bool]:
    """Return for each product, by its output, whether both factors are dequantized."""
    producers = {output: node for node in network.graph.node for output in node.output}
    return {
        node.output[0]: all(producers[name].op_type == "DequantizeLinear" for name in node.input if name in producers)
        and all(name in producers for name in node.input)
        for node in network.graph.node
        if node.op_type == "MatMul"
    }


def test_the_layers_that_8_bits_break_and_all_between_layers_are_in_float16(uneven, tmp_path):
    model, examples = uneven
    int8, _ = write_network(model, examples, tmp_path / "int8", precision="int8", calibration_count=40)
    assert 1 - int8["onnx"]["outputs"]["y"]["agreement"] > 0.15
    settings = {"precision": "auto", "max_degradation": LIMIT, "calibration_count": 40}
    facts, network = write_network(model, examples, tmp_path / "auto", **settings)
    (worst,) = facts["raised"]
    assert "second" in worst and facts["raised"][worst] == "float16" and facts["left_in_float"] == [worst]
    assert 1 - facts["onnx"]["outputs"]["y"]["agreement"] == pytest.approx(facts["degradation"])
    assert facts["degradation"] <= LIMIT and [sorted(form) for form in facts["tried"]] == [["degradation", "steps"]] * 2
    onnx.checker.check_model(network, full_check=True)
    assert network.opset_import[0].version == facts["opset"] == 19 and data_types(network) == {TensorProto.FLOAT16}
    in_8_bits = products(network)
    assert len(in_8_bits) == 4 and [name for name, is_int8 in in_8_bits.items() if not is_int8] == [worst]
    ends = [*network.graph.input, *network.graph.output]
    assert {end.type.tensor_type.elem_type for end in ends} == {TensorProto.FLOAT}


def test_int8_leaves_them_in_float32_and_no_more_than_half(uneven, tmp_path):
    model, examples = uneven
    settings = {"precision": "int8", "calibration_count": 40}
    facts, network = write_network(model, examples, tmp_path / "int8", max_degradation=LIMIT, **settings)
    assert list(facts["raised"].values()) == ["float32"] and data_types(network) == {TensorProto.FLOAT}
    with pytest.raises(ComponentError, match="with 2 of 4 layers left in float"):
        write_network(model, examples, tmp_path / "none", max_degradation=0.0, **settings)


def test_a_mix_may_have_no_layer_in_int8(uneven, tmp_path):
    model, examples = uneven
    settings = {"precision": "auto", "max_degradation": 0.0, "calibration_count": 40}
    facts, network = write_network(model, examples, tmp_path / "out", **settings)
    assert len(facts["raised"]) == 4 and not any(node.op_type == "QuantizeLinear" for node in network.graph.node)


def test_a_search_ranks_layers_by_measured_sensitivities(uneven, tmp_path):
    model, examples = uneven
    measure_sensitivities(str(model), str(examples), str(tmp_path / "report"))
    parameters = TensorRTConversion(precision="auto", max_degradation=LIMIT, calibration_count=40)
    table = SensitivityTable(Sensitivities(tmp_path / "report").load())
    with runtimes.load(Model(model)) as parent:
        facts, _ = onnx_network.write_network(
            Model(model), Examples(examples), parent, tmp_path / "model.onnx", parameters, table
        )
    assert facts["sensitivities"]["layers"] == 4 and facts["degradation"] <= LIMIT


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e-4])  # weights of the second have scales that float16 has few digits for
def test_a_model_computes_the_products_of_8_bits_with_scales_in_float16(size, by_channel):
    draw = np.random.default_rng(0)
    weights = (size * draw.normal(size=(4, 4))).astype(np.float32)
    scales = np.abs(weights).max(0 if by_channel else None) / np.float32(127)
    integers = np.round(weights / scales).astype(np.int8)
    model = quantized(
        np.array(0, np.int8), np.array(0.02, np.float32), integers, np.zeros(scales.shape, np.int8), scales
    )
    int8_scales.make_symmetric(model)
    model = float16_scales.cast_between_layers(model)
    onnx.checker.check_model(model, full_check=True)
    x = draw.uniform(-4, 4, (50, 4)).astype(np.float32)  # the range ends at 2.54

    def rounded(values, scale):
        scale = float16_scales.round_up(np.asarray(scale, np.float32)).astype(np.float32)
        return np.clip(np.round(values.astype(np.float16).astype(np.float32) / scale), -128, 127) * scale

    expected = rounded(x, 0.02) @ rounded(integers * scales, scales)
    level = 0.0201 * np.abs(weights).max()  # of x; the division in float16 may round to a neighbor of the nearest one
    for received in (ReferenceEvaluator(model).run(["y"], {"x": x})[0], run(model, x)):
        difference = np.abs(received - expected)
        assert difference.max() <= 1.1 * level and (difference > 0.1 * level).mean() <= 0.06
    kernel = next(tensor for tensor in model.graph.initializer if list(tensor.dims) == [4, 4])
    stored = np.round(numpy_helper.to_array(kernel) / float16_scales.round_up(scales))
    assert np.abs(stored - integers).max() <= (0 if size == 1 else 6) and np.abs(stored).max() <= 127


def test_scales_are_rounded_up_to_float16():
    values = np.float32([1.0, 1.0004, 0.1, 3e-8, 7e-6, 0.0])
    rounded = float16_scales.round_up(values)
    assert rounded.dtype == np.float16 and (rounded.astype(np.float32) >= values).all()
    assert (np.nextafter(rounded, np.float16(-np.inf)).astype(np.float32) < values).all()


REFUSED = [
    ({"precision": "auto"}, "precision='auto' without max_degradation"),
    ({"precision": "fp16", "max_degradation": 0.1}, "max_degradation=0.1 with precision='fp16'"),
    ({"precision": "int8", "max_degradation": 0.1, "calibrator": "entropy"}, "max_degradation=0.1 with calibrator="),
    ({"precision": "auto", "max_degradation": 0.1, "calibrator": "entropy"}, "'entropy' with precision='auto'"),
]


@pytest.mark.parametrize(("settings", "received"), REFUSED)
def test_contradicting_arguments_raise_before_the_machine_is_checked(uneven, tmp_path, settings, received):
    model, examples = uneven
    with pytest.raises(ComponentError, match=received):
        convert_tensorrt(str(model), str(tmp_path / "out"), str(examples), **settings)
    assert not (tmp_path / "out").exists()


def test_a_mix_needs_examples(uneven, tmp_path):
    with pytest.raises(ComponentError, match="precision='auto' without examples"):
        convert_tensorrt(str(uneven[0]), str(tmp_path / "out"), precision="auto", max_degradation=0.01)
