"""Test what is done to a graph of ONNX Runtime's quantizer: short names, and floats for the bodies of loops."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from tfopt.conversion.onnx.int8 import leave_inputs_of_bodies
from tfopt.conversion.onnx.quantizer_names import shorten_names

LAYER = "StatefulPartitionedCall/functional/a_layer_with_a_name/MatMul"
VALUES = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)


def quantized_model():
    """Return a quantized product, whose result a branch reads, with the names of the quantizer."""
    kernel = np.random.default_rng(1).integers(-127, 128, (4, 3), np.int8)
    constants = {f"{LAYER}_quantized": kernel, f"{LAYER}_scale": np.float32(0.01), f"{LAYER}_zero_point": np.int8(0)}
    constants |= {"x_scale": np.float32(1 / 127), "x_zero_point": np.int8(0), "q1": np.bool_(True)}
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
    nodes += [helper.make_node("If", ["q1"], ["y"], "If", then_branch=then, else_branch=other)]
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
    shorten_names(model)  # a constant of the model itself is called q1
    onnx.checker.check_model(model)
    np.testing.assert_array_equal(outputs(model), expected)
    names = {node.name for node in model.graph.node}
    assert names == {LAYER, "If", *(name for name in names if name.startswith("q"))}
    assert all(len(constant.name) < 4 for constant in model.graph.initializer)
    assert {opset.domain for opset in model.opset_import} == {""} and not model.graph.value_info
    assert model.ByteSize() < 0.6 * size


def test_what_the_body_of_a_loop_reads_is_not_dequantized_on_its_way():
    """ONNX Runtime aborts at such a file, as of an embedding before a GRU that becomes a loop."""
    shape = [3, 2]
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("sum", "next", "y")}
    flags = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "goes")]
    step = helper.make_tensor_value_info("step", TensorProto.INT64, [])
    nodes = [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Add", ["sum", "moved"], ["next"])]
    body = helper.make_graph(nodes, "body", [step, flags[0], ends["sum"]], [flags[1], ends["next"]])
    scale = ["scale", "zero"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *scale], ["quantized"]),
        helper.make_node("DequantizeLinear", ["quantized", *scale], ["dequantized"]),
        helper.make_node("Transpose", ["dequantized"], ["moved"], perm=[1, 0]),
        helper.make_node("Loop", ["steps", "yes", "start"], ["y"], body=body),
    ]
    constants = {"scale": np.float32(0.01), "zero": np.uint8(128), "steps": np.int64(2), "yes": np.bool_(True)}
    constants["start"] = np.zeros(shape, np.float32)
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape[::-1])
    graph = helper.make_graph(nodes, "g", [x], [ends["y"]], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    leave_inputs_of_bodies(model.graph)
    assert model.graph.node[2].input[0] == "x"
    values = VALUES[:2, :3]
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": values})[0], 2 * values.T, rtol=1e-6)
