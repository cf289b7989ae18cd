"""Test that an int8 ONNX file of a small network is not larger for the names of what the quantizer adds."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from tfopt.conversion.onnx.quantizer_names import shorten_names

LAYER = "StatefulPartitionedCall/functional/a_layer_with_a_name/MatMul"
VALUES = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)


def quantized_model():
    """Return a quantized product of which a branch reads the result, as the quantizer names its parts."""
    kernel = np.random.default_rng(1).integers(-127, 128, (4, 3), np.int8)
    constants = {f"{LAYER}_quantized": kernel, f"{LAYER}_scale": np.float32(0.01), f"{LAYER}_zero_point": np.int8(0)}
    constants |= {"x_scale": np.float32(1 / 127), "x_zero_point": np.int8(0), "yes": np.bool_(True)}
    ends = [f"{LAYER}_{kind}Linear_Output" for kind in ("Quantize", "Dequantize")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero_point"], [ends[0]], f"{LAYER}_QuantizeLinear"),
        helper.make_node("DequantizeLinear", [ends[0], "x_scale", "x_zero_point"], [ends[1]], f"{LAYER}_Dequantize"),
        helper.make_node("DequantizeLinear", list(constants)[:3], [f"{LAYER}_kernel"], f"{LAYER}_kernel"),
        helper.make_node("MatMul", [ends[1], f"{LAYER}_kernel"], [LAYER], LAYER),
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in ("y", "then", "else")]
    then, other = (
        helper.make_graph([helper.make_node("Add", [LAYER, added], [end.name])], end.name, [], [end])
        for end, added in ((results[1], f"{LAYER}_bias"), (results[2], LAYER))
    )
    bias = [f"{LAYER}_bias_quantized", f"{LAYER}_scale", f"{LAYER}_zero_point"]
    nodes += [helper.make_node("DequantizeLinear", bias, [f"{LAYER}_bias"], f"{LAYER}_bias")]
    nodes += [helper.make_node("If", ["yes"], ["y"], "If", then_branch=then, else_branch=other)]
    constants[bias[0]] = np.array([20, 30, 40], np.int8)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])], results[:1],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        value_info=[helper.make_tensor_value_info(LAYER, TensorProto.FLOAT, [None, 3])],
    )  # fmt: skip
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 18), ("com.microsoft", 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def outputs(model):
    (result,) = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": VALUES})
    return result


def test_names_of_layers_stay_and_those_of_the_quantizer_become_numbers():
    model = quantized_model()
    expected, size = outputs(model), model.ByteSize()
    shorten_names(model)
    onnx.checker.check_model(model)
    np.testing.assert_array_equal(outputs(model), expected)
    names = {node.name for node in model.graph.node}
    assert names == {LAYER, "If", *(name for name in names if name.startswith("q"))}
    assert all(len(constant.name) < 4 for constant in model.graph.initializer if constant.name != "yes")
    assert {opset.domain for opset in model.opset_import} == {""} and not model.graph.value_info
    assert model.ByteSize() < 0.6 * size
