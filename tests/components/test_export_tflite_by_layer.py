"""Test export_tflite layer by layer: 4 bits, recipes, layers left in float, sparse weights, stability of ranges."""

import re
from itertools import pairwise
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from tests.components.exporters import TFLITE, run, write_split
from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.components.export_tflite import flatbuffer, layer_quantization, litert_converter, quantize
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.export_tflite.flatbuffer import dense_scale_bytes
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.components.export_tflite.quantize import MAX_EXTRA_DEGRADATION, choose_dense_scales
from tfopt.conversion.calibration import compare_halves
from tfopt.conversion.convert import summarize
from tfopt.conversion.mixes import fastest_mix
from tfopt.conversion.mixes.mixed_precision import Layer, rank_promotions
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.measurement.parity import Parity, degradation


def weights(folder: Path) -> dict[str, int]:
    """Return the type of every stored matrix and kernel, by the name of its tensor."""
    file = schema.ModelT.InitFromPackedBuf((folder / "Format-Serving" / "tflite").read_bytes(), 0)
    return {
        tensor.name.decode(): tensor.type
        for tensor in file.subgraphs[0].tensors
        if file.buffers[tensor.buffer].data is not None and len(tensor.shape) > 1
    }


def agreement(parent: Path, child: Path, examples: Path) -> float:
    one, other = runtimes.load(Model(parent)), runtimes.load(TFLiteModel(child))
    batch = next(read_batches(Examples(examples).split("eval"), one.inputs, batch_size=397))
    return float((one.run(batch)["digit"].argmax(1) == other.run(batch)["digit"].argmax(1)).mean())


@pytest.fixture(scope="module")
def wide(tmp_path_factory, digits_examples) -> Path:
    """Train dense layers on the digits; 9 of 10 weights of the first are zero."""
    specs = {"image": runtimes.TensorSpec("float32", (None, 64)), "label": runtimes.TensorSpec("int64", (None, 1))}
    train = next(read_batches(Examples(digits_examples).split("train"), specs, batch_size=1400))
    keras.utils.set_random_seed(0)
    image = layers.Input((64,), name="image")
    flow = layers.Dense(128, activation="relu", name="first")(layers.Rescaling(1 / 16)(image))
    flow = layers.Dense(64, activation="relu", name="second")(flow)
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(train["image"], train["label"], epochs=6, verbose=0)
    kernel, bias = model.get_layer("first").get_weights()
    kernel[np.abs(kernel) < np.quantile(np.abs(kernel), 0.9)] = 0
    model.get_layer("first").set_weights([kernel, bias])
    keras_models.save(model, tmp_path_factory.mktemp("wide") / "model")
    return tmp_path_factory.getbasetemp() / "wide0" / "model"


def test_the_rule_of_a_layer_matches_no_layer_whose_name_begins_with_its_name():
    model = object.__new__(layer_quantization.QuantizableModel)
    model._scopes = {"norm/mul": "norm/mul", "norm/mul;query/Einsum": "norm/mul;query/Einsum", "split": "split;split:1"}
    (norm, _), (query, _), (split, _) = model.layer_rules(dict.fromkeys(model._scopes, "float32"))
    scopes = [f"{scope};" for scope in model._scopes.values()]  # as the quantizer writes them
    matches = [[bool(re.search(pattern, scope)) for scope in scopes] for pattern in (norm, query, split)]
    assert matches == [[True, False, False], [False, True, False], [False, False, True]]
    assert re.search(split, "split")  # the name of the layer, which is that of its first output


def test_int4_stores_weights_in_four_bits_and_needs_no_data(wide, digits_examples, tmp_path):
    TFLITE.export(wide, None, tmp_path / "out", "int4")
    assert set(weights(tmp_path / "out").values()) == {schema.TensorType.INT4}
    TFLITE.export(wide, None, tmp_path / "dynamic", "dynamic")
    sizes = [(tmp_path / name / "Format-Serving/tflite").stat().st_size for name in ("out", "dynamic")]
    assert sizes[0] < 0.75 * sizes[1]
    assert agreement(wide, tmp_path / "out", digits_examples) > 0.9


