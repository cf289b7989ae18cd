"""Test that int8 files compute what they must: codes, sentinels, one-hot columns, columns of different scales."""

from importlib import import_module

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from keras import layers

from tests.components.exporters import EXPORTERS, ONNX, OPENVINO, TFLITE, run, write_split
from tests.runtimes.formulas import saved
from tfopt import keras_models
from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.components.export_tflite.flatbuffer import op_name
from tfopt.conversion.convert import summarize
from tfopt.conversion.core_model import convert_model
from tfopt.errors import ComponentError

RECORDS = 96
DAILY_EXPORTERS = [TFLITE, ONNX, pytest.param(OPENVINO, marks=pytest.mark.nightly)]


def network(columns: int, seed: int = 0):
    """Return a function of two dense layers with four outputs."""
    draw = np.random.default_rng(seed)
    first = tf.constant(draw.normal(size=(columns, 12)) / columns**0.5, tf.float32)
    second = tf.constant(draw.normal(size=(12, 4)), tf.float32)
    return lambda x: {"y": tf.nn.relu(x @ first) @ second}


def code_model():
    """Column 0 is a shop's number, which selects a row of an embedding."""
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(RECORDS, 5))
    rows[:, 0] = draw.integers(0, 20, RECORDS)
    table, layers = tf.constant(draw.normal(size=(20, 6)), tf.float32), network(10)
    return rows, lambda x: layers(tf.concat([tf.gather(table, tf.cast(x[:, 0], tf.int32)), x[:, 1:]], 1))


def shared_model():
    """A layer reads the column of codes too, in 8 bits."""
    rows, _ = code_model()
    draw = np.random.default_rng(2)
    table, kernel = (tf.constant(draw.normal(size=size), tf.float32) for size in ((20, 4), (5, 4)))
    return rows, lambda x: {"y": x @ (kernel / 20) + tf.gather(table, tf.cast(x[:, 0], tf.int32))}


def sentinel_model():
    """Missing values are -999, which the model replaces."""
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(RECORDS, 5))
    rows[draw.uniform(size=rows.shape) < 0.2] = -999
    layers = network(5)
    return rows, lambda x: layers(tf.where(tf.equal(x, -999.0), 0.7, x))


