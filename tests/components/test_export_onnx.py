"""Test export_onnx: int8 weights, opsets, strings, unsupported ops."""

import logging
from collections import Counter

import numpy as np
import onnx
import pytest
import tensorflow as tf
from tf2onnx import tf_loader
from tf2onnx.graph import Node

from tests.components.exporters import ONNX, PRETRAINED_ERROR, chords, pretrained, run, write_split
from tests.runtimes.formulas import saved
from tfopt import keras_models, runtimes
from tfopt.artifacts import Model, OnnxModel
from tfopt.components.export_onnx.component import export_onnx
from tfopt.conversion.int8_overflow import needs_reduced_range
from tfopt.conversion.onnx import int8 as onnx_int8
from tfopt.conversion.onnx import saved_model_export as onnx_export
from tfopt.errors import ComponentError
from tfopt.saved_models import saved_model


def graph_of(folder) -> onnx.ModelProto:
    return onnx.load(folder / "Format-Serving" / "model.onnx")


@pytest.mark.parametrize("opset", [13, 18])
def test_the_file_has_the_requested_opset(exported_digits, opset):
    folder, facts = exported_digits(ONNX, **({"opset": opset} if opset == 13 else {}))
    assert {entry.version for entry in graph_of(folder).opset_import if not entry.domain} == {opset} == {facts["opset"]}
    assert sorted(path.name for path in folder.rglob("*")) == ["Format-Serving", "model.onnx"]


def test_int8_weights_have_scales_per_channel_or_per_tensor(digits_model, digits_examples, tmp_path):
    for per_channel, scales in ((True, 8), (False, 1)):
        folder = tmp_path / str(per_channel)
        facts = ONNX.export(digits_model, digits_examples, folder, "int8", per_channel=per_channel)
        graph = graph_of(folder).graph
        weights = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
        kernels = [array for array in weights.values() if array.dtype == np.int8 and array.ndim == 4]
        assert [array.shape[0] for array in kernels] == [8, 8]
        assert not [name for name, array in weights.items() if array.dtype == np.float32 and array.ndim > 1]
        quantized = next(name for name, array in weights.items() if array is kernels[0])
        reader = next(node for node in graph.node if quantized in node.input)
        assert reader.op_type == "DequantizeLinear" and weights[reader.input[1]].size == scales
        assert facts["ops"]["QuantizeLinear"] >= 3 and facts["ops"]["Conv"] == 2


def test_a_reduced_range_leaves_one_bit_of_the_weights_unused(digits_model, digits_examples, exported_digits, tmp_path):
    for reduce_range, most in (("on", 64), ("off", 127)):
        facts = ONNX.export(digits_model, digits_examples, tmp_path / reduce_range, "int8", reduce_range=reduce_range)
        assert logging.getLogger().level == logging.WARNING  # changed only while the quantizer runs
        arrays = [onnx.numpy_helper.to_array(item) for item in graph_of(tmp_path / reduce_range).graph.initializer]
        assert max(np.abs(a.astype(int)).max() for a in arrays if a.dtype == np.int8 and a.size > 1) == most
        assert facts["reduce_range"] is (reduce_range == "on")
    assert exported_digits(ONNX, "int8")[1]["reduce_range"] is needs_reduced_range()


@pytest.mark.parametrize(
    ("machine", "flags", "reduced"),
    [
        ("x86_64", "fma avx2", True),
        ("x86_64", "avx2 avx512f avx512bw", True),
        ("x86_64", "avx512f avx512_vnni", False),
        ("x86_64", "avx2 avx_vnni", False),
        ("aarch64", "asimd", False),
    ],
)
def test_auto_reduces_the_range_on_an_x86_without_vnni(tmp_path, machine, flags, reduced):
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu {flags} sse\n")
    assert needs_reduced_range(tmp_path / "cpuinfo", machine) is reduced