def test_a_recipe_sets_the_kind_of_each_layer_and_the_last_match_applies(wide, digits_examples, tmp_path):
    rules = ("MatMul=int8", "second=int4x32", "digit=float32")
    facts = TFLITE.export(wide, digits_examples, tmp_path / "out", "dynamic", recipe=rules)
    kinds = {name: kind for name, kind in weights(tmp_path / "out").items()}
    layer_kinds = [
        next(kind for name, kind in kinds.items() if layer in name) for layer in ("first", "second", "digit")
    ]
    assert layer_kinds == [schema.TensorType.INT8, schema.TensorType.INT4, schema.TensorType.FLOAT32]
    assert facts["verified"]["outputs"]["digit"]["agreement"] > 0.95


def test_a_kind_that_litert_does_not_load_raises(wide, tmp_path):
    with pytest.raises(ComponentError, match="does not load") as error:  # some blocks of 32 weights are all zeros
        TFLITE.export(wide, None, tmp_path / "out", "dynamic", recipe=("first=int4x32",))
    assert "another kind for the layer" in error.value.fix


def test_a_rule_that_matches_no_layer_raises_with_the_names(wide, tmp_path):
    with pytest.raises(ComponentError) as error:
        TFLITE.export(wide, None, tmp_path / "out", "int4", recipe=("frist=float32",))
    assert error.value.received == "recipe frist=float32: no such layer" and "first" in error.value.expected


@pytest.mark.parametrize("integer_io", [False, True])
def test_int8_by_recipe_has_the_requested_inputs_and_outputs(digits_model, digits_examples, tmp_path, integer_io):
    rules = ("depthwise=float32",)
    facts = TFLITE.export(digits_model, digits_examples, tmp_path / "out", "int8", recipe=rules, integer_io=integer_io)
    stored = "INT8" if integer_io else "FLOAT32"
    assert facts["ops"]["io"] == {"image": stored, "digit": stored}
    assert facts["ops"]["float"]["DEPTHWISE_CONV_2D"] == 1 and facts["ops"]["integer"] >= 3
    assert agreement(digits_model, tmp_path / "out", digits_examples) > 0.97


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    """Write examples of 64 values, the first of them zero."""
    folder, draw = tmp_path_factory.mktemp("vectors"), np.random.default_rng(0)
    for split, count in (("train", 30), ("eval", 200)):
        rows = draw.normal(size=(count, 64)).astype(np.float32) * np.array([0] + [1] * 63, np.float32)
        write_examples(folder / f"Split-{split}/data_tfrecord-00000-of-00001.gz", {"x": rows})
    return folder


def sum_of_layers(folder: Path, names: list[str]) -> Path:
    """Save a sum of products; those named torn have one huge row, for the zero, so that 8 bits lose the other rows.

    That of those named huge is out of the range of float16, and 4 bits lose the rows of those named rough.
    """
    import tensorflow as tf

    draw = np.random.default_rng(1)
    kernels = {name: draw.normal(size=(64, 32)).astype(np.float32) for name in names}
    for name in names:
        kernels[name][0] *= {"torn": 3_000, "huge": 100_000, "rough": 20}.get(name.partition("_")[0], 1)

    def serve(x):
        return {"y": tf.add_n([tf.matmul(x * (i + 1.0), kernels[name], name=name) for i, name in enumerate(names)])}

    return saved(folder, serve, x=([None, 64], tf.float32))


