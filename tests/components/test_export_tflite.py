"""export_tflite on a trained digits model: every precision, its record in the card, and all it refuses to write."""

import logging
import re
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.components.export_tflite import flatbuffer
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.export_tflite.exporting import export
from tfopt.components.export_tflite.request import Request
from tfopt.conversion import summary
from tfopt.errors import ComponentError
from tfopt.examples import read_batches

# precision, integer_io, largest error of the output's range, least agreement, most bytes
TABLE = [
    ("float32", False, 1e-5, 1.0, 11_000),
    ("float16", False, 1e-2, 0.99, 9_500),
    ("dynamic", False, 0.1, 0.98, 7_500),
    ("int8", False, 0.25, 0.97, 8_000),
    ("int8", True, 0.25, 0.97, 8_000),
    ("int16x8", False, 0.1, 0.98, 8_500),
    ("int16x8", True, 0.1, 0.98, 8_500),
]


def request(precision="float32", **given) -> Request:
    values = {
        "integer_io": False,
        "calibration_count": 100,
        "split": "train",
        "seed": 0,
        "tolerance": None,
        "select_tf_ops": False,
        "sparse": False,
        "recipe": (),
        "max_degradation": None,
    }
    return Request(precision=precision, **(values | given))


def exported(model: Path, examples: Path | None, folder: Path, precision="float32", **given) -> dict:
    """What the component does, in this process: without the seconds that a child takes to start."""
    folder.mkdir(parents=True)
    data = Examples(examples) if examples else None
    return export(Model(model), data, folder, request(precision, **given))


def saved(folder: Path, function, **specs) -> Path:
    """A bare SavedModel of one function of named tensors."""
    module = tf.Module()
    module.serve = tf.function(
        function, input_signature=[tf.TensorSpec(*spec, name=name) for name, spec in specs.items()]
    )
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


def evaluation_batch(examples: Path, runtime: runtimes.Runtime) -> dict[str, np.ndarray]:
    return next(read_batches(Examples(examples).split("eval"), runtime.inputs, batch_size=397))


@pytest.mark.parametrize(("precision", "integer_io", "error", "agreement", "size"), TABLE)
def test_every_precision_answers_as_its_parent_does(
    digits_model, digits_examples, tmp_path, precision, integer_io, error, agreement, size
):
    facts = exported(digits_model, digits_examples, tmp_path / "out", precision, integer_io=integer_io)
    parent, child = runtimes.load(Model(digits_model)), runtimes.load(TFLiteModel(tmp_path / "out"))
    batch = evaluation_batch(digits_examples, parent)
    wanted, got = parent.run(batch)["digit"], child.run(batch)["digit"]
    assert np.abs(wanted - got).max() <= error
    assert (wanted.argmax(1) == got.argmax(1)).mean() >= agreement
    assert (child.inputs, child.outputs) == (parent.inputs, parent.outputs)  # names, dtypes, and a free batch
    assert (tmp_path / "out/Format-Serving/tflite").stat().st_size <= size
    verified = facts["verified"]
    assert verified["run"] and verified["inputs"] == "examples, split 'eval'" and verified["records"] == 256
    assert verified["outputs"]["digit"]["relative_error"] <= error
    stored = {"int8": "INT8", "int16x8": "INT16"}[precision] if integer_io else "FLOAT32"
    assert facts["ops"]["io"] == {"image": stored, "digit": stored}
    if precision in ("int8", "int16x8"):
        assert facts["ops"]["integer"] >= 5 and facts["ops"]["float"] == {}
    else:
        assert "calibration" not in facts and facts["ops"]["integer"] == 0


