"""export_openvino on a trained digits model: every precision, its record in the card, and all it refuses to write."""

import logging
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, OpenVINOModel
from tfopt.components.export_openvino import conversion
from tfopt.components.export_openvino.component import export_openvino
from tfopt.components.export_openvino.exporting import export
from tfopt.components.export_openvino.request import Request
from tfopt.errors import ComponentError
from tfopt.examples import read_batches
from tfopt.untracked import openvino as ov

# precision, settings, largest error of the output's range, least agreement, most bytes of weights
TABLE = [
    ("float32", {}, 1e-5, 1.0, 6_000),
    ("float16", {}, 1e-2, 0.99, 3_200),
    ("int8", {}, 0.25, 0.97, 2_000),
    ("int8", {"preset": "mixed", "reduce_range": "on"}, 0.35, 0.96, 2_100),
]


def request(precision="float32", **given) -> Request:
    values = {
        "preset": "auto",
        "reduce_range": "auto",
        "calibration_count": 50,
        "split": "train",
        "seed": 0,
        "tolerance": None,
        "max_degradation": None,
    }
    return Request(precision=precision, **(values | given))


def exported(model: Path, examples: Path | None, folder: Path, precision="float32", **given) -> dict:
    """What the component does, in this process: without the seconds that a child takes to start."""
    folder.mkdir(parents=True)
    return export(Model(model), Examples(examples) if examples else None, folder, request(precision, **given))


def graph_of(folder: Path):
    return ov.Core().read_model(folder / "Format-Serving" / "model.xml")


def weights_of(folder: Path) -> list[np.ndarray]:
    """The stored kernels and matrices, quantized or not."""
    constants = [op.get_data() for op in graph_of(folder).get_ops() if op.get_type_name() == "Constant"]
    return [array for array in constants if array.dtype.kind in "fi" and array.size > 70]


@pytest.mark.parametrize(("precision", "given", "error", "agreement", "size"), TABLE)
def test_every_precision_answers_as_its_parent_does(
    digits_model, digits_examples, tmp_path, precision, given, error, agreement, size
):
    facts = exported(digits_model, digits_examples, tmp_path / "out", precision, **given)
    parent, child = runtimes.load(Model(digits_model)), runtimes.load(OpenVINOModel(tmp_path / "out"))
    batch = next(read_batches(Examples(digits_examples).split("eval"), parent.inputs, batch_size=397))
    wanted, got = parent.run(batch)["digit"], child.run(batch)["digit"]
    assert np.abs(wanted - got).max() <= error
    assert (wanted.argmax(1) == got.argmax(1)).mean() >= agreement
    assert (child.inputs, child.outputs) == (parent.inputs, parent.outputs)  # names, dtypes, and a free batch
    assert (tmp_path / "out/Format-Serving/model.bin").stat().st_size <= size
    verified = facts["verified"]
    assert verified["run"] and verified["inputs"] == "examples, split 'eval'" and verified["records"] == 256
    assert verified["outputs"]["digit"]["relative_error"] <= error
    files = sorted(path.name for path in (tmp_path / "out").rglob("*"))
    assert files == ["Format-Serving", "model.bin", "model.xml"]
    assert (
        str(digits_model) not in (tmp_path / "out/Format-Serving/model.xml").read_text()
    )  # nor any other path of here