@pytest.mark.parametrize(("worst", "kind"), [("torn", schema.TensorType.FLOAT16), ("huge", schema.TensorType.FLOAT32)])
def test_the_worst_layers_have_more_bits_until_the_limit_is_met(vectors, tmp_path, worst, kind):
    model = sum_of_layers(tmp_path / "model", [worst, "b", "c", "d"])
    plain = TFLITE.export(model, vectors, tmp_path / "plain", "dynamic", tolerance=1.0)
    assert 1 - plain["verified"]["outputs"]["y"]["agreement"] > 0.1 and "tried" not in plain
    facts = TFLITE.export(model, vectors, tmp_path / "out", "dynamic", max_degradation=0.05)
    assert 1 - facts["verified"]["outputs"]["y"]["agreement"] <= 0.05
    assert len(facts["left_in_float"]) == 1 and worst in facts["left_in_float"][0]
    first, second = facts["tried"]
    assert facts["degradation_note"].startswith("the first of 2 forms that met max_degradation on the held-out records")
    assert first["degradation"] > 0.1 and (first["steps"], second["steps"]) == (0, 1)
    assert second["bytes"] == (tmp_path / "out" / "Format-Serving" / "tflite").stat().st_size
    kinds = weights(tmp_path / "out")
    assert sorted(kinds.values()) == [*sorted([kind, *[schema.TensorType.INT8] * 3])]


def test_each_layer_of_a_mix_has_the_fewest_bits_that_keep_the_answers(vectors, tmp_path):
    model = sum_of_layers(tmp_path / "model", ["d", "e", "f", "g", "rough", "torn", "huge"])
    facts = TFLITE.export(model, vectors, tmp_path / "out", "auto", max_degradation=0.2)
    assert 1 - facts["verified"]["outputs"]["y"]["agreement"] <= 0.2
    raised = {
        word: kind for name, kind in facts["raised"].items() for word in ("torn", "huge", "rough") if word in name
    }
    assert len(facts["raised"]) == 3 and raised == {"torn": "float16", "huge": "float32", "rough": "int8"}
    assert sorted(weights(tmp_path / "out").values()).count(schema.TensorType.INT4) == 4


def test_a_mix_for_latency_meets_the_limit_and_no_faster_kind_that_was_timed_does(vectors, tmp_path, monkeypatch):
    monkeypatch.setattr(fastest_mix, "TIMED_S", 0.01)
    model = sum_of_layers(tmp_path / "model", ["d", "e", "rough", "torn", "huge"])
    facts = TFLITE.export(model, vectors, tmp_path / "out", "auto", max_degradation=0.2, minimize="latency")
    assert 1 - facts["verified"]["outputs"]["y"]["agreement"] == pytest.approx(facts["degradation"])
    assert facts["degradation"] <= 0.2
    timed = facts["latency"]
    # XNNPACK refuses the file of int4: the scales of the weights differ too much for integer activations.
    assert list(timed["milliseconds"])[:4] == ["int8", "dynamic", "float16", "float32"]
    assert min(timed["milliseconds"].values()) > 0 and timed["used"] in timed["milliseconds"]
    assert facts["calibration"]["used"] == 30  # of the ranges of activations


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> tuple[Path, Path]:
    """Save convolutions and a sum on images, one of whose channels is mostly near zero, and write examples."""
    folder, draw = tmp_path_factory.mktemp("images"), np.random.default_rng(3)
    for split, count in (("train", 30), ("eval", 200)):
        rows = draw.normal(size=(count, 8, 8, 3)).astype(np.float32)
        write_examples(folder / f"examples/Split-{split}/data_tfrecord-00000-of-00001.gz", {"x": rows})
    keras.utils.set_random_seed(0)
    image = layers.Input((8, 8, 3), name="x")
    first = layers.Conv2D(8, 3, padding="same", activation="relu", name="first")(image)
    second = layers.Conv2D(8, 3, padding="same", activation="relu", name="second")(first)
    flow = layers.Flatten()(layers.Add(name="sum")([first, second]))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="last")(flow))
    keras_models.save(model, folder / "model")
    return folder / "model", folder / "examples"