def test_the_gelu_of_keras_3_is_converted_to_erf(tmp_path):
    def gelu(x):
        return {"gelu": tf.nn.gelu(x), "erfc": tf.math.erfc(x), "half": tf.math.erfc(0.5 * x)}

    model = saved(tmp_path / "model", gelu, x=([None, 9], tf.float32))
    ONNX.export(model, None, tmp_path / "out")
    x = np.linspace(-4, 4, 9, dtype=np.float32)[None]
    outputs = runtimes.load(OnnxModel(tmp_path / "out")).run({"x": x})
    for name, expected in gelu(x).items():
        np.testing.assert_allclose(outputs[name], expected, atol=2e-6)
    assert not [node for node in graph_of(tmp_path / "out").graph.node if node.op_type == "Erfc"]


def test_exponentials_and_logarithms_keep_the_digits_of_small_values(tmp_path):
    def function(x):
        return {"expm1": tf.math.expm1(x), "log1p": tf.math.log1p(x)}

    model = saved(tmp_path / "model", function, x=([None, 9], tf.float32))
    ONNX.export(model, None, tmp_path / "out")
    x = np.array([[-1, -0.3, -1e-5, 0, 3e-8, 1e-3, 2.7, 80, np.inf]], np.float32)
    outputs = runtimes.load(OnnxModel(tmp_path / "out")).run({"x": x})
    with np.errstate(divide="ignore"):
        expected = {"expm1": np.expm1(x.astype("float64")), "log1p": np.log1p(x.astype("float64"))}
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, rtol=5e-7)


def test_a_scalar_is_added_to_a_convolution(tmp_path):
    kernel = tf.constant(np.random.default_rng(0).normal(size=(3, 3, 2, 4)), tf.float32)

    def shifted(image):
        return {
            "y": tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME") + 0.5),
            "z": tf.nn.conv2d(image, kernel, 2, "SAME") + 0.5,
        }

    model = saved(tmp_path / "model", shifted, image=((None, 6, 6, 2), "float32"))
    image = np.random.default_rng(1).normal(size=(2, 6, 6, 2)).astype(np.float32)
    ONNX.export(model, None, tmp_path / "out")
    outputs = runtimes.load(OnnxModel(tmp_path / "out")).run({"image": image})
    for name, expected in shifted(image).items():
        np.testing.assert_allclose(outputs[name], expected, atol=1e-5)


def test_constants_are_copied_once_and_not_by_each_pass(tmp_path, monkeypatch):
    """The passes replace these copies, but do not free them: they took 7 GB for weights of 200 MB."""
    copied, original = Counter(), Node.update_proto

    def counted(node, *arguments):
        copied[node.name] += node.is_const()
        original(node, *arguments)

    monkeypatch.setattr(Node, "update_proto", counted)
    weights = tf.constant(np.random.default_rng(0).normal(size=(3, 3)), tf.float32)
    model = saved(tmp_path / "model", lambda x: {"y": tf.nn.relu(x @ weights) @ weights}, x=([None, 3], tf.float32))
    assert len(onnx_export.convert_saved_model(model, 18).graph.initializer) == 1
    assert copied.total() and max(copied.values()) <= 2  # before and after the passes


@pytest.mark.parametrize("stored", ["as a variable", "in the graph"])
def test_tensorflow_optimizes_the_frozen_graph_without_weights_that_it_cannot_fold(tmp_path, monkeypatch, stored):
    sizes, original = [], tf_loader.tf_optimize

    def measured(inputs, outputs, graph_def):
        sizes.append(graph_def.ByteSize())
        return original(inputs, outputs, graph_def)

    monkeypatch.setattr(tf_loader, "tf_optimize", measured)
    draw = np.random.default_rng(0)
    weights, filters = (draw.normal(size=(150, 150)).astype(np.float32) for _ in range(2))
    module = tf.Module()
    module.variable = tf.Variable(weights)
    serve = tf.function(
        lambda x: {"y": tf.nn.relu(x @ module.variable) @ tf.transpose(tf.constant(filters))},
        input_signature=[tf.TensorSpec([None, 150], name="x")],
    )
    tf.saved_model.save(module, str(tmp_path / "as a variable"), signatures=serve)
    saved_model.write(saved_model.read(tmp_path / "as a variable"), tmp_path / "in the graph")
    converted = onnx_export.convert_saved_model(tmp_path / stored, 18)
    assert 1.0 < sizes[0] / weights.nbytes < 1.2, "only the one that is transposed"
    assert "Transpose" not in {node.op_type for node in converted.graph.node}
    values = sorted((onnx.numpy_helper.to_array(each) for each in converted.graph.initializer), key=np.sum)
    for value, expected in zip(values, sorted([weights, filters.T], key=np.sum), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_an_op_that_tf2onnx_does_not_convert_is_named(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.linalg.inv(x + 5 * tf.eye(3))}, x=([None, 3, 3], tf.float32))
    with pytest.raises(ComponentError) as error:
        ONNX.export(model, None, tmp_path / "out")
    assert "MatrixInverse" in error.value.received and "other ops" in error.value.fix