def test_the_component_writes_the_file_beside_its_parents_saved_model(digits_model, digits_examples, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "tfopt"):
        out = export_tflite(
            model=str(digits_model),
            examples=str(digits_examples),
            exported=str(tmp_path / "größe 1"),
            precision="int8",
            calibration_count=50,
        )["exported"]
    said = r"tflite int8: 7\.\d\d kB, agrees on 2[45]\d of 256 records, largest difference 0\.\d+"
    assert re.fullmatch(said, caplog.messages[-1])
    serving = tmp_path / "größe 1" / "Format-Serving"
    assert (serving / "tflite").is_file()
    for file in ("saved_model.pb", "variables/variables.index"):
        assert (serving / file).stat().st_ino == (digits_model / "Format-Serving" / file).stat().st_ino  # no copy
    card = TFLiteModel(out.path).card
    assert (card["name"], card["precision"], card["format"]) == ("tflite int8", "int8", "tflite")
    assert card["sizes"]["raw"] == (serving / "tflite").stat().st_size
    assert card["parent"]["digest"] == Model(digits_model).digest
    assert card["data"]["digest"] == Examples(digits_examples).digest
    assert len(card["calibration"].pop("records")) == 50
    assert card["calibration"] | {"digest": ""} == {
        "requested": 50,
        "used": 50,
        "split": "train",
        "seed": 0,
        "digest": "",
    }
    assert card["verified"]["outputs"]["digit"]["agreement"] > 0.97
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_calibration_is_the_same_for_the_same_seed_and_notes_a_small_split(digits_model, digits_examples, tmp_path):
    first, again, other, all_of_it = (
        exported(digits_model, digits_examples, tmp_path / str(index), "int8", **given)["calibration"]
        for index, given in enumerate([{}, {}, {"seed": 1}, {"split": "eval", "calibration_count": 1000}])
    )
    assert first == again and first["digest"] != other["digest"]
    assert (tmp_path / "0/Format-Serving/tflite").read_bytes() == (tmp_path / "1/Format-Serving/tflite").read_bytes()
    assert all_of_it["used"] == 397 and all_of_it["note"] == "the split has only 397 examples"


@pytest.mark.parametrize("count", [0, 1])
def test_calibration_with_no_or_one_example_is_refused(digits_model, tmp_path, count):
    image, ones = np.ones((1, 64), np.float32), np.ones((9, 64), np.float32)
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"image": image[:count]})
    write_examples(tmp_path / "ex/Split-eval/data_tfrecord-00000-of-00001.gz", {"image": ones})
    with pytest.raises(ComponentError, match=f"split 'train': {count} examples") as error:
        exported(digits_model, tmp_path / "ex", tmp_path / "out", "int8")
    assert "at least 2" in error.value.expected and "larger split" in error.value.fix


def test_what_cannot_work_is_refused_in_the_first_second(digits_model, digits_examples, tmp_path):
    model, examples, out = str(digits_model), str(digits_examples), str(tmp_path / "out")
    (tmp_path / "a.tflite").write_bytes(b"TFL3")
    for given, received, fix in [
        ({"precision": "int8"}, "precision='int8' without examples", "pass examples=PATH"),
        ({"precision": "int16x8"}, "precision='int16x8' without examples", "pass examples=PATH"),
        ({"precision": "int8", "examples": examples, "split": "trian"}, "split 'trian' missing", "name another split"),
        ({"precision": "int8", "examples": examples, "calibration_count": 1}, "calibration_count=1", "200"),
        ({"precision": "float16", "integer_io": True}, "integer_io with precision='float16'", "leave integer_io out"),
        ({"precision": "int6"}, "precision='int6'", "did you mean int"),
        ({"tolerance": -1.0}, "tolerance=-1.0", "change the value"),
        ({"model": str(tmp_path / "a.tflite")}, "a tflite model", "it was converted from"),
    ]:
        start = time.monotonic()
        with pytest.raises(ComponentError) as error:
            export_tflite(**({"model": model, "exported": out} | given))
        assert time.monotonic() - start < 1
        assert received in error.value.received and fix in error.value.fix
    assert not Path(out).exists()


def test_examples_without_the_models_input_name_the_nearest(digits_model, tmp_path):
    write_examples(
        tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"imagge": np.ones((5, 64), np.float32)}
    )
    with pytest.raises(ComponentError) as error:
        export_tflite(model=str(digits_model), examples=str(tmp_path / "ex"), exported=str(tmp_path / "out"))
    assert "no feature 'image'" in error.value.received and error.value.fix == "did you mean imagge?"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ex"]  # nothing half-written


def test_a_file_calibrated_on_the_wrong_data_is_refused(digits_model, digits_examples, tmp_path):
    faint = np.random.default_rng(0).random((60, 64)).astype(np.float32) / 1000
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"image": faint})
    (tmp_path / "ex/Split-eval").symlink_to(digits_examples / "Split-eval")
    with pytest.raises(ComponentError) as error:
        exported(digits_model, tmp_path / "ex", tmp_path / "out", "int8")
    assert error.value.received.startswith("int8, output 'digit'") and "typical examples" in error.value.fix