def tensor_types(content: bytes, op_types: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Return the types of the first input and of the weights (-1 if there are none) of ops, by name of the output."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    graph, codes = file.subgraphs[0], [flatbuffer.op_name(code) for code in file.operatorCodes]
    types = {}
    for op in graph.operators:
        if codes[op.opcodeIndex] in op_types:
            first, second, *_ = (graph.tensors[index] for index in op.inputs)
            stored = file.buffers[second.buffer].data is not None
            types[graph.tensors[op.outputs[0]].name.decode()] = first.type, second.type if stored else -1
    return types


def test_layers_of_a_mix_for_latency_have_integer_activations_integer_weights_or_floats(images, tmp_path):
    model, examples = images
    parameters = TFLiteConversion(precision="auto", max_degradation=0.1, minimize="latency")
    keras_models.place_saved_model(Model(model), tmp_path / "saved_model")
    specs = runtimes.load(Model(model)).inputs
    feed = [batch for batch in read_batches(Examples(examples).split("train"), specs, batch_size=1)]
    content = litert_converter.convert_float(tmp_path / "saved_model", parameters)
    quantizable = layer_quantization.QuantizableModel(content, parameters, feed)
    kinds = {layer.output: list(layer.kinds) for layer in quantizable.layers}
    first, second, last = (next(n for n in kinds if name in n) for name in ("first", "second", "last"))
    added = next(name for name in kinds if "sum" in name)
    assert kinds[first] == ["int4", "int8", "dynamic", "float16", "float32"] and kinds[added] == ["int8", "float32"]
    mixed = quantizable.quantize({first: "int8", second: "dynamic", added: "float32", last: "int4"})
    kind = schema.TensorType
    types = tensor_types(mixed, ("CONV_2D", "FULLY_CONNECTED", "ADD"))
    expected = [(kind.INT8, kind.INT8), (kind.FLOAT32, kind.INT8), (kind.FLOAT32, -1), (kind.INT8, kind.INT4)]
    assert [*types.values()] == expected
    halves = tensor_types(quantizable.quantize({}, "float16"), ("CONV_2D", "FULLY_CONNECTED", "ADD"))
    assert {first for first, _ in halves.values()} == {kind.FLOAT32}
    dynamic = tensor_types(quantizable.quantize({}, "dynamic"), ("CONV_2D", "FULLY_CONNECTED", "ADD"))
    assert set(dynamic.values()) == {(kind.FLOAT32, kind.INT8), (kind.FLOAT32, -1)}


@pytest.mark.parametrize("minimize", ["size", "latency"])
def test_weights_that_two_layers_read_may_have_two_kinds(minimize, tmp_path):
    """ai-edge-quantizer copies them under a name that it cannot extend."""
    matrix = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)

    def serve(x):
        kernel = tf.constant(matrix)
        return {"y": tf.matmul(tf.nn.relu(tf.matmul(x, kernel, name="a")), kernel, name="b")}

    parameters = TFLiteConversion(precision="auto", max_degradation=0.1, minimize=minimize)
    content = litert_converter.convert_float(saved(tmp_path / "model", serve, x=([None, 8], tf.float32)), parameters)
    feed = [{"x": row} for row in np.random.default_rng(1).normal(size=(20, 1, 8)).astype(np.float32)]
    model = layer_quantization.QuantizableModel(content, parameters, feed)
    first, second = (layer.output for layer in model.layers if layer.weights)
    for kinds in ({first: "float16", second: "int8"}, {first: "int8", second: "float16"}):
        call = Interpreter(model_content=model.quantize(kinds)).get_signature_runner()
        received = call(**feed[0])["y"]
        np.testing.assert_allclose(received, np.maximum(feed[0]["x"] @ matrix, 0) @ matrix, atol=0.3)


def test_the_fastest_kind_may_have_activations_in_8_bits(images, tmp_path, monkeypatch):
    model, examples = images
    seconds = {"int4": 3.0, "int8": 1.0, "dynamic": 2.0, "float16": 4.0, "float32": 5.0}
    monkeypatch.setattr(
        layer_quantization.QuantizableModel, "measure_seconds", lambda model, files: [*seconds.values()][: len(files)]
    )
    facts = TFLITE.export(model, examples, tmp_path / "out", "auto", max_degradation=0.2, minimize="latency")
    assert facts["latency"]["used"] == "int8" and facts["degradation"] <= 0.2
    assert facts["ops"]["integer"] >= 4 and facts["ops"]["io"] == {"x": "FLOAT32", "last": "FLOAT32"}
    assert "stability" in facts and facts["calibration"]["split"] == "train"