def test_an_invalid_file_raises():
    tensor = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 2])
    node = onnx.helper.make_node("Softmax", ["not there"], ["x"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [tensor]))
    with pytest.raises(ComponentError, match="not valid ONNX"):
        onnx_export.check_model(model)


def test_an_output_of_unknown_rank_is_named():
    ranked, unranked = (
        onnx.helper.make_tensor_value_info(name, 1, axes) for name, axes in (("x", [None, 3]), ("y", None))
    )
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "unranked", [ranked], [unranked])
    with pytest.raises(ComponentError, match="y: unknown rank") as error:
        onnx_export.check_model(onnx.helper.make_model(graph))
    assert "ensure_shape" in error.value.fix


def test_infinite_values_that_are_not_selected_do_not_become_nan(tmp_path):
    """As the logarithm of 0: 0 * -inf is NaN."""
    serve = lambda x: {"y": tf.where(x > 0, tf.math.log(x), -1.0), "z": tf.where(x > 0, 1 / x, x)}  # noqa: E731
    ONNX.export(saved(tmp_path / "model", serve, x=([None, 3], tf.float32)), None, tmp_path / "out")
    received = run(ONNX.artifact(tmp_path / "out"), {"x": np.float32([[0, 1, 4]])})
    np.testing.assert_allclose(received["y"], [[-1, 0, np.log(4)]], rtol=1e-6)
    np.testing.assert_allclose(received["z"], [[0, 1, 0.25]], rtol=1e-6)


def test_nan_during_calibration_raises(tmp_path):
    from tests.components.test_validate_serving import FACTOR, product

    feed = [{"x": np.ones((1, 3), np.float32)}] * 4
    source = product(tmp_path, FACTOR * np.nan)
    with pytest.raises(ComponentError, match="'y' is NaN or infinite on examples to calibrate on"):
        onnx_int8.QuantizableFile(source, tmp_path, feed, per_channel=True)