def one_hot_model():
    """Columns 0 and 1 are a month and a day of the year."""
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(RECORDS, 5))
    rows[:, 0], rows[:, 1] = draw.integers(0, 12, RECORDS), draw.integers(0, 365, RECORDS)
    layers = network(27)

    def serve(x):
        month, week = tf.one_hot(tf.cast(x[:, 0], tf.int32), 12), tf.one_hot(tf.cast(x[:, 1] // 31.0, tf.int32), 12)
        return layers(tf.concat([month, week, x[:, 2:]], 1))

    return rows, serve


def normalized_model(floor: float | None = 1e-7):
    """Columns of a table with standard deviations from 0.001 to 4000."""
    draw = np.random.default_rng(1)
    scales = np.float32([0.001, 0.1, 1.0, 60.0, 4000.0])
    rows = (draw.normal(size=(RECORDS, 5)) + 2) * scales
    layers = network(5)
    return rows, lambda x: layers((x - 2 * scales) / (tf.maximum(tf.sqrt(scales**2), floor) if floor else scales))


def folded_model():
    """The same with scales that LiteRT's converter folds into the weights."""
    return normalized_model(None)


@pytest.mark.parametrize("exporter", DAILY_EXPORTERS, ids=str)
def test_int8_of_a_one_hot_lookup_gives_words_their_weights_and_absent_words_none(exporter, tmp_path):
    """In 8 bits LiteRT's one-hot has 0.5 for 0; ONNX counts -1 from the end, and reads bytes as other words."""
    draw = np.random.default_rng(1)
    words = np.array([f"w{number}".encode() for number in draw.integers(0, 12, RECORDS)], object)
    rows = draw.normal(size=(RECORDS, 3)).astype(np.float32)
    weights, kernel = (tf.constant(draw.normal(size=size), tf.float32) for size in ((8, 4), (3, 4)))
    module = tf.Module()
    names = tf.lookup.KeyValueTensorInitializer(
        tf.constant([f"w{number}" for number in range(8)]), tf.range(8, dtype=tf.int64)
    )
    module.table = tf.lookup.StaticHashTable(names, -1)  # absent words are none of the 8
    specs = [tf.TensorSpec([None], tf.string, "word"), tf.TensorSpec([None, 3], tf.float32, "x")]
    module.serve = tf.function(
        lambda word, x: {"y": tf.one_hot(module.table.lookup(word), 8) @ weights + 0.1 * x @ kernel},
        input_signature=specs,
    )
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    examples = write_split(tmp_path / "examples", {"word": words[:64], "x": rows[:64]})
    write_split(examples, {"word": words[64:], "x": rows[64:]}, "eval")
    parameters = exporter.parameters(precision="int8", calibration_count=64)
    convert = import_module(f"tfopt.components.export_{exporter}.export").export
    (tmp_path / "out").mkdir()
    facts = convert_model(convert, Model(tmp_path / "model"), Examples(examples), tmp_path / "out", parameters)
    parity = facts["verified"]["outputs"]["y"]
    assert parity["relative_error"] < 0.05 and parity["agreement"] > 0.93


def test_a_one_hot_behind_a_layer_stays_in_float_too(tmp_path):
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(RECORDS, 3)).astype(np.float32)
    kernel, weights = (tf.constant(draw.normal(size=size), tf.float32) for size in ((3, 4), (4, 5)))
    model = saved(
        tmp_path / "model", lambda x: {"y": tf.one_hot(tf.argmax(x @ kernel, 1), 4) @ weights}, x=([None, 3], "float32")
    )
    examples = write_split(tmp_path / "examples", {"x": rows})
    facts = TFLITE.export(model, examples, tmp_path / "out", "int8")
    assert list(facts["float_part"]["exact"].values()) == ["ONE_HOT"]
    assert facts["verified"]["outputs"]["y"]["mean_abs_error"] < 0.05


@pytest.mark.parametrize(
    ("exporter", "make", "reason"),
    [
        pytest.param(
            *(exporter, make, reason),
            marks=[pytest.mark.nightly] if exporter is OPENVINO and make is not code_model else [],
        )
        for make, reason in (
            *((code_model, "exact"), (shared_model, "exact"), (sentinel_model, "exact"), (one_hot_model, "exact")),
            *((normalized_model, "scaling"), (folded_model, "scaling")),
        )
        for exporter in EXPORTERS
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_int8_keeps_exact_values_and_scales_of_columns_in_float(exporter, make, reason, tmp_path):
    rows, serve = make()
    model = saved(tmp_path / "model", serve, x=([None, 5], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows[:64].astype(np.float32)})
    write_split(examples, {"x": rows[64:].astype(np.float32)}, "eval")
    facts = exporter.export(model, examples, tmp_path / "out", "int8")
    parity = facts["verified"]["outputs"]["y"]
    assert parity["agreement"] > 0.93 and parity["relative_error"] < 0.05
    assert facts["float_part"][reason] and "warnings" not in facts["verified"]


@pytest.mark.parametrize("exporter", DAILY_EXPORTERS, ids=str)
def test_the_weights_of_an_attention_over_many_steps_are_no_zeros_in_int8(exporter, tmp_path):
    """8 bits of a softmax are steps of 1/256 in ONNX Runtime's quantizer and LiteRT."""
    draw = np.random.default_rng(1)
    rows = (draw.normal(size=(RECORDS, 600, 4)) + draw.normal(size=(RECORDS, 1, 4))).astype(np.float32)
    score, values, kernel = (tf.constant(draw.normal(size=size), tf.float32) for size in ((4, 1), (4, 8), (8, 4)))

    def serve(x):
        weights = tf.nn.softmax(tf.transpose(0.1 * x @ score, [0, 2, 1]))
        return {"y": tf.squeeze(weights @ (x @ values), 1) @ kernel}

    model = saved(tmp_path / "model", serve, x=([None, 600, 4], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows[:64].reshape(64, -1)})
    write_split(examples, {"x": rows[64:].reshape(32, -1)}, "eval")
    facts = exporter.export(model, examples, tmp_path / "out", "int8")
    assert facts["verified"]["outputs"]["y"]["agreement"] > 0.9
    assert (
        facts["verified"]["outputs"]["y"]["mean_abs_error"] < 0.01 * facts["verified"]["outputs"]["y"]["output_range"]
    )
    converted = Model.open(tmp_path / "out")
    converted.metadata |= {"name": "int8", **facts}
    assert "larger than in float32: " in summarize(converted)  # 8 bits of 48 weights save less than the scales take
    if exporter is not OPENVINO:
        assert [kind.upper() for kind in facts["float_part"]["fixed"].values()] == ["SOFTMAX"]


MASKS = {  # from the scores of words for each other, and 1 for each word that may be seen
    "added": lambda scores, mask: scores + (1 - mask) * -1e9,
    "selected": lambda scores, mask: tf.where(mask > 0, scores, -1e9),
    "of a tenth": lambda scores, mask: scores - 10_000.0 * (1 - mask),
}
MASK_CASES = [
    *(pytest.param(exporter, kind, True, id=f"{exporter}-{kind}") for exporter in (TFLITE, ONNX) for kind in MASKS),
    *(pytest.param(exporter, "added", False, id=f"{exporter}-unmasked") for exporter in (TFLITE, ONNX)),
    pytest.param(OPENVINO, "selected", True, id="openvino-selected", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("exporter", "kind", "is_calibrated"), MASK_CASES)
def test_masked_scores_of_an_attention_are_not_lost_in_int8(exporter, kind, is_calibrated, tmp_path):
    """On a scale up to -1e9 all scores are the same; and on one without it, the mask of later records is none."""
    draw = np.random.default_rng(1)
    words = draw.normal(size=(RECORDS, 8, 6)).astype(np.float32)
    mask = (np.arange(8) < draw.integers(3, 8, (RECORDS, 1))).astype(np.float32)
    if not is_calibrated:
        mask[:64] = 1
    query, key, value, kernel = (
        tf.constant(draw.normal(size=size), tf.float32) for size in ((6, 6), (6, 6), (6, 8), (64, 4))
    )

    def serve(words, mask):
        scores = MASKS[kind](tf.matmul(words @ query, words @ key, transpose_b=True), mask[:, None, :])
        return {"y": tf.reshape(tf.nn.softmax(scores) @ (words @ value), [-1, 64]) @ kernel}

    specs = {"words": ([None, 8, 6], tf.float32), "mask": ([None, 8], tf.float32)}
    model = saved(tmp_path / "model", serve, **specs)
    examples = write_split(tmp_path / "examples", {"words": words[:64].reshape(64, -1), "mask": mask[:64]})
    write_split(examples, {"words": words[64:].reshape(32, -1), "mask": mask[64:]}, "eval")
    facts = exporter.export(model, examples, tmp_path / "out", "int8")
    assert facts["verified"]["outputs"]["y"]["correlation"] > 0.98
    if exporter is not OPENVINO:
        part = facts["float_part"]
        assert part["masks"] and any("softmax" in name.lower() for name in part["operations"])


@pytest.mark.parametrize("exporter", DAILY_EXPORTERS, ids=str)
def test_positions_of_long_sequences_keep_their_phases_in_int8(exporter, tmp_path):
    """In rotary embeddings; 8 bits of 400 positions are steps of one and a half."""
    draw = np.random.default_rng(1)
    words = draw.normal(size=(RECORDS, 400, 4)).astype(np.float32)
    query, key, value, kernel = (
        tf.constant(draw.normal(size=size), tf.float32) for size in ((4, 4), (4, 4), (4, 8), (8, 4))
    )

    def rotate(vectors):
        angles = tf.range(tf.cast(tf.shape(vectors)[1], tf.float32))[:, None] * [1.0, 0.1]
        first, second = tf.split(vectors, 2, -1)
        cosine, sine = tf.cos(angles), tf.sin(angles)
        return tf.concat([first * cosine - second * sine, second * cosine + first * sine], -1)

    def serve(words):
        scores = tf.matmul(rotate(words @ query), rotate(words @ key), transpose_b=True)
        return {"y": tf.nn.softmax(scores)[:, -1:] @ (words @ value) @ kernel}

    model = saved(tmp_path / "model", serve, words=([None, None, 4], tf.float32))
    examples = write_split(tmp_path / "examples", {"words": words[:64].reshape(64, -1)})
    write_split(examples, {"words": words[64:].reshape(32, -1)}, "eval")
    facts = exporter.export(model, examples, tmp_path / "out", "int8")
    assert facts["verified"]["outputs"]["y"]["correlation"] > 0.97
    exact = {kind.upper() for kind in facts["float_part"]["exact"].values()}
    assert exact >= {"RANGE", "SIN", "COS"}


@pytest.mark.parametrize("dtype", [tf.float32, tf.int32], ids=str)
@pytest.mark.parametrize("exporter", [TFLITE, ONNX], ids=str)
def test_infinite_values_that_are_replaced_are_converted_to_int8(exporter, dtype, tmp_path):
    """As the logarithm of a distance of 0, in the positions of T5."""
    draw = np.random.default_rng(1)
    kernel = tf.constant(draw.normal(size=(5, 4)), tf.float32)
    rows = np.maximum(draw.normal(size=(RECORDS, 5)), 0).astype(np.float32)

    def serve(x):
        logarithms = tf.cast(4 * tf.math.log(x), dtype)
        return {"y": tf.cast(tf.where(x > 0, logarithms, tf.zeros_like(logarithms)), tf.float32) @ kernel}

    model = saved(tmp_path / "model", serve, x=([None, 5], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows[:64]})
    write_split(examples, {"x": rows[64:]}, "eval")
    facts = exporter.export(model, examples, tmp_path / "out", "int8")
    assert facts["verified"]["outputs"]["y"]["correlation"] > 0.99 and facts["float_part"]["operations"]


def test_rare_probabilities_beyond_those_of_the_calibration_are_not_cut_off_in_onnx(tmp_path):
    draw = np.random.default_rng(1)
    rows = draw.uniform(-1, 1, size=(RECORDS, 4)).astype(np.float32)
    rows[64:] = np.abs(rows[64:]) * np.float32([1, 1, -1, 1])  # in the range of the others, with higher probabilities
    kernel = tf.constant([[1.5], [1.0], [-1.0], [0.5]])
    model = saved(tmp_path / "model", lambda x: {"y": tf.sigmoid(x @ kernel - 6)}, x=([None, 4], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows[:64]})
    write_split(examples, {"x": rows[64:]}, "eval")
    facts = ONNX.export(model, examples, tmp_path / "out", "int8", calibration_count=64)
    assert facts["verified"]["outputs"]["y"]["relative_error"] < 0.05


@pytest.mark.parametrize("recipe", [[], ["first=int8"]], ids=["LiteRT's quantizer", "ai-edge-quantizer"])
def test_small_probabilities_are_no_multiples_of_a_256th_in_litert(recipe, tmp_path):
    keras.utils.set_random_seed(1)
    pixels = layers.Input((4, 4, 1), name="x")
    flow = layers.Conv2D(3, 1, activation="relu", name="first")(pixels)
    kernel, bias = keras.initializers.RandomNormal(stddev=3), keras.initializers.Constant(-3)
    flow = layers.Conv2D(2, 1, activation="sigmoid", kernel_initializer=kernel, bias_initializer=bias)(flow)
    keras_models.save(keras.Model(pixels, layers.Reshape((32,), name="y")(flow)), tmp_path / "model")
    rows = np.random.default_rng(1).uniform(-3, 3, (RECORDS, 4, 4, 1)).astype(np.float32)
    examples = write_split(tmp_path / "examples", {"x": rows.reshape(RECORDS, -1)})
    facts = TFLITE.export(tmp_path / "model", examples, tmp_path / "out", "int8", recipe=recipe)
    received = run(TFLiteModel(tmp_path / "out"), {"x": rows})["y"]
    expected = run(Model(tmp_path / "model"), {"x": rows})["y"]
    assert expected.min() < 1e-3 and expected.max() > 0.5 and "float_part" not in facts
    assert np.abs(np.log(received) - np.log(expected)).max() < 0.2
    assert facts["ops"]["float"].keys() <= {"LOGISTIC", "RESHAPE"}
    file = schema.ModelT.InitFromPackedBuf((tmp_path / "out/Format-Serving/tflite").read_bytes(), 0)
    ops = [op_name(file.operatorCodes[op.opcodeIndex]) for op in file.subgraphs[0].operators]
    assert ops.count("QUANTIZE") == 1  # of the input


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (code_model, "exact"),
        (folded_model, "scaling"),
        *(pytest.param(make, "exact", marks=pytest.mark.nightly) for make in (sentinel_model, one_hot_model)),
    ],
)
def test_int16x8_keeps_them_in_float_as_well(make, reason, tmp_path):
    rows, serve = make()
    model = saved(tmp_path / "model", serve, x=([None, 5], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows[:64].astype(np.float32)})
    write_split(examples, {"x": rows[64:].astype(np.float32)}, "eval")
    facts = TFLITE.export(model, examples, tmp_path / "out", "int16x8")
    parity = facts["verified"]["outputs"]["y"]
    assert parity["agreement"] > 0.96 and parity["relative_error"] < 0.02
    assert facts["float_part"][reason] and "warnings" not in facts["verified"]
    content = (tmp_path / "out/Format-Serving/tflite").read_bytes()
    tensors = schema.ModelT.InitFromPackedBuf(content, 0).subgraphs[0].tensors
    assert schema.TensorType.INT16 in {tensor.type for tensor in tensors}


@pytest.mark.parametrize("precision", ["int8", "int16x8"])
def test_integer_inputs_of_exact_values_are_refused(precision, tmp_path):
    rows, serve = code_model()
    model = saved(tmp_path / "model", serve, x=([None, 5], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows.astype(np.float32)})
    with pytest.raises(ComponentError) as refused:
        TFLITE.export(model, examples, tmp_path / "out", precision, integer_io=True)
    assert (
        refused.value.received.endswith(f"exact values, not {precision}: CAST")
        and "leave integer_io out" in refused.value.fix
    )


def test_integer_inputs_of_columns_with_different_scales_are_refused_with_the_way_out(tmp_path):
    rows, serve = normalized_model()
    model = saved(tmp_path / "model", serve, x=([None, 5], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows.astype(np.float32)})
    with pytest.raises(ComponentError) as refused:
        TFLITE.export(model, examples, tmp_path / "out", "int8", integer_io=True)
    assert refused.value.fix.startswith("leave integer_io out, which rounds the columns of inputs before SUB")


def test_the_card_lists_columns_of_one_scale_that_integer_inputs_round(tmp_path):
    rows = np.random.default_rng(1).normal(size=(RECORDS, 5)).astype(np.float32)
    layers, means = network(5), np.float32([0.1, 0.2, 0.3, 0.4, 0.5])
    model = saved(tmp_path / "model", lambda x: layers((x - means) * (1 + means)), x=([None, 5], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": rows})
    facts = TFLITE.export(model, examples, tmp_path / "out", "int8", integer_io=True)
    assert "SUB" in facts["rounded"].values() and "float_part" not in facts


@pytest.mark.parametrize(("spread", "chosen"), [(1.5, "min_max"), (0.0, "moving_average")])
def test_openvino_takes_the_ranges_that_held_out_records_say_are_closer(spread, chosen, tmp_path):
    """Some records of a convolution over time are far larger than the others, or only one to calibrate on."""
    draw = np.random.default_rng(3)
    first, second = (tf.constant(draw.normal(size=(5, size, 16)) / 5, tf.float32) for size in (2, 16))
    last = tf.constant(draw.normal(size=(16, 3)), tf.float32)

    def serve(x):
        hidden = tf.nn.relu(tf.nn.conv1d(tf.nn.relu(tf.nn.conv1d(x, first, 1, "SAME")), second, 1, "SAME"))
        return {"y": tf.reduce_max(hidden, 1) @ last}

    records = draw.normal(size=(128, 32, 2)) * np.exp(draw.normal(size=(128, 1, 1)) * spread)
    records[0] *= 1.0 if spread else 500.0
    model = saved(tmp_path / "model", serve, x=([None, 32, 2], tf.float32))
    examples = write_split(tmp_path / "examples", {"x": records[:64].reshape(64, -1).astype(np.float32)})
    write_split(examples, {"x": records[64:].reshape(64, -1).astype(np.float32)}, "eval")
    facts = OPENVINO.export(model, examples, tmp_path / "out", "int8")
    errors = facts["activation_ranges"]["error"]
    assert facts["activation_ranges"]["chosen"] == chosen == min(errors, key=errors.get)
    assert max(errors.values()) > 3 * errors[chosen]
    assert facts["verified"]["outputs"]["y"]["noise"] == pytest.approx(errors[chosen], rel=0.01)
    assert facts["verified"]["outputs"]["y"]["correlation"] > 0.99