def test_a_mix_for_latency_has_the_requested_calibration(images, tmp_path):
    model, examples = (str(path) for path in images)
    settings = {"precision": "auto", "max_degradation": 0.5, "calibration": "percentile"}
    out = export_tflite(model, str(tmp_path / "out"), examples, **settings, minimize="latency")["exported"]
    assert out.metadata["calibration"]["used"] == 30
    with pytest.raises(ComponentError, match="calibration='percentile' with precision='auto'"):
        export_tflite(model, str(tmp_path / "size"), examples, **settings)


def test_steps_remove_most_noise_for_each_byte_first(monkeypatch):
    content = b""
    noise = {  # of the tensors, by the kind of all layers; 8 bits do not help the third
        "int4": {"first": 0.5, "second": 0.7, "third": 0.8, "fourth": 1.8},
        "int8": {"first": 0.01, "second": 0.05, "third": 0.15, "fourth": 0.16},
        "float16": {"first": 0.009, "second": 0.009, "third": 0.009, "fourth": 0.009},
    }
    model = layer_quantization.QuantizableModel(content, TFLiteConversion(precision="int4"), [])
    sizes = {"first": 100, "second": 10, "third": 10, "fourth": 1000}
    chain = [
        (Layer([source], name, (), sizes[name]), 1e5 if name == "fourth" else 1.0)
        for source, name in pairwise(["input", *sizes])
    ]
    monkeypatch.setattr(layer_quantization, "_layers", lambda content: chain)
    monkeypatch.setattr(model, "quantize", lambda kinds, lowest: lowest)
    monkeypatch.setattr(model, "measure_noise", noise.__getitem__)
    steps = rank_promotions(model)
    assert steps[:4] == [("second", "int8"), ("first", "int8"), ("third", "float16"), ("second", "float16")]
    assert [step for step in steps if step[0] == "fourth"] == [("fourth", "int8"), ("fourth", "float32")]
    assert {kind for _, kind in steps[-3:]} == {"float32"} and ("fourth", "float32") not in steps[-3:]
    model.rules = [("first", "float32"), ("second", "int8"), ("third", "int4x32")]
    promotions = rank_promotions(model)
    assert [kind for name, kind in promotions if name == "first"] == []
    assert [kind for name, kind in promotions if name == "second"] == ["float16", "float32"]
    assert [kind for name, kind in promotions if name == "third"] == ["float16", "float32"]


@pytest.mark.parametrize(("outlier", "scales"), [(1, "min_max_uniform_quantize"), (8, "MSE")])
def test_the_scales_of_four_bits_are_those_that_degrade_least(vectors, tmp_path, outlier, scales):
    kernel = np.random.default_rng(2).uniform(-1, 1, size=(64, 32)).astype(np.float32)
    kernel[0] *= outlier  # of the input that is zero
    model = saved(tmp_path / "model", lambda x: {"y": x @ kernel}, x=([None, 64], tf.float32))
    facts = TFLITE.export(model, vectors, tmp_path / "out", "int4", tolerance=1.0)
    degradation, used = facts["weight_scales"]["degradation"], facts["weight_scales"]["used"]
    assert used == min(degradation, key=degradation.__getitem__)
    assert 1 - facts["verified"]["outputs"]["y"]["agreement"] == pytest.approx(degradation[used])
    del degradation[layer_quantization.COMPENSATED]
    assert scales == min(degradation, key=degradation.__getitem__)
    assert "weight_scales" not in TFLITE.export(model, vectors, tmp_path / "dynamic", "dynamic", tolerance=1.0)