def test_weights_of_which_only_the_shape_of_the_product_is_read_stay_in_float(tmp_path):
    """As Keras computes the shape of a loop's results, by a step before the loop."""
    make, floats = onnx.helper.make_node, onnx.TensorProto.FLOAT
    weights = {name: np.random.default_rng(place).normal(size=(3, 3)) for place, name in enumerate(("w", "only_shape"))}
    body = onnx.helper.make_graph(
        [make("Mul", ["step", "inner"], ["result"])],
        *("branch", [], [onnx.helper.make_tensor_value_info("result", floats, [None, 3])]),
    )
    nodes = [
        make("MatMul", ["x", "only_shape"], ["first"]),
        make("Shape", ["first"], ["sizes"]),
        make("ConstantOfShape", ["sizes"], ["zeros"]),
        make("MatMul", ["x", "w"], ["step"]),
        make("Sigmoid", ["step"], ["inner"]),  # read in the branch only
        make("If", ["condition"], ["computed"], then_branch=body, else_branch=body),
        make("Add", ["computed", "zeros"], ["y"]),
    ]
    ends = ([onnx.helper.make_tensor_value_info(name, floats, [None, 3])] for name in "xy")
    constants = {name: array.astype(np.float32) for name, array in weights.items()} | {"condition": np.array(True)}
    initial = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", *ends, initial), ir_version=9)
    model.opset_import[0].version = 18
    onnx.save(model, tmp_path / "float.onnx")
    feed = [{"x": row[None]} for row in np.random.default_rng(2).normal(size=(40, 3)).astype(np.float32)]
    quantizable = onnx_int8.QuantizableFile(tmp_path / "float.onnx", tmp_path, feed, per_channel=False)
    onnx.save(quantizable.quantize(), tmp_path / "int8.onnx")
    types = {one.name: one.data_type for one in onnx.load(tmp_path / "int8.onnx").graph.initializer}
    assert types["only_shape"] == floats and types["w_quantized"] == onnx.TensorProto.INT8
    with runtimes.load(OnnxModel(tmp_path / "int8.onnx")) as runtime:
        received = runtime.run({"x": np.concatenate([one["x"] for one in feed])})["y"]
    step = np.concatenate([one["x"] for one in feed]) @ constants["w"]
    expected = step / (1 + np.exp(-step))
    assert np.abs(received - expected).max() < 0.03 * np.ptp(expected)


def test_strings_are_supported(tmp_path):
    specs = {"word": ([None, 1], tf.string), "x": ([None, 1], tf.float32)}
    model = saved(tmp_path / "model", lambda word, x: {"w": tf.identity(word), "y": x + 1}, **specs)
    words = np.array([["a"], ["ß"], [""], ["d"]], object)
    columns = {"word": words, "x": np.arange(4, dtype=np.float32)[:, None]}
    facts = ONNX.export(model, write_split(tmp_path / "ex", columns), tmp_path / "out")
    assert set(facts["verified"]["outputs"]) == {"w", "y"}
    outputs = runtimes.load(OnnxModel(tmp_path / "out")).run(columns)
    assert [value.decode() for value in outputs["w"].ravel()] == ["a", "ß", "", "d"]


def test_lookup_tables_and_loops_are_converted(tmp_path):
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    word, steps = layers.Input((1,), dtype="string", name="word"), layers.Input((5, 3), name="steps")
    one_hot = layers.StringLookup(vocabulary=["a", "b", "ß"], output_mode="one_hot")(word)
    joined = layers.Concatenate()([one_hot, layers.LSTM(4)(steps)])
    keras_models.save(keras.Model([word, steps], layers.Dense(2, name="y")(joined)), tmp_path / "model")
    draw = np.random.default_rng(0)
    columns = {"word": np.array([["a"], ["ß"], ["zz"]], object), "steps": draw.random((3, 15), np.float32)}
    write_split(tmp_path / "ex", columns)
    facts = ONNX.export(tmp_path / "model", tmp_path / "ex", tmp_path / "out")
    assert facts["verified"]["outputs"]["y"]["relative_error"] < 1e-5 and facts["ops"]["LSTM"] == 1


def test_contradicting_arguments_raise_before_any_work(digits_model, tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"\x08\x07")
    for arguments, received, fix in [
        ({"precision": "int16"}, "precision='int16'", "did you mean int8?"),
        ({"opset": 12}, "opset=12", "opset=18"),
        ({"opset": 19}, "opset=19", "opset=18"),
        ({"model": str(tmp_path / "a.onnx")}, "a onnx model", "it was converted from"),
    ]:
        with pytest.raises(ComponentError) as error:
            export_onnx(**({"model": str(digits_model), "exported": str(tmp_path / "out")} | arguments))
        assert received in error.value.received and fix in error.value.fix
    assert not (tmp_path / "out").exists()


def test_trained_ranges_without_a_quantized_kernel_raise(digits_examples, tmp_path):
    ranges = {"min": -1.0, "max": 1.0}
    fake, kernel = tf.quantization.fake_quant_with_min_max_vars, np.random.default_rng(0).normal(size=(64, 3))
    kernel = tf.constant(kernel, tf.float32)
    model = saved(
        tmp_path / "model", lambda image: {"y": fake(image, **ranges) @ kernel}, image=([None, 64], tf.float32)
    )
    with pytest.raises(ComponentError, match="no kernel on 8-bit levels") as error:
        ONNX.export(model, None, tmp_path / "out", "int8")
    assert "export_tflite" in error.value.fix


