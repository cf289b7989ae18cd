"""Test that an ONNX file does not depend on the order in which tf2onnx visits names, on counters and addresses."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tfopt.conversion.onnx.node_order import reorder


def written(first: int, address: int, doubling: str, *, is_reversed: bool) -> onnx.ModelProto:
    """Return (x * 2 + y__3, x * 2 if x > 0 else x - 2), as one process of tf2onnx names and orders it."""
    double, other, moved = f"Mul__{first}:0", f"add__{first + 1}:0", f"sub__{first + 2}:0"
    (copied, subtracted) = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in (f"copy__{first}", moved)
    )
    then = helper.make_graph([helper.make_node("Identity", [double], [copied.name])], f"then__{first}", [], [copied])
    less = helper.make_graph([helper.make_node("Sub", ["x", doubling], [moved])], f"else__{first}", [], [subtracted])
    nodes = [
        helper.make_node("Mul", ["x", doubling], [double], f"Mul__{first}"),
        helper.make_node("Add", [double, "y__3"], ["sum"], "layer/add"),
        helper.make_node("Greater", ["x", f"einsum{address}_zero__{first + 3}"], [other]),
        helper.make_node("If", [other], ["branch"], "cond", then_branch=then, else_branch=less),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for value, name in ((2, doubling), (0, f"einsum{address}_zero__{first + 3}"))
    ]
    if is_reversed:
        nodes[0], nodes[2] = nodes[2], nodes[0]
        constants.reverse()
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in names]
        for names in (("x", "y__3"), ("sum", "branch"))
    )
    body = helper.make_graph(nodes, "tfopt", inputs, outputs, constants)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def test_two_processes_give_the_same_bytes_and_the_same_outputs():
    first = written(10, 140660315960912, "dense_1/two", is_reversed=False)
    second = written(3, 9, "dense_2/two", is_reversed=True)
    nodes = [node.op_type for node in second.graph.node]
    for model in (first, second):
        reorder(model)
        onnx.checker.check_model(model)
    assert [node.op_type for node in second.graph.node] == ["Mul", "Add", "Greater", "If"] != nodes
    assert first.SerializeToString() == second.SerializeToString()
    assert first.graph.node[1].name == "layer/add"
    session = onnxruntime.InferenceSession(second.SerializeToString())
    for x in (5.0, -5.0):
        feeds = {"x": np.array(x, np.float32), "y__3": np.array(1, np.float32)}
        assert session.run(None, feeds) == [2 * x + 1, 2 * x if x > 0 else x - 2]