def test_a_limit_that_is_met_at_once_changes_nothing(digits_model, digits_examples, tmp_path):
    TFLITE.export(digits_model, digits_examples, tmp_path / "a", "dynamic")
    facts = TFLITE.export(digits_model, digits_examples, tmp_path / "b", "dynamic", max_degradation=0.05)
    assert not {"left_in_float", "degradation_note"} & facts.keys()
    one, other = (tmp_path / name / "Format-Serving/tflite" for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


def test_a_limit_out_of_reach_raises(vectors, tmp_path):
    model = sum_of_layers(tmp_path / "model", ["huge_a", "huge_b", "huge_c", "huge_d"])
    with pytest.raises(ComponentError, match="with 2 of 4 layers left in float") as error:
        TFLITE.export(model, vectors, tmp_path / "out", "dynamic", max_degradation=0.05)
    assert error.value.expected == "at most max_degradation=0.05"
    TFLITE.export(model, vectors, tmp_path / "mix", "auto", max_degradation=0.05)
    assert set(weights(tmp_path / "mix").values()) == {schema.TensorType.FLOAT32}


def test_a_limit_that_float16_exceeds_raises(vectors, tmp_path):
    kernel = np.random.default_rng(0).normal(size=(64, 1)).astype(np.float32)
    model = saved(tmp_path / "model", lambda x: {"y": x @ kernel}, x=([None, 64], np.float32))
    with pytest.raises(ComponentError, match="float16: degradation"):
        TFLITE.export(model, vectors, tmp_path / "out", "float16", max_degradation=0.0)


def test_degradation_is_the_worst_of_all_outputs():
    def parity(agreement, correlation=None, error=1.0):
        return Parity(error, 0.1, 1.0, agreement, 10, correlation=correlation)

    assert degradation([parity(0.9), parity(0.7)]) == pytest.approx(0.3)
    assert degradation([parity(None, 0.8), parity(1.0)]) == pytest.approx(0.2)
    assert degradation([parity(None, None, 0.0)]) == 0
    assert degradation([parity(None, None, 0.5)]) == 1


def test_dense_layers_have_one_scale_if_that_saves_much_and_degrades_little(
    wide, digits_model, digits_examples, tmp_path, monkeypatch
):
    monkeypatch.setattr(quantize, "MIN_SAVED_BYTES", 1000)
    dense_scales = TFLITE.export(wide, digits_examples, tmp_path / "out", "int8")["dense_scales"]
    assert dense_scales["one_for_each"] == "layer"
    assert dense_scales["degradation"]["layer"] <= dense_scales["degradation"]["channel"] + MAX_EXTRA_DEGRADATION
    content = (tmp_path / "out" / "Format-Serving" / "tflite").read_bytes()
    assert len(content) == dense_scales["bytes"]["layer"] < dense_scales["bytes"]["channel"] - 1500
    assert dense_scale_bytes(content) == 0
    assert agreement(wide, tmp_path / "out", digits_examples) > 0.95
    strict = TFLITE.export(wide, digits_examples, tmp_path / "strict", "int8", tolerance=1.0)
    assert "dense_scales" not in strict  # with a tolerance the most exact file is chosen
    assert "dense_scales" not in TFLITE.export(digits_model, digits_examples, tmp_path / "small", "int8")
    channels = (tmp_path / "strict" / "Format-Serving" / "tflite").read_bytes()
    assert dense_scale_bytes(channels) == 2 * 4 * (128 + 64 + 10)
    for loss, choice in ((0.004, content), (0.005, channels)):
        measure = {channels: 0.01, content: 0.01 + loss}.__getitem__
        assert choose_dense_scales(channels, lambda: content, measure)[0] == choice
    limited = choose_dense_scales(channels, lambda: content, {channels: 0.01, content: 0.012}.__getitem__, 0.011)
    assert limited[0] == channels and limited[1]["dense_scales"]["one_for_each"] == "channel"


@pytest.mark.parametrize(
    "precision", ["int8", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("int4", "dynamic"))]
)
def test_zero_points_are_stored_once_and_constants_are_aligned(precision, wide, digits_examples, tmp_path, monkeypatch):
    contents, outputs = [], []
    image = np.random.default_rng(0).uniform(0, 16, (20, 64)).astype(np.float32)
    for name in ("shared", "separate"):
        if name == "separate":
            monkeypatch.setattr(flatbuffer, "MAX_BYTES", 0)
        TFLITE.export(wide, digits_examples, tmp_path / name, precision, tolerance=1.0)  # scales for each channel
        contents.append((tmp_path / name / "Format-Serving" / "tflite").read_bytes())
        outputs.append(run(TFLiteModel(tmp_path / name), {"image": image})["digit"])
    np.testing.assert_array_equal(*outputs)
    shared, separate = (schema.ModelT.InitFromPackedBuf(content, 0) for content in contents)
    for one, other in zip(shared.subgraphs[0].tensors, separate.subgraphs[0].tensors, strict=True):
        assert (one.name, one.type, list(one.shape)) == (other.name, other.type, list(other.shape))
    for one, other in zip(shared.buffers, separate.buffers, strict=True):
        assert one.data is None or (one.data.tobytes() == other.data.tobytes())
        if one.data is not None and len(one.data) > 1000:
            assert contents[0].index(one.data.tobytes()) % 16 == 0
    # In int8 a bias has as many zero points as its kernel. Kernels of other numbers of channels have their own.
    assert len(contents[0]) < len(contents[1]) - {"int8": 7 * (128 + 64 + 10)}.get(precision, 0)