def test_int8_computes_the_layers_in_8_bits_and_leaves_a_bit_unused_on_demand(digits_model, digits_examples, tmp_path):
    for reduce_range, most in (("off", 127), ("on", 64)):
        folder = tmp_path / reduce_range
        facts = exported(digits_model, digits_examples, folder, "int8", reduce_range=reduce_range)
        dense = next(array for array in weights_of(folder) if array.size == 1280)
        assert dense.dtype == np.int8 and most - 1 <= np.abs(dense.astype(int)).max() <= most
        assert facts["reduce_range"] is (reduce_range == "on")
    assert len(facts["layers_in_8_bits"]) == 3 and facts["preset"] == "performance"
    compiled = ov.Core().compile_model(folder / "Format-Serving/model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    ran = [op.get_rt_info() for op in compiled.get_runtime_model().get_ops()]
    kinds = [(str(info["layerType"].value), str(info["runtimePrecision"].value)) for info in ran]
    assert {kind for kind, precision in kinds if precision in ("i8", "u8")} & {"Convolution", "FullyConnected"}


def test_the_component_says_what_came_of_it_and_writes_the_same_weights_again(
    digits_model, digits_examples, tmp_path, caplog
):
    out = tmp_path / "größe 1"
    with caplog.at_level(logging.INFO, "tfopt"):
        export_openvino(str(digits_model), str(out), str(digits_examples), precision="int8", calibration_count=30)
    said = r"openvino int8: 2\d\.\d kB, agrees on 2[45]\d of 256 records, largest difference 0\.\d+"
    assert re.fullmatch(said, caplog.messages[-1])
    card = OpenVINOModel(out).card
    assert (card["name"], card["precision"], card["format"]) == ("openvino int8", "int8", "openvino")
    assert card["sizes"]["raw"] == sum(file.stat().st_size for file in (out / "Format-Serving").iterdir())
    assert card["parent"]["digest"] == Model(digits_model).digest
    assert card["calibration"]["used"] == 30 and card["calibration"]["split"] == "train"
    assert 0 < card["stability"]["median_difference"] <= card["stability"]["largest_difference"] < 1
    assert card["versions"]["openvino"] and card["computed_in"] == "int8 and float32"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    weights = []
    for name, seed in (("same", 0), ("other", 1)):
        exported(digits_model, digits_examples, tmp_path / name, "int8", calibration_count=30, seed=seed)
        weights.append((tmp_path / name / "Format-Serving/model.bin").read_bytes())
    assert weights[0] == (out / "Format-Serving/model.bin").read_bytes() != weights[1]


@pytest.mark.nightly
def test_two_runs_write_the_same_bytes(digits_model, digits_examples, tmp_path):
    for precision in ("float32", "int8"):
        outs = [tmp_path / f"{precision} {number}" for number in (1, 2)]
        for out in outs:
            export_openvino(str(digits_model), str(out), str(digits_examples), precision=precision)
        assert OpenVINOModel(outs[0]).digest == OpenVINOModel(outs[1]).digest


def test_names_dtypes_and_integers_are_the_signatures(tmp_path):
    weights = tf.constant(np.random.default_rng(0).normal(size=(2, 4, 3)), tf.float32)

    def serve(zeta, alpha):
        scores = zeta @ weights[1] + tf.cast(alpha, tf.float32)
        return {"z": zeta @ weights[0], "a": scores, "m": tf.argmax(zeta, -1), "same": tf.identity(zeta)}

    model = saved(tmp_path / "model", serve, zeta=([None, 4], tf.float32), alpha=([None, 1], tf.int64))
    zeta, alpha = np.eye(4, dtype=np.float32), np.arange(4, dtype=np.int64)[:, None]
    columns = {"zeta": zeta, "alpha": alpha}
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", columns)
    facts = exported(model, tmp_path / "ex", tmp_path / "out")
    assert set(facts["verified"]["outputs"]) == {"z", "a", "m", "same"}
    answer = runtimes.load(OpenVINOModel(tmp_path / "out")).run(columns)
    np.testing.assert_allclose(answer["z"], weights[0], atol=1e-6)
    np.testing.assert_allclose(answer["a"], weights[1] + alpha, atol=1e-5)
    assert answer["m"].tolist() == [0, 1, 2, 3] and answer["m"].dtype == np.int64
    assert answer["same"].tolist() == zeta.tolist()


def test_a_fixed_batch_size_is_kept(digits_examples, tmp_path):
    kernel = tf.constant(np.random.default_rng(0).normal(size=(64, 10)), tf.float32)
    model = saved(tmp_path / "model", lambda image: {"digit": image @ kernel}, image=([4, 64], tf.float32))
    facts = exported(model, digits_examples, tmp_path / "out", "int8")
    assert facts["verified"]["records"] == 256
    assert runtimes.load(OpenVINOModel(tmp_path / "out")).inputs["image"].shape == (4, 64)


def test_trained_ranges_are_taken_as_they_are(digits_examples, tmp_path):
    draw = np.random.default_rng(0)
    kernel, dense = (tf.constant(draw.normal(size=size), tf.float32) for size in ((3, 3, 1, 8), (288, 10)))
    fake, limits = tf.quantization.fake_quant_with_min_max_vars, tf.reduce_max(tf.abs(kernel), axis=[0, 1, 2])
    by_channel = tf.quantization.fake_quant_with_min_max_vars_per_channel

    def serve(image):
        pixels = fake(tf.reshape(image, [-1, 8, 8, 1]), 0.0, 16.0)
        hidden = tf.nn.relu(tf.nn.conv2d(pixels, by_channel(kernel, -limits, limits, narrow_range=True), 1, "VALID"))
        return {"y": tf.reshape(fake(hidden, 0.0, 40.0), [-1, 288]) @ fake(dense, -4.0, 4.0, narrow_range=True)}

    model = saved(tmp_path / "model", serve, image=([None, 64], tf.float32))
    facts = exported(model, digits_examples, tmp_path / "out", "int8")
    assert facts["ranges"] == "trained" and "calibration" not in facts
    assert facts["verified"]["outputs"]["y"]["relative_error"] < 5e-3  # no other ranges
    assert [array.dtype for array in weights_of(tmp_path / "out")] == [np.int8] * 2
    with pytest.raises(ComponentError, match="8-bit ranges were trained") as error:
        export_openvino(str(model), str(tmp_path / "no"), precision="float16")
    assert "int8" in error.value.fix


def test_the_costliest_layer_stays_in_float_when_the_answers_must_hold(digits_examples, tmp_path):
    """The second product has columns so unequal that 8 bits lose the small ones; the first is harmless."""
    draw = np.random.default_rng(0)
    first = tf.constant(draw.normal(size=(64, 32)) / 20, tf.float32)
    gain = tf.constant(10.0 ** draw.uniform(-3.5, 0, 32), tf.float32)
    second = tf.constant(draw.normal(size=(32, 32)), tf.float32)
    last = tf.constant(draw.normal(size=(32, 10)), tf.float32)

    def serve(image):
        small = tf.nn.relu(image @ first) * gain
        return {"digit": ((small @ second) / 3 + (small / gain) @ second * 1e-1) @ last}

    model = saved(tmp_path / "model", serve, image=([None, 64], tf.float32))
    plain = exported(model, digits_examples, tmp_path / "plain", "int8")
    lost = 1 - plain["verified"]["outputs"]["digit"]["agreement"]
    assert lost > 0.004
    held = exported(model, digits_examples, tmp_path / "held", "int8", max_degradation=lost / 2)
    assert held["degradation"] <= lost / 2 and 0 < len(held["left_in_float"]) <= len(plain["layers_in_8_bits"]) / 2
    with pytest.raises(ComponentError, match="at most half of them"):
        exported(model, digits_examples, tmp_path / "none", "int8", max_degradation=0.0)


def test_attention_is_found_and_its_ranges_fit_what_leans_to_one_side(tmp_path):
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    words = layers.Input((6, 8), name="words")
    flow = layers.MultiHeadAttention(2, 4)(words, words) + words
    flow = layers.Dense(8, activation="gelu")(layers.LayerNormalization()(flow))
    keras.Model(words, layers.Dense(3, name="y")(layers.Flatten()(flow))).save(tmp_path / "model.keras")
    draw = np.random.default_rng(0).normal(size=(40, 48)).astype(np.float32)
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"words": draw})
    facts = exported(tmp_path / "model.keras", tmp_path / "ex", tmp_path / "out", "int8")
    assert facts["attention"] and facts["preset"] == "mixed"
    assert facts["verified"]["outputs"]["y"]["correlation"] > 0.99


