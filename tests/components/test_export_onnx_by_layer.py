"""Test mixes of precisions in ONNX files: the worst nodes in float, one calibration, weights in blocks."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from tests.components.exporters import ONNX
from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import OnnxModel
from tfopt.conversion.mixes import fastest_mix
from tfopt.conversion.mixes.mixed_precision import rank_promotions
from tfopt.conversion.onnx import block_weights as onnx_block_weights
from tfopt.conversion.onnx import int8 as onnx_int8
from tfopt.errors import ComponentError

DRAW = np.random.default_rng(0)
FIRST, SECOND, THIRD, LAST = (
    (DRAW.normal(size=size) / 8).astype(np.float32) for size in ((64, 96), (96, 96), (96, 96), (96, 10))
)
GAIN = (10.0 ** np.linspace(-3, 0, 96)).astype(np.float32)  # of the columns before SECOND: 8 bits lose the small ones


def write_uneven(folder: Path) -> tuple[Path, Path]:
    """Write a network whose second product has activations and weights of uneven columns, and its examples."""
    for split, count in (("train", 40), ("eval", 250)):
        columns = {"x": DRAW.normal(size=(count, 64)).astype(np.float32)}
        write_examples(folder / "ex" / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)

    def serve(x):
        second = tf.matmul(tf.nn.relu(x @ (FIRST * GAIN)), SECOND / GAIN[:, None], name="second")
        return {"y": tf.nn.relu(tf.nn.relu(second) @ THIRD) @ LAST}

    return saved(folder / "model", serve, x=([None, 64], tf.float32)), folder / "ex"


@pytest.fixture(scope="module")
def uneven(tmp_path_factory) -> tuple[Path, Path]:
    """Return a network whose second product 8 bits break, and its examples."""
    return write_uneven(tmp_path_factory.mktemp("uneven"))


@pytest.fixture
def quantizable(tmp_path) -> onnx_int8.QuantizableFile:
    """Return the same network as an ONNX file that is calibrated on 20 records."""
    kernels = {"first": FIRST * GAIN, "second": SECOND / GAIN[:, None], "third": THIRD, "last": LAST}
    nodes, tensor = [], "x"
    for name in kernels:
        output = "y" if name == "last" else f"{name}_product"
        nodes.append(helper.make_node("MatMul", [tensor, name], [output], name))
        if name != "last":
            nodes.append(helper.make_node("Relu", [output], [tensor := f"{name}_relu"], tensor))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 64), ("y", 10))
    ]
    graph = helper.make_graph(
        nodes, "uneven", ends[:1], ends[1:], [numpy_helper.from_array(array, name) for name, array in kernels.items()]
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "float.onnx")
    feed = [{"x": row[None]} for row in np.random.default_rng(1).normal(size=(20, 64)).astype(np.float32)]
    return onnx_int8.QuantizableFile(tmp_path / "float.onnx", tmp_path, feed, lowest="int4", per_channel=True)


def scales(file: onnx.ModelProto) -> dict[str, float]:
    """Return the scale of each activation by name."""
    constants = {item.name: numpy_helper.to_array(item) for item in file.graph.initializer}
    quantizers = [node for node in file.graph.node if node.op_type == "QuantizeLinear"]
    return {node.input[0].removesuffix("_QuantizeLinear_Input"): float(constants[node.input[1]]) for node in quantizers}


def test_the_nodes_that_8_bits_break_stay_in_float(uneven, tmp_path):
    model, examples = uneven
    plain = ONNX.export(model, examples, tmp_path / "plain", "int8")
    assert 1 - plain["verified"]["outputs"]["y"]["agreement"] > 0.15
    facts = ONNX.export(model, examples, tmp_path / "out", "int8", max_degradation=0.08)
    assert 1 - facts["verified"]["outputs"]["y"]["agreement"] == pytest.approx(facts["degradation"])
    (worst,) = facts["left_in_float"]
    assert facts["degradation"] <= 0.08 and "second" in worst and facts["raised"] == {worst: "float32"}
    file = onnx.load(tmp_path / "out" / "Format-Serving" / "model.onnx")
    assert [form["steps"] for form in facts["tried"]] == [0, 1] and facts["tried"][1]["bytes"] == file.ByteSize()
    assert sum(item.data_type == TensorProto.INT8 and len(item.dims) == 2 for item in file.graph.initializer) == 3
    with pytest.raises(ComponentError, match="with 2 of 4 layers left in float"):
        ONNX.export(model, examples, tmp_path / "none", "int8", max_degradation=0.0)


def test_a_mix_has_weights_of_4_and_8_bits_in_blocks_and_is_smaller(uneven, tmp_path):
    model, examples = uneven
    facts = ONNX.export(model, examples, tmp_path / "out", "auto", max_degradation=0.15)
    assert facts["degradation"] <= 0.15 and facts["ops"]["MatMulNBits"] >= 1 and facts["precision"] == "auto"
    plain = ONNX.export(model, examples, tmp_path / "plain")
    sizes = [(tmp_path / name / "Format-Serving/model.onnx").stat().st_size for name in ("out", "plain")]
    assert sizes[0] < 0.4 * sizes[1] and "tried" not in plain


def test_a_mix_for_latency_meets_the_limit(uneven, tmp_path, monkeypatch):
    monkeypatch.setattr(fastest_mix, "TIMED_S", 0.01)
    model, examples = uneven
    facts = ONNX.export(model, examples, tmp_path / "out", "auto", max_degradation=0.15, minimize="latency")
    assert facts["degradation"] <= 0.15 and facts["precision"] == "auto"
    timed = facts["latency"]
    assert list(timed["milliseconds"])[:4] == ["int4", "int8", "dynamic", "float32"]
    assert timed["used"] in timed["milliseconds"] and min(timed["milliseconds"].values()) > 0


def test_a_comparison_reads_its_constant_as_it_is_if_a_sum_reads_it_in_8_bits_too(tmp_path):
    make = helper.make_node
    nodes = [
        make("Equal", ["x", "third"], ["is_third"], "equal"),
        make("Cast", ["is_third"], ["flag"], "cast", to=TensorProto.FLOAT),
        make("MatMul", ["x", "w"], ["product"], "product"),
        make("Add", ["product", "third"], ["sum"], "sum"),
        make("Mul", ["sum", "flag"], ["masked"], "masked"),
        make("MatMul", ["masked", "w"], ["y"], "last"),
    ]
    constants = {"third": np.float32(1 / 3).reshape(1), "w": DRAW.normal(size=(4, 4)).astype(np.float32)}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "shared", ends[:1], ends[1:], stored)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "float.onnx")
    feed = [{"x": row} for row in DRAW.normal(size=(8, 1, 4)).astype(np.float32)]
    file = onnx_int8.QuantizableFile(tmp_path / "float.onnx", tmp_path, feed, per_channel=True).quantize()
    readers = {node.name: list(node.input) for node in file.graph.node}
    assert readers["equal"] == ["x", "third"] and readers["sum"][1] != "third"
    assert [item.name for item in file.graph.initializer].count("third") == 1


def test_the_output_of_a_product_is_not_cut_off_at_the_calibrated_range(quantizable):
    file = quantizable.quantize({}, "int8")
    assert "y" not in scales(file) and "third_relu" in scales(file)
    (last,) = [node for node in file.graph.node if "y" in node.output]
    assert last.op_type == "MatMul" and not last.input[0].startswith("third_relu_Quantize")
    feed = {"x": np.random.default_rng(2).normal(size=(50, 64)).astype(np.float32)}
    session = InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.ptp(session.run(["y"], feed)[0]) > 0


def test_all_forms_have_the_ranges_of_one_calibration(quantizable):
    plain = quantizable.quantize({}, "int8")
    quantizable._feed = [{"x": 100 * batch["x"]} for batch in quantizable._feed]
    assert quantizable.quantize({}, "int8") == plain
    mixed = scales(quantizable.quantize({"second_product": "float32", "third_product": "int8", "y": "int8"}))
    assert mixed and mixed.items() <= scales(plain).items()


def test_all_forms_have_the_ranges_of_the_method_with_the_least_error_in_int8(quantizable):
    forms, errors = [], [3.0, 1.0, 2.0]

    def measure(form):
        forms.append(form)
        return errors[len(forms) - 1]

    facts = quantizable.choose_ranges("auto", measure)["activation_ranges"]
    assert facts["chosen"] == "moving_average" and list(facts["error"].values()) == errors
    assert {node.op_type for form in forms for node in form.graph.node} & {"MatMulNBits"} == set()
    mixed = scales(quantizable.quantize({"second_product": "float32", "third_product": "int8", "y": "int8"}))
    assert mixed and mixed.items() <= scales(forms[1]).items()
    assert not mixed.items() & scales(forms[0]).items()


def test_the_product_of_uneven_columns_is_raised_first(quantizable):
    layers = {layer.output: layer for layer in quantizable.layers}
    assert list(layers) == ["first_product", "second_product", "third_product", "y"]
    assert layers["third_product"].inputs[0] == "second_product"  # the activation is no layer
    noise = quantizable.measure_noise(quantizable.quantize({}, "int8"))
    added = {name: noise[name] - noise.get(layer.inputs[0], 0) for name, layer in layers.items()}
    assert max(added, key=added.__getitem__) == "second_product" and noise["first_product"] < 1e-3
    steps = rank_promotions(quantizable)
    assert next(kind for name, kind in steps if name == "second_product") != "int8"  # 4 bits of weights are better


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("is_gemm", [False, True])
def test_weights_in_blocks_are_the_nearest_levels(bits, is_gemm, tmp_path):
    matrix, bias = np.random.default_rng(2).normal(size=(70, 5)).astype(np.float32), np.arange(5, dtype=np.float32)
    matrix[:32, 1] = 0
    constants = {"w": matrix.T.copy() if is_gemm else matrix, **({"b": bias} if is_gemm else {})}
    attributes = {"transB": 1} if is_gemm else {}
    node = helper.make_node("Gemm" if is_gemm else "MatMul", ["x", *constants], ["y"], "product", **attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 70), ("y", 5))]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert onnx_block_weights.find_matrices(model.graph, ()) == {"y"}
    assert onnx_block_weights.find_matrices(model.graph, ("product",)) == set()
    onnx_block_weights.store(model, {"y": bits})
    onnx.save(model, tmp_path / "model.onnx")
    with runtimes.load(OnnxModel(tmp_path / "model.onnx")) as runtime:
        identity = runtime.run({"x": np.eye(70, dtype=np.float32)})["y"] - (bias if is_gemm else 0)
    for start in (0, 32, 64):
        block = matrix[start : start + 32]
        step = np.abs(block).max(0) / 2 ** (bits - 1)
        # half a level, or a whole one at the end that has one level less; 8-bit activations of 1 are exact
        assert (np.abs(identity[start : start + 32] - block) <= step * 1.01).all()
        assert (np.abs(identity[start : start + 32] - block) > step * 0.51).mean() < 0.05
    assert sorted(item.name for item in model.graph.initializer) == sorted(["y_packed", "y_scales", *(["b"] * is_gemm)])


def test_matrices_of_4_bits_are_rounded_with_compensation(quantizable):
    draw = np.random.default_rng(3)
    mixing = draw.normal(size=(8, 64))
    quantizable._feed = [{"x": row[None]} for row in (draw.normal(size=(60, 8)) @ mixing).astype(np.float32)]
    others = (draw.normal(size=(200, 8)) @ mixing).astype(np.float32)

    def outputs(file):
        session = InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(["y"], {"x": others})[0]

    exact, rounded = outputs(quantizable._float), quantizable.quantize({})
    facts = quantizable.facts["rounding"]
    assert sorted(facts["removed_noise"]) == ["first_product", "second_product", "third_product", "y"]
    quantizable._rounded = {}  # each weight has the nearest level
    errors = [np.square(outputs(file) - exact).mean() for file in (rounded, quantizable.quantize({}))]
    assert errors[0] < 0.25 * errors[1]


def test_the_levels_that_were_found_are_those_of_the_file(tmp_path):
    matrix = np.random.default_rng(2).normal(size=(70, 5)).astype(np.float32)
    matrix[:32, 1] = 0
    rows = np.random.default_rng(3).normal(size=(40, 3)) @ np.random.default_rng(4).normal(size=(3, 70))
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 70), ("y", 5))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(matrix, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feed = [{"x": row[None]} for row in rows.astype(np.float32)]
    rounded, _ = onnx_block_weights.round_matrices(model, {"y"}, feed)
    onnx_block_weights.store(model, {"y": 4}, rounded)
    onnx.save(model, tmp_path / "model.onnx")
    with runtimes.load(OnnxModel(tmp_path / "model.onnx")) as runtime:
        identity = runtime.run({"x": np.eye(70, dtype=np.float32)})["y"]
    np.testing.assert_allclose(identity, rounded["y"].weights, rtol=1e-5, atol=1e-6)
    assert rounded["y"].integers.min() >= -8 and rounded["y"].integers.max() <= 7


def test_a_matrix_that_a_branch_reads_stays_in_the_file():
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    branch = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["z"])], "branch", [], [
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4])
    ])  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("If", ["condition"], ["chosen"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["product", "chosen"], ["y"]),
    ]
    stored = [
        numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"),
        numpy_helper.from_array(np.array(True), "condition"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], stored), opset_imports=[helper.make_opsetid("", 18)]
    )
    onnx_block_weights.store(model, {"product": 4})
    assert {item.name for item in model.graph.initializer} == {"w", "condition", "product_packed", "product_scales"}


def test_contradicting_arguments_raise_before_any_work(uneven, tmp_path):
    from tfopt.components.export_onnx.component import export_onnx

    for arguments, received in (
        ({"precision": "auto"}, "precision='auto' without max_degradation"),
        ({"precision": "int8", "minimize": "latency"}, "minimize='latency' with precision='int8'"),
        ({"precision": "float16", "max_degradation": 0.1}, "max_degradation=0.1 with precision='float16'"),
    ):
        with pytest.raises(ComponentError) as error:
            export_onnx(str(uneven[0]), str(tmp_path / "out"), str(uneven[1]), **arguments)
        assert error.value.received == received