@pytest.mark.parametrize("precision", ["int4", pytest.param("auto", marks=pytest.mark.nightly)])
def test_constants_of_over_256_kb_are_quantized(precision, tmp_path):
    keras.utils.set_random_seed(0)
    x = keras.Input((600,), name="x")
    flow = keras.layers.Dense(10, name="y")(keras.layers.Dense(1000, "tanh")(x))
    keras_models.save(keras.Model(x, flow), tmp_path / "model")
    rows = np.random.default_rng(0).normal(size=(80, 600)).astype(np.float32)
    examples = write_split(tmp_path / "examples", {"x": rows})
    write_split(examples, {"x": rows}, "eval")
    limit = {"max_degradation": 0.5} if precision == "auto" else {}
    facts = TFLITE.export(tmp_path / "model", examples, tmp_path / "out", precision, **limit)
    assert (tmp_path / "out/Format-Serving/tflite").stat().st_size < 320_000 < facts["ops"]["constant_bytes"] + 20_000
    expected, received = (run(Model(tmp_path / name), {"x": rows})["y"] for name in ("model", "out"))
    assert np.corrcoef(expected.ravel(), received.ravel())[0, 1] > 0.95


def test_zeros_are_stored_sparsely(wide, digits_examples, tmp_path):
    sizes = {}
    for precision in ("float32", "float16"):
        for sparse in (False, True):
            folder = tmp_path / f"{precision} {sparse}"
            facts = TFLITE.export(wide, digits_examples, folder, precision, sparse=sparse)
            sizes[precision, sparse] = (folder / "Format-Serving/tflite").stat().st_size
            assert facts["ops"]["sparse"] == (1 if sparse else 0) and facts["verified"]["run"]
    assert sizes["float32", True] < 0.65 * sizes["float32", False]
    assert sizes["float16", True] < 0.75 * sizes["float16", False]


@pytest.mark.parametrize("precision", ["dynamic", "int8"])
def test_a_sparse_file_that_litert_converts_but_does_not_load_raises(wide, digits_examples, tmp_path, precision):
    with pytest.raises(ComponentError) as error:
        TFLITE.export(wide, digits_examples, tmp_path / "out", precision, sparse=True)
    assert error.value.received.startswith(f"a sparse {precision} file, which LiteRT converts but does not load")
    assert error.value.expected == "sparse with precision float32 or float16"


def test_sparse_without_zeros_raises(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="no layer's weights are mostly zeros") as error:
        TFLITE.export(digits_model, None, tmp_path / "out", sparse=True)
    assert "prune it first" in error.value.fix