def test_a_model_nobody_here_wrote_answers_as_it_does_from_either_of_its_forms(tmp_path):
    folder = Path(find_spec("basic_pitch").origin).parent / "saved_models/icassp_2022"
    draw, time_axis = np.random.default_rng(0), np.arange(43844) / 22050
    tones = [[np.sin(2 * np.pi * draw.uniform(80, 2000) * time_axis) for _ in range(4)] for _ in range(4)]
    sound = (np.sum(tones, axis=1) / 5).astype(np.float32)
    for form, name in (("nmp", "input_2"), ("nmp.onnx", "serving_default_input_2:0")):
        write_examples(tmp_path / form / "Split-train/data_tfrecord-00000-of-00001.gz", {name: sound})
        facts = exported(folder / form, tmp_path / form, tmp_path / f"{form} out")
        outputs = facts["verified"]["outputs"]
        assert len(outputs) == 3 and facts["verified"]["records"] == 4
        assert all(parity["relative_error"] < 1e-4 and parity["correlation"] > 0.9999 for parity in outputs.values())


def test_what_cannot_work_is_refused_in_the_first_second(digits_model, digits_examples, tmp_path):
    model, examples, out = str(digits_model), str(digits_examples), str(tmp_path / "out")
    (tmp_path / "a.tflite").write_bytes(b"TFL3")
    (tmp_path / "a.xml").write_bytes(b"<net/>")
    (tmp_path / "a.bin").write_bytes(b"")
    for given, received, fix in [
        ({"precision": "int8"}, "precision='int8' without examples", "pass examples=PATH"),
        ({"precision": "int8", "examples": examples, "split": "trian"}, "split 'trian' missing", "name another split"),
        ({"precision": "int4"}, "precision='int4'", "did you mean int8?"),
        ({"tolerance": -1.0}, "tolerance=-1.0", "change the value"),
        ({"max_degradation": 0.1}, "max_degradation=0.1 with precision='float32'", "leave it out"),
        ({"model": str(tmp_path / "a.tflite")}, "a tflite model", "it was converted from"),
        ({"model": str(tmp_path / "a.xml")}, "a openvino model", "it was converted from"),
    ]:
        with pytest.raises(ComponentError) as error:
            export_openvino(**({"model": model, "exported": out} | given))
        assert received in error.value.received and fix in error.value.fix
    assert not Path(out).exists()


