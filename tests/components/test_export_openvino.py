"""Test export_openvino: int8 layers, accuracy control, unsupported ops."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import OPENVINO, PRETRAINED_ERROR, chords, pretrained, write_split
from tests.runtimes.formulas import saved
from tfopt.artifacts import OpenVINOModel
from tfopt.components.export_openvino import int8_graph, openvino_graph, quantization
from tfopt.components.export_openvino.component import export_openvino
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.conversion.int8_overflow import needs_reduced_range
from tfopt.errors import ComponentError
from tfopt.runtimes.openvino_import import openvino as ov
from tfopt.runtimes.openvino_import import without_telemetry

with without_telemetry():
    import nncf
    from nncf.openvino.statistics.aggregator import OVStatisticsAggregator
    from nncf.quantization.range_estimator import RangeEstimatorParameters


def graph_of(folder: Path):
    return ov.Core().read_model(folder / "Format-Serving" / "model.xml")


def weights_of(folder: Path) -> list[np.ndarray]:
    """The stored kernels and matrices, quantized or not."""
    constants = [op.get_data() for op in graph_of(folder).get_ops() if op.get_type_name() == "Constant"]
    return [array for array in constants if array.dtype.kind in "fi" and array.size > 70]


def run(model, batches) -> np.ndarray:
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.concatenate([next(iter(compiled([batch]).values())) for batch in batches])


def test_the_files_contain_no_local_path(exported_digits, digits_model):
    folder, _ = exported_digits(OPENVINO)
    assert sorted(path.name for path in folder.rglob("*")) == ["Format-Serving", "model.bin", "model.xml"]
    assert str(digits_model) not in (folder / "Format-Serving/model.xml").read_text()


def test_int8_layers_compute_in_8_bits_with_an_optional_reduced_range(digits_model, digits_examples, tmp_path):
    for reduce_range, most in (("off", 127), ("on", 64)):
        folder = tmp_path / reduce_range
        facts = OPENVINO.export(digits_model, digits_examples, folder, "int8", reduce_range=reduce_range)
        dense = next(array for array in weights_of(folder) if array.size == 1280)
        assert dense.dtype == np.int8 and most - 1 <= np.abs(dense.astype(int)).max() <= most
        assert facts["reduce_range"] is (reduce_range == "on")
    assert len(facts["layers_in_8_bits"]) == 3 and facts["preset"] == "performance"
    compiled = ov.Core().compile_model(folder / "Format-Serving/model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    ran = [op.get_rt_info() for op in compiled.get_runtime_model().get_ops()]
    kinds = [(str(info["layerType"].value), str(info["runtimePrecision"].value)) for info in ran]
    assert {kind for kind, precision in kinds if precision in ("i8", "u8")} & {"Convolution", "FullyConnected"}


@pytest.mark.nightly
def test_two_runs_write_the_same_bytes(digits_model, digits_examples, tmp_path):
    for precision in ("float32", "int8"):
        outs = [tmp_path / f"{precision} {number}" for number in (1, 2)]
        for out in outs:
            export_openvino(str(digits_model), str(out), str(digits_examples), precision=precision)
        assert OpenVINOModel(outs[0]).digest == OpenVINOModel(outs[1]).digest


def test_trained_ranges_are_used_unchanged(digits_examples, tmp_path):
    draw = np.random.default_rng(0)
    kernel, dense = (tf.constant(draw.normal(size=size), tf.float32) for size in ((3, 3, 1, 8), (288, 10)))
    fake, limits = tf.quantization.fake_quant_with_min_max_vars, tf.reduce_max(tf.abs(kernel), axis=[0, 1, 2])
    by_channel = tf.quantization.fake_quant_with_min_max_vars_per_channel

    def serve(image):
        pixels = fake(tf.reshape(image, [-1, 8, 8, 1]), 0.0, 16.0)
        hidden = tf.nn.relu(tf.nn.conv2d(pixels, by_channel(kernel, -limits, limits, narrow_range=True), 1, "VALID"))
        return {"y": tf.reshape(fake(hidden, 0.0, 40.0), [-1, 288]) @ fake(dense, -4.0, 4.0, narrow_range=True)}

    model = saved(tmp_path / "model", serve, image=([None, 64], tf.float32))
    facts = OPENVINO.export(model, digits_examples, tmp_path / "out", "int8")
    assert facts["ranges"] == "trained" and "calibration" not in facts
    largest = 1e-2 if needs_reduced_range() else 5e-3  # with VNNI, other ranges would differ more
    assert facts["verified"]["outputs"]["y"]["relative_error"] < largest
    assert [array.dtype for array in weights_of(tmp_path / "out")] == [np.int8] * 2
    with pytest.raises(ComponentError, match="8-bit ranges were trained") as error:
        export_openvino(str(model), str(tmp_path / "no"), precision="float16")
    assert "int8" in error.value.fix


def test_the_stability_compares_the_mean_ends_of_each_activation_on_both_halves(tmp_path):
    """Two products of -1 to 7 and -3 to 9 in turns on one half, of -4 to 10 on the other one."""

    def serve(x):
        return {"y": tf.nn.relu(x @ tf.constant(np.eye(2, 9), tf.float32)) @ tf.ones((9, 1))}

    model = openvino_graph.convert(saved(tmp_path / "model", serve, x=([None, 2], tf.float32)))
    rows = [[-1.0, 7.0], [-4.0, 10.0], [-3.0, 9.0], [-4.0, 10.0]] * 20
    feed = [{"x": np.float32([row])} for row in rows]
    parameters = OpenVINOConversion(calibration="moving_average")
    *_, facts = quantization.quantize(model, feed, parameters, lambda form: 0.1)
    stability = facts["stability"]
    assert stability["activations"] == 2 and stability["least_stable"].startswith("x/")
    of_x, of_relu = (2 + 2) / (10 + 4), (10 - 8) / 10
    assert stability["largest_difference"] == pytest.approx(of_x)
    assert stability["median_difference"] == pytest.approx((of_x + of_relu) / 2)


def test_the_ranges_of_all_methods_are_from_one_pass_and_those_of_nncf(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    kernel = tf.constant(draw.normal(size=(3, 3, 3, 4)), tf.float32)

    def serve(x):
        return {"y": tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))}

    model = openvino_graph.convert(saved(tmp_path / "model", serve, x=([None, 8, 8, 3], tf.float32)))
    feed = [{"x": rows[None]} for rows in draw.normal(size=(10, 8, 8, 3)).astype(np.float32)]
    forms, passes, collect = [], [], OVStatisticsAggregator.collect_statistics

    def count(aggregator, *arguments):
        passes.append(aggregator)
        collect(aggregator, *arguments)

    parameters = OpenVINOConversion(bias_correction="fast")
    monkeypatch.setattr(OVStatisticsAggregator, "collect_statistics", count)
    form, _ = quantization.quantize(model, feed, parameters, lambda form: forms.append(form) or 0.1)
    assert len(passes) == 1 and len(forms) == 2
    settings = form.settings
    for form, estimator in zip(forms, quantization.ESTIMATORS.values(), strict=True):
        settings["advanced_parameters"].activations_range_estimator_params = estimator or RangeEstimatorParameters()
        own = nncf.quantize(model.clone(), nncf.Dataset(feed), subset_size=len(feed), **settings)
        ours, theirs = (
            [op.get_data() for op in one.get_ops() if op.get_type_name() == "Constant"] for one in (form, own)
        )
        assert len(ours) == len(theirs) > 5 and all(map(np.array_equal, ours, theirs))
    assert len(passes) == 3


def test_biases_are_corrected_where_that_is_closer_to_the_float_model(tmp_path):
    """Quantize convolutions of images that are zero at their borders, whose means say little about their values."""
    draw = np.random.default_rng(0)
    kernels = [tf.constant(draw.normal(size=(3, 3, *size)) / 3, tf.float32) for size in ((1, 8), (8, 8))]
    bias = draw.normal(size=8).astype(np.float32)

    def serve(x):
        return {"y": tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, kernels[0], 2, "SAME") + bias), kernels[1], 2, "SAME")}

    images = np.zeros((40, 1, 16, 16, 1), np.float32)
    images[..., 5:11, 5:11, :] = draw.random((40, 1, 6, 6, 1))
    feed = [{"x": image} for image in images]
    model = openvino_graph.convert(saved(tmp_path / "model", serve, x=([None, 16, 16, 1], tf.float32)))
    exact = run(model, images)
    errors, forms = {}, {}
    for correction in ("none", "fast", "full", "auto"):
        parameters = OpenVINOConversion(calibration="min_max", bias_correction=correction)
        form, facts = quantization.quantize(
            model, feed, parameters, lambda form: float(((run(form, images) - exact) ** 2).mean())
        )
        forms[correction] = run(form.quantized, images)
        errors[correction] = ((forms[correction] - exact) ** 2).mean()
    measured = {correction: pytest.approx(errors[correction]) for correction in ("none", "fast")}
    chosen = min(measured, key=errors.get)
    assert facts["bias_correction"] == {"chosen": chosen, "error": measured}
    assert len({errors[correction] for correction in ("none", "fast", "full")}) == 3
    np.testing.assert_array_equal(forms["auto"], forms[chosen])


@pytest.mark.nightly  # daily: the mixes of ONNX and LiteRT
def test_the_worst_layer_stays_in_float_with_max_degradation(digits_examples, tmp_path):
    """Export two products: 8 bits lose the small columns of the second one; the first is harmless."""
    draw = np.random.default_rng(0)
    first = tf.constant(draw.normal(size=(64, 32)) / 20, tf.float32)
    gain = tf.constant(10.0 ** draw.uniform(-3.5, 0, 32), tf.float32)
    second = tf.constant(draw.normal(size=(32, 32)), tf.float32)
    last = tf.constant(draw.normal(size=(32, 10)), tf.float32)

    def serve(image):
        small = tf.nn.relu(image @ first) * gain
        return {"digit": ((small @ second) / 3 + (small / gain) @ second * 1e-1) @ last}

    model = saved(tmp_path / "model", serve, image=([None, 64], tf.float32))
    plain = OPENVINO.export(model, digits_examples, tmp_path / "plain", "int8")
    lost = 1 - plain["verified"]["outputs"]["digit"]["agreement"]
    assert lost > 0.004
    held = OPENVINO.export(model, digits_examples, tmp_path / "held", "int8", max_degradation=lost / 2)
    assert held["degradation"] <= lost / 2 and 0 < len(held["left_in_float"]) <= len(plain["layers_in_8_bits"]) / 2
    assert held["degradation_note"].startswith(f"the first of {len(held['left_in_float']) + 1} forms")
    with pytest.raises(ComponentError, match="at most half of them"):
        OPENVINO.export(model, digits_examples, tmp_path / "none", "int8", max_degradation=0.0)


def test_models_with_attention_use_the_mixed_preset(tmp_path):
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    words = layers.Input((6, 8), name="words")
    flow = layers.MultiHeadAttention(2, 4)(words, words) + words
    flow = layers.Dense(8, activation="gelu")(layers.LayerNormalization()(flow))
    keras.Model(words, layers.Dense(3, name="y")(layers.GlobalAveragePooling1D()(flow))).save(tmp_path / "model.keras")
    draw = np.random.default_rng(0).normal(size=(40, 48)).astype(np.float32)
    write_split(tmp_path / "ex", {"words": draw})
    facts = OPENVINO.export(tmp_path / "model.keras", tmp_path / "ex", tmp_path / "out", "int8")
    assert facts["attention"] and facts["preset"] == "mixed"
    assert (
        facts["stability"]["activations"] == 6
    )  # those that NNCF multiplies before it quantizes them, and three of heads
    assert facts["verified"]["outputs"]["y"]["correlation"] > 0.99


@pytest.mark.parametrize("axes", [[1], [1, 2]])
def test_rows_of_constants_after_a_reduction_are_applied_along_the_last_axis(axes):
    """OpenVINO fuses them into a reduction that removes axes, along the wrong axis: up to 0.9 of the range."""
    op, draw = int8_graph.opset13, np.random.default_rng(0)
    factors, kernel = draw.uniform(0.5, 1.5, (1, 16)).astype(np.float32), draw.integers(-127, 128, (3, 16), np.int8)
    x = op.parameter([-1, *[12] * len(axes), 16], np.float32)
    scaled = op.reduce_mean(x, op.constant(np.array(axes)), False) * op.constant(factors)
    quantized = op.fake_quantize(scaled, *np.float32([-1.5, 1.5, -1.5, 1.5]), 256)
    product = op.matmul(quantized, op.convert(op.constant(kernel), np.float32), False, True)
    graph = ov.Model([product], [x])
    int8_graph.keep_reduced_axes(graph)
    values = draw.normal(size=(20, *[12] * len(axes), 16)).astype(np.float32)
    compiled = ov.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    expected = (values.mean(tuple(axes)) * factors) @ kernel.T
    assert np.abs(compiled(values)[0] - expected).max() < 0.05 * np.ptp(expected)


@pytest.mark.parametrize("rows", ["merged", "flat"])
@pytest.mark.parametrize(
    ("columns", "shape"),
    [(4, [-1, 16, 4]), (12, [-1, 16, 12]), (16, [-1, 16, 16]), (32, [-1, 16, 4, 8]), (12, [-1, 4, 4, 3, 4])],
)
def test_scales_of_columns_stay_with_them_after_a_reshape_of_rows(columns, shape, rows):
    """OpenVINO moves them behind the Reshape, along its second axis: wrong values, or a model that does not compile."""
    op, draw = int8_graph.opset13, np.random.default_rng(0)
    kernel = draw.integers(-127, 128, (columns, 8), np.int8)
    scales = np.geomspace(0.001, 0.1, columns, dtype=np.float32)[:, np.newaxis]
    x = op.parameter([-1, 16, 8] if rows == "merged" else [-1, 8], np.float32)
    flat = op.reshape(x, op.constant([-1, 8]), False) if rows == "merged" else x
    quantized = op.fake_quantize(flat, *np.float32([-4, 4, -4, 4]), 256)
    weights = op.multiply(op.convert(op.constant(kernel), np.float32), op.constant(scales))
    product = op.reshape(op.matmul(quantized, weights, False, True), op.constant(shape), False)
    graph = ov.Model([op.relu(product)], [x])
    int8_graph.split_rows_before_products(graph)
    values = draw.normal(size=(48, 8)).astype(np.float32)
    fed = values.reshape(3, 16, 8) if rows == "merged" else values
    compiled = ov.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    expected = np.maximum(np.clip(values, -4, 4) @ (kernel * scales).T, 0).reshape(shape)
    largest = expected.reshape(-1, columns).max(axis=0)
    assert (np.abs(compiled(fed)[0] - expected).reshape(-1, columns).max(axis=0) < 0.05 * largest).all()


def test_products_with_matrices_of_a_batch_keep_their_rows():
    """Their second axis is that of the rows: as many rows as columns after the Reshape are no reason to split them."""
    op = int8_graph.opset13
    x, kernels = op.parameter([4, 8], np.float32), np.ones((2, 8, 6), np.float32)
    product = op.reshape(op.matmul(x, op.constant(kernels), False, False), op.constant([4, 3, 4]), False)
    graph = ov.Model([product], [x])
    int8_graph.split_rows_before_products(graph)
    assert [node.get_type_name() for node in graph.get_ordered_ops()].count("Reshape") == 1


def test_a_product_on_sequences_is_exported_in_8_bits(tmp_path):
    """With as many tokens as columns or more, the CPU plugin failed, or scaled the tokens instead of the columns."""
    draw = np.random.default_rng(0)
    weights = (draw.normal(size=(8, 12)) * np.geomspace(0.05, 5, 12)).astype(np.float32)

    def project(words):
        return {"y": tf.reshape(tf.nn.relu(tf.reshape(tf.reshape(words, [-1, 8]) @ weights, [-1, 16, 12])), [-1, 192])}

    saved(tmp_path / "model", project, words=([None, 16, 8], tf.float32))
    write_split(tmp_path / "ex", {"words": draw.normal(size=(40, 128)).astype(np.float32)})
    facts = OPENVINO.export(tmp_path / "model", tmp_path / "ex", tmp_path / "out", "int8")
    assert len(facts["layers_in_8_bits"]) == 1
    assert facts["verified"]["outputs"]["y"]["noise"] < 0.05


@pytest.mark.parametrize("length", [None, 40])
def test_an_attention_of_one_query_has_the_scales_of_its_columns_in_int8(length, tmp_path):
    """Of the last word for all words, before a product with a kernel, whose input SmoothQuant scales."""
    draw = np.random.default_rng(1)
    words = draw.normal(size=(96, 40, 4)).astype(np.float32)
    query, key, value, kernel = (
        tf.constant(draw.normal(size=size), tf.float32) for size in ((4, 4), (4, 4), (4, 8), (8, 4))
    )

    def serve(words):
        scores = tf.matmul(words @ query, words @ key, transpose_b=True)
        return {"y": tf.nn.softmax(scores)[:, -1:] @ (words @ value) @ kernel}

    model = saved(tmp_path / "model", serve, words=([None, length, 4], tf.float32))
    examples = write_split(tmp_path / "examples", {"words": words[:64].reshape(64, -1)})
    write_split(examples, {"words": words[64:].reshape(32, -1)}, "eval")
    facts = OPENVINO.export(model, examples, tmp_path / "out", "int8")
    assert facts["verified"]["outputs"]["y"]["correlation"] > 0.98 and len(facts["layers_in_8_bits"]) == 6


def test_strings_and_unsupported_ops_are_named(tmp_path):
    text = saved(tmp_path / "text", lambda word: {"n": tf.strings.length(word)}, word=([None, 1], tf.string))
    with pytest.raises(ComponentError, match="'word': string") as error:
        OPENVINO.export(text, None, tmp_path / "a")
    assert error.value.fix == "look words up before the model"
    model = saved(tmp_path / "model", lambda x: {"y": tf.math.igamma(x, x)}, x=([None, 3], tf.float32))
    with pytest.raises(ComponentError, match="cannot convert: Igamma"):
        OPENVINO.export(model, None, tmp_path / "b")
    (tmp_path / "broken.onnx").write_bytes(b"no protobuf at all")
    with pytest.raises(ComponentError, match="the converter failed"):
        openvino_graph.convert(tmp_path / "broken.onnx")


def test_int8_without_a_layer_for_it_raises(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.tanh(x) * 2}, x=([None, 3], tf.float32))
    draw = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    write_split(tmp_path / "ex", {"x": draw})
    with pytest.raises(ComponentError, match="without a convolution"):
        OPENVINO.export(model, tmp_path / "ex", tmp_path / "out", "int8")


def test_an_onnx_file_is_exported_exactly(tmp_path):
    data = write_split(tmp_path / "ex", {"serving_default_input_2:0": chords()})
    facts = OPENVINO.export(pretrained("nmp.onnx"), data, tmp_path / "out", tolerance=PRETRAINED_ERROR)
    outputs = facts["verified"]["outputs"]
    assert len(outputs) == 3 and all(parity["correlation"] > 0.9999 for parity in outputs.values())


def test_contradicting_arguments_raise_before_any_work(digits_model, tmp_path):
    (tmp_path / "a.xml").write_bytes(b"<net/>")
    (tmp_path / "a.bin").write_bytes(b"")
    for arguments, received, fix in [
        ({"precision": "int4"}, "precision='int4'", "did you mean int8?"),
        ({"max_degradation": 0.1}, "max_degradation=0.1 with precision='float32'", "leave it out"),
        ({"model": str(tmp_path / "a.xml")}, "a openvino model", "it was converted from"),
    ]:
        with pytest.raises(ComponentError) as error:
            export_openvino(**({"model": str(digits_model), "exported": str(tmp_path / "out")} | arguments))
        assert received in error.value.received and fix in error.value.fix
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("second", "depthwise"),
    [
        *(("sigmoid", True), ("product", False), ("output", False)),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (("sigmoid", False), ("product", True), ("output", True))
        ),
    ],
)
def test_a_convolution_that_several_read_has_its_scales_for_all(second, depthwise, tmp_path):
    """Without a bias, OpenVINO 2026.4 moves its scales behind one of them, and another reads values without scales."""
    draw = np.random.default_rng(0)
    kernels = [draw.normal(size=(3, 3, 4, 1 if depthwise else 4)), draw.normal(size=(3, 3, 4, 2))]
    first, last = (tf.constant(kernel, tf.float32) for kernel in kernels)
    read = {
        "sigmoid": tf.sigmoid,
        "product": lambda x: tf.reshape(x, [-1, 256]) @ tf.ones((256, 2)),
        "output": tf.identity,
    }

    def serve(x):
        convolve = tf.nn.depthwise_conv2d if depthwise else tf.nn.conv2d
        convolved = convolve(x, first, strides=[1, 1, 1, 1], padding="SAME")
        return {"y": tf.nn.conv2d(tf.nn.relu(convolved), last, 1, "SAME"), "z": read[second](convolved)}

    model = saved(tmp_path / "model", serve, x=([None, 8, 8, 4], tf.float32))
    write_split(tmp_path / "ex", {"x": draw.normal(size=(50, 256)).astype(np.float32)})
    settings = {"bias_correction": "none", "calibration": "min_max"}
    facts = OPENVINO.export(model, tmp_path / "ex", tmp_path / "out", "int8", **settings)
    assert len(facts["layers_in_8_bits"]) == (3 if second == "product" else 2)
    assert all(output["noise"] < 0.03 for output in facts["verified"]["outputs"].values())