def test_the_card_has_the_stability_of_the_ranges(wide, digits_examples, tmp_path):
    first, second = (
        TFLITE.export(wide, digits_examples, tmp_path / str(count), "int8", calibration_count=count)["stability"]
        for count in (10, 400)
    )
    assert first["activations"] == second["activations"] >= 4 and first["least_stable"]
    assert second["median_difference"] < first["median_difference"] <= first["largest_difference"] <= 1


def test_the_stability_compares_the_ends_of_each_activation_on_both_halves(tmp_path):
    def serve(x):
        return {"y": tf.nn.relu(x @ tf.constant(np.eye(2, 9), tf.float32)) @ tf.ones((9, 1))}

    model = saved(tmp_path / "model", serve, x=([None, 2], tf.float32))
    content = litert_converter.convert_float(model, TFLiteConversion())
    rows = [[-1.0, 7.0], [-4.0, 10.0], [-3.0, 9.0], [-2.0, 5.0]] * 20
    histograms = quantize.measure_histograms(content, [{"x": np.float32([row])} for row in rows])
    stability = compare_halves(histograms.values())
    of_x, of_relu, of_y = (1 + 1) / (10 + 4), (10 - 9) / 10, (7 - 5 + 10 - 9) / (10 - 5)
    assert stability["activations"] == 3 and stability["least_stable"] != "x"
    assert stability["largest_difference"] == pytest.approx(of_y)
    assert stability["median_difference"] == pytest.approx(of_x) and of_x > of_relu


@pytest.mark.parametrize(("difference", "warned"), [(0.1, False), (0.6, True)])
def test_the_summary_warns_of_unstable_ranges(digits_lite, difference, warned):
    converted = TFLiteModel(digits_lite)
    converted.metadata = {"name": "tflite int8", "verified": {"run": False, "reason": "Flex"}}
    converted.metadata["stability"] = {"largest_difference": difference, "least_stable": "relu"}
    assert ("the range of relu differs by 60%" in summarize(converted)) == warned


def test_contradicting_arguments_raise_before_any_work(wide, digits_examples, tmp_path):
    for arguments, received, fix in [
        ({"recipe": ["first=int4"]}, "precision='float32'", "write for example"),
        ({"recipe": ["first"], "precision": "int4"}, "recipe 'first'", "write for example"),
        ({"recipe": ["first=int5"], "precision": "int4"}, "recipe 'first=int5'", "write for example"),
        ({"recipe": ["(=int4"], "precision": "int4"}, "recipe '(=int4'", "write for example"),
        ({"recipe": ["a=int4x32"], "precision": "int8"}, "recipe 'a=int4x32'", "write for example"),
        ({"sparse": True, "precision": "int4"}, "sparse with precision='int4'", "leave sparse out"),
        ({"sparse": True, "precision": "dynamic", "recipe": ["a=int4"]}, "and a recipe", "leave sparse out"),
        ({"precision": "auto"}, "precision='auto' without max_degradation", "add for example max_degradation=0.01"),
        ({"sparse": True, "precision": "auto", "max_degradation": 0.1}, "sparse with precision='auto'", "leave sparse"),
        ({"minimize": "latency", "precision": "int4"}, "minimize='latency' with precision='int4'", "leave minimize"),
        ({"max_degradation": 0.1}, "max_degradation=0.1 without examples", "pass examples=PATH"),
        ({"max_degradation": 1.5}, "max_degradation=1.5", "change the value"),
    ]:
        examples = {"examples": str(digits_examples)} if arguments.get("precision") == "int8" else {}
        with pytest.raises(ComponentError) as error:
            export_tflite(str(wide), str(tmp_path / "out"), **examples, **arguments)
        assert received in error.value.received and fix in error.value.fix, arguments
    assert not (tmp_path / "out").exists()


def test_the_component_accepts_a_recipe(wide, digits_examples, tmp_path):
    out = export_tflite(
        str(wide), str(tmp_path / "out"), str(digits_examples), precision="int4", recipe=["digit=float32"]
    )["exported"]
    assert out.card.name == "tflite int4" and out.card.parameters["recipe"] == ["digit=float32"]
    assert schema.TensorType.FLOAT32 in weights(tmp_path / "out").values()