def test_the_tolerance_is_the_users_to_set(digits_model, digits_examples, tmp_path):
    with pytest.raises(ComponentError, match=r"at most 0\.001"):
        exported(digits_model, digits_examples, tmp_path / "out", "dynamic", tolerance=0.001)


def test_weights_the_raw_converter_drops_are_in_our_file(digits_model, tmp_path):
    model = keras_models.load(Model(digits_model))
    serve = tf.function(lambda image: model(image, training=False), autograph=False)
    concrete = serve.get_concrete_function(tf.TensorSpec([None, 8, 8, 1], tf.float32, name="image"))
    trap = tf.lite.TFLiteConverter.from_concrete_functions([concrete], model).convert()
    (tmp_path / "trap.tflite").write_bytes(trap)
    image = np.random.default_rng(0).random((3, 8, 8, 1), np.float32) * 16
    assert not np.allclose(
        next(iter(runtimes.load(Model(tmp_path / "trap.tflite")).run({"image": image}).values())), model(image)
    )
    with pytest.raises(ComponentError, match="file without weights"):
        flatbuffer.describe(trap)

    facts = exported(digits_model, None, tmp_path / "out")
    ours = runtimes.load(TFLiteModel(tmp_path / "out")).run({"image": image})["digit"]
    np.testing.assert_allclose(ours, model(image), atol=1e-5)
    kernels = sum(weight.shape.num_elements() for weight in model.trainable_weights if len(weight.shape) > 1)
    assert facts["ops"]["constant_bytes"] >= 4 * kernels  # all float32 kernels; batch norm went into them
    assert facts["verified"]["inputs"] == "random inputs"


@pytest.mark.parametrize("kind", ["keras 3 file", "keras 2 h5", "keras 2 file"])
def test_bare_keras_files_are_exported(digits_model, tmp_path, kind):
    if kind == "keras 3 file":
        file = digits_model / "Format-Keras/model.keras"
    else:
        import tf_keras

        tf_keras.utils.set_random_seed(0)
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Conv2D(4, 3, input_shape=(8, 8, 1)),
                tf_keras.layers.BatchNormalization(),
                tf_keras.layers.Flatten(),
                tf_keras.layers.Dense(3),
            ]
        )
        file = tmp_path / ("model.h5" if kind.endswith("h5") else "model.keras")
        model.save(file)
    exported(file, None, tmp_path / "out")
    parent, child = runtimes.load(Model(file)), runtimes.load(TFLiteModel(tmp_path / "out"))
    name = next(iter(parent.inputs))
    batch = {name: np.random.default_rng(1).random((5, 8, 8, 1), np.float32)}
    for output, wanted in parent.run(batch).items():
        np.testing.assert_allclose(child.run(batch)[output], wanted, atol=1e-5)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Format-Serving"]


def test_inputs_and_outputs_are_matched_by_name_whatever_their_order(tmp_path):
    weights = tf.constant(np.random.default_rng(0).normal(size=(2, 4, 3)), tf.float32)

    def serve(zeta, alpha):
        return {"z": zeta @ weights[0], "a": zeta @ weights[1] + tf.cast(alpha, tf.float32), "m": tf.argmax(zeta, -1)}

    model = saved(tmp_path / "model", serve, zeta=([None, 4], tf.float32), alpha=([None, 1], tf.int64))
    facts = exported(model, None, tmp_path / "out")
    assert set(facts["verified"]["outputs"]) == {"z", "a", "m"} and facts["verified"]["outputs"]["m"]["agreement"] == 1
    child = runtimes.load(TFLiteModel(tmp_path / "out"))
    zeta, alpha = np.eye(4, dtype=np.float32), np.arange(4, dtype=np.int64)[:, None]
    answer = child.run({"alpha": alpha, "zeta": zeta})
    np.testing.assert_allclose(answer["z"], weights[0], atol=1e-6)
    np.testing.assert_allclose(answer["a"], weights[1] + alpha, atol=1e-5)
    assert answer["m"].tolist() == [0, 1, 2, 3] and answer["m"].dtype == np.int64


def test_a_fixed_batch_size_is_kept(digits_examples, tmp_path):
    kernel = tf.constant(np.random.default_rng(0).normal(size=(64, 10)), tf.float32)
    model = saved(tmp_path / "model", lambda image: {"digit": image @ kernel}, image=([4, 64], tf.float32))
    facts = exported(model, digits_examples, tmp_path / "out", "int8")
    assert facts["verified"]["records"] == 256
    assert runtimes.load(TFLiteModel(tmp_path / "out")).inputs["image"].shape == (4, 64)