def test_text_and_ops_that_openvino_lacks_are_named(tmp_path):
    text = saved(tmp_path / "text", lambda word: {"n": tf.strings.length(word)}, word=([None, 1], tf.string))
    with pytest.raises(ComponentError, match="'word': string") as error:
        exported(text, None, tmp_path / "a")
    assert "export_onnx" in error.value.fix
    model = saved(tmp_path / "model", lambda x: {"y": tf.math.igamma(x, x)}, x=([None, 3], tf.float32))
    with pytest.raises(ComponentError, match="cannot convert: Igamma"):
        exported(model, None, tmp_path / "b")
    (tmp_path / "broken.onnx").write_bytes(b"no protobuf at all")
    with pytest.raises(ComponentError, match="the converter failed"):
        conversion.convert(tmp_path / "broken.onnx")


def test_data_that_do_not_fit_are_refused(digits_model, digits_examples, tmp_path):
    kinds = {
        "wrong": {"image": np.array([["a"] * 64] * 2, object)},
        "missing": {"picture": np.ones((2, 64), np.float32)},
    }
    for name, columns in kinds.items():
        write_examples(tmp_path / name / "Split-train/data_tfrecord-00000-of-00001.gz", columns)
    write_examples(tmp_path / "empty/Split-train/data_tfrecord-00000-of-00001.gz", {"image": np.ones((0, 64), "f")})
    for name, received in (("wrong", "image"), ("missing", "image"), ("empty", "0 examples")):
        with pytest.raises(ComponentError) as error:
            exported(digits_model, tmp_path / name, tmp_path / f"{name} out", "int8")
        assert received in error.value.received, str(error.value)


def test_files_calibrated_on_the_wrong_data_are_refused(digits_model, digits_examples, tmp_path):
    faint = np.random.default_rng(0).random((60, 64)).astype(np.float32) / 1000
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"image": faint})
    (tmp_path / "ex/Split-eval").symlink_to(digits_examples / "Split-eval")
    with pytest.raises(ComponentError) as error:
        exported(digits_model, tmp_path / "ex", tmp_path / "out", "int8")
    assert error.value.received.startswith("int8, output 'digit'") and "typical examples" in error.value.fix


def test_nothing_to_compute_in_8_bits_is_said(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.tanh(x) * 2}, x=([None, 3], tf.float32))
    draw = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"x": draw})
    with pytest.raises(ComponentError, match="without a convolution"):
        exported(model, tmp_path / "ex", tmp_path / "out", "int8")


def test_the_tolerance_is_the_users_to_set(digits_model, digits_examples, tmp_path):
    with pytest.raises(ComponentError, match=r"at most 1e-06"):
        exported(digits_model, digits_examples, tmp_path / "out", "float16", tolerance=1e-6)