def test_the_scales_of_a_kernel_are_recovered():
    draw = np.random.default_rng(0)
    integers = draw.integers(-90, 91, (6, 4, 3, 3))
    scales = draw.uniform(0.01, 3, 6)
    integers[2] = 0
    by_channel = (integers * scales[:, None, None, None]).astype(np.float32)
    recovered = onnx_int8.find_scales(by_channel, 0)
    assert recovered.shape == (6,)
    np.testing.assert_allclose(np.delete(recovered, 2), np.delete(scales, 2), rtol=1e-5)
    assert onnx_int8.find_scales((integers * 0.3).astype(np.float32), 0) == pytest.approx(0.3)
    assert onnx_int8.find_scales(by_channel, 1) is None
    assert onnx_int8.find_scales(draw.normal(size=(20, 30)).astype(np.float32), 1) is None


@pytest.mark.nightly  # daily: OpenVINO, in test_exporters.py
def test_a_third_party_model_matches_its_own_onnx_file(tmp_path):
    sound = chords()
    data = write_split(tmp_path / "ex", {"input_2": sound})
    verified = ONNX.export(pretrained("nmp"), data, tmp_path / "out", tolerance=PRETRAINED_ERROR)["verified"]
    assert set(verified["outputs"]) == {"contour", "note", "onset"} and verified["records"] == 4
    assert all(parity["correlation"] > 0.9999 for parity in verified["outputs"].values())
    ours, theirs = runtimes.load(OnnxModel(tmp_path / "out")), runtimes.load(Model(pretrained("nmp.onnx")))
    (name,) = theirs.inputs
    outputs = [runtime.run({key: sound[:1, :, None]}) for runtime, key in ((ours, "input_2"), (theirs, name))]
    for ours_output in outputs[0].values():
        same_shape = [output for output in outputs[1].values() if output.shape == ours_output.shape]
        assert min(np.abs(ours_output - output).max() for output in same_shape) < 1e-4


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_negative_indices_of_a_one_hot_encoding_are_no_class(dtype, tmp_path):
    model = saved(
        tmp_path / "model", lambda code: {"y": tf.one_hot(code, 4, on_value=3.0, off_value=-1.0)}, code=((None,), dtype)
    )
    ONNX.export(model, None, tmp_path / "out", "float32")
    codes = np.array([-1, -4, -5, 0, 3, 4, 9], dtype)
    with runtimes.load(Model(tmp_path / "out")) as exported:
        (result,) = exported.run({"code": codes}).values()
    assert result.tolist() == tf.one_hot(codes, 4, on_value=3.0, off_value=-1.0).numpy().tolist()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_zeros_around_a_max_pool_of_negative_numbers_stay(precision, tmp_path):
    kernel = tf.constant(np.random.default_rng(0).normal(size=(3, 3, 2, 4)), tf.float32)

    def pool(image):
        padded = tf.pad(tf.nn.conv2d(image, kernel, 1, "VALID") - 30.0, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return {"y": tf.nn.max_pool2d(padded, 3, 2, "VALID")}

    model = saved(tmp_path / "model", pool, image=((None, 9, 9, 2), "float32"))
    images = np.random.default_rng(1).normal(size=(20, 9, 9, 2)).astype(np.float32)
    ONNX.export(model, write_split(tmp_path / "ex", {"image": images}), tmp_path / "out", precision)
    with runtimes.load(Model(model)) as parent, runtimes.load(Model(tmp_path / "out")) as exported:
        expected, result = (each.run({"image": images})["y"] for each in (parent, exported))
    assert (expected[:, 0] == 0).all() and expected.min() < -10
    np.testing.assert_allclose(result, expected, atol=1e-4 if precision == "float32" else 1)