def test_ops_that_litert_lacks_are_named_and_select_tf_ops_is_offered(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.linalg.inv(x + 5 * tf.eye(3))}, x=([None, 3, 3], tf.float32))
    with pytest.raises(ComponentError) as error:
        exported(model, None, tmp_path / "refused")
    assert error.value.received == "ops that LiteRT lacks: MatrixInverse" and "--select-tf-ops" in error.value.fix

    facts = exported(model, None, tmp_path / "out", select_tf_ops=True)
    assert facts["verified"] == {"run": False, "reason": "needs TensorFlow's Flex delegate for MatrixInverse"}
    told = summary(TFLiteModel(tmp_path / "out", {"name": "tflite float32", **facts}))
    assert told.endswith("not run: needs TensorFlow's Flex delegate for MatrixInverse")
    with pytest.raises(ComponentError) as error:
        runtimes.load(TFLiteModel(tmp_path / "out"))
    assert "TensorFlow ops in it (MatrixInverse)" in error.value.received and "Flex delegate" in error.value.expected


def test_select_tf_ops_changes_nothing_where_litert_has_every_op(digits_model, tmp_path):
    facts = exported(digits_model, None, tmp_path / "out", select_tf_ops=True)
    assert facts["verified"]["run"] and facts["ops"]["flex"] == []


def test_ops_that_nothing_has_are_named(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.math.betainc(x, x, x)}, x=([None, 3], tf.float32))
    with pytest.raises(ComponentError) as error:
        exported(model, None, tmp_path / "out", select_tf_ops=True)
    assert error.value.received.endswith(": Betainc") and "other ops" in error.value.fix


def test_nan_in_the_parent_is_refused(tmp_path):
    weights = tf.constant([[1.0, float("nan")]])
    model = saved(tmp_path / "model", lambda x: {"y": x @ weights}, x=([None, 1], tf.float32))
    with pytest.raises(ComponentError, match="parent gives NaN"):
        exported(model, None, tmp_path / "out")


def test_values_out_of_float16s_range_are_refused(tmp_path):
    weights = tf.constant([[3e5, 1.0], [-2e5, 2.0]])
    model = saved(tmp_path / "model", lambda x: {"y": x @ weights}, x=([None, 2], tf.float32))
    with pytest.raises(ComponentError, match=r"correlation 0\.9\d with the parent"):
        exported(model, None, tmp_path / "out", "float16")


def test_a_truncated_saved_model_is_refused(digits_model, tmp_path):
    import shutil

    shutil.copytree(digits_model / "Format-Serving", tmp_path / "model")
    data = tmp_path / "model/variables/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ComponentError, match="a SavedModel that TensorFlow can load"):
        exported(tmp_path / "model", None, tmp_path / "out")


@pytest.fixture(scope="module")
def basic_pitch(tmp_path_factory) -> tuple[Path, Path]:
    """A pretrained audio model nobody here wrote, and a few seconds of chords."""
    import importlib.util

    draw, time_axis = np.random.default_rng(0), np.arange(43844) / 22050
    tones = [[np.sin(2 * np.pi * draw.uniform(80, 2000) * time_axis) for _ in range(4)] for _ in range(8)]
    sound = (np.sum(tones, axis=1) / 5).astype(np.float32)
    folder = tmp_path_factory.mktemp("audio")
    write_examples(folder / "Split-train/data_tfrecord-00000-of-00001.gz", {"input_2": sound})
    return Path(importlib.util.find_spec("basic_pitch").origin).parent / "saved_models/icassp_2022/nmp", folder


def test_a_model_nobody_here_wrote_is_exported_exactly(basic_pitch, tmp_path):
    model, sound = basic_pitch
    facts = exported(model, sound, tmp_path / "out")
    outputs = facts["verified"]["outputs"]
    assert set(outputs) == {"contour", "note", "onset"}
    assert all(parity["relative_error"] < 1e-4 and parity["correlation"] > 0.9999 for parity in outputs.values())


def test_integer_io_that_the_converter_quietly_left_in_float_is_refused(basic_pitch, tmp_path):
    model, sound = basic_pitch
    with pytest.raises(ComponentError, match="note: float in the converted file"):
        exported(model, sound, tmp_path / "out", "int8", integer_io=True, calibration_count=2)
