"""Test all exporters on a trained digits model: parity with the parent, model cards, errors."""

import logging
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf

from tests.components.exporters import (
    EXPORTERS,
    ONNX,
    OPENVINO,
    PRETRAINED_ERROR,
    TFLITE,
    chords,
    pretrained,
    write_split,
)
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.conversion.calibration import sample_inputs
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.formatting import data_size

# exporter, precision, settings, largest error of the output's range, least agreement, most bytes of the weights' file
PRECISIONS = [
    (TFLITE, "float32", {}, 1e-5, 1.0, 11_000),
    (TFLITE, "float16", {}, 1e-2, 0.99, 9_500),
    (TFLITE, "dynamic", {}, 0.1, 0.98, 7_500),
    (TFLITE, "int8", {}, 0.25, 0.97, 8_000),
    (TFLITE, "int8", {"integer_io": True}, 0.25, 0.97, 8_000),
    (TFLITE, "int16x8", {}, 0.1, 0.98, 8_500),
    pytest.param(*(TFLITE, "int16x8", {"integer_io": True}, 0.1, 0.98, 8_500), marks=pytest.mark.nightly),  # as int8
    (ONNX, "float32", {}, 1e-5, 1.0, 14_000),
    pytest.param(  # test_export_onnx.py has the opset
        *(ONNX, "float32", {"opset": 13}, 1e-5, 1.0, 14_000), marks=pytest.mark.nightly
    ),
    (ONNX, "float16", {}, 1e-2, 0.99, 10_500),
    (ONNX, "dynamic", {}, 0.1, 0.98, 10_000),
    (ONNX, "int8", {}, 0.25, 0.97, 20_000),
    pytest.param(  # test_export_onnx.py has each of these settings
        *(ONNX, "int8", {"per_channel": False, "reduce_range": "on", "opset": 13}, 0.35, 0.96, 20_000),
        marks=pytest.mark.nightly,
    ),
    (OPENVINO, "float32", {}, 1e-5, 1.0, 6_000),
    (OPENVINO, "float16", {}, 1e-2, 0.99, 3_200),
    (OPENVINO, "int8", {}, 0.25, 0.97, 2_000),
    pytest.param(  # test_export_openvino.py has the preset and the range
        *(OPENVINO, "int8", {"preset": "mixed", "reduce_range": "on"}, 0.35, 0.96, 2_100), marks=pytest.mark.nightly
    ),
]
IMAGE = {"image": TensorSpec("float32", (None, 8, 8, 1))}
EACH = pytest.mark.parametrize("exporter", EXPORTERS, ids=str)
# Calibration and model cards are the same code for all; OpenVINO's are the slowest.
EACH_CALIBRATED = pytest.mark.parametrize(
    "exporter", [TFLITE, ONNX, pytest.param(OPENVINO, marks=pytest.mark.nightly)], ids=str
)


@pytest.mark.parametrize(("exporter", "precision", "settings", "error", "agreement", "size"), PRECISIONS)
def test_every_precision_matches_its_parent(
    digits_model, digits_examples, exported_digits, exporter, precision, settings, error, agreement, size
):
    folder, facts = exported_digits(exporter, precision, **settings)
    parent, child = runtimes.load(Model(digits_model)), runtimes.load(exporter.artifact(folder))
    batch = next(read_batches(Examples(digits_examples).split("eval"), parent.inputs, batch_size=397))
    expected, received = parent.run(batch)["digit"], child.run(batch)["digit"]
    assert np.abs(expected - received).max() <= error
    assert (expected.argmax(1) == received.argmax(1)).mean() >= agreement
    assert (child.inputs, child.outputs) == (parent.inputs, parent.outputs)  # names, dtypes, and an open batch
    assert (folder / "Format-Serving" / exporter.files[-1]).stat().st_size <= size
    assert [file.name for file in folder.iterdir()] == ["Format-Serving"]
    assert set(exporter.files) <= {file.name for file in (folder / "Format-Serving").iterdir()}
    verified = facts["verified"]
    assert verified["run"] and verified["inputs"] == "examples, split 'eval'" and verified["records"] == 256
    assert verified["outputs"]["digit"]["relative_error"] <= error
    assert ("calibration" in facts) == precision.startswith("int")


@pytest.mark.parametrize(
    ("precision", "integer_io"),
    [(precision, False) for precision in ("float32", "float16", "dynamic", "int8", "int16x8")]
    + [("int8", True), pytest.param("int16x8", True, marks=pytest.mark.nightly)],
)
def test_inputs_outputs_and_ops_of_tflite_are_integers_if_requested(exported_digits, precision, integer_io):
    _, facts = exported_digits(TFLITE, precision, **({"integer_io": True} if integer_io else {}))
    stored = {"int8": "INT8", "int16x8": "INT16"}[precision] if integer_io else "FLOAT32"
    assert facts["ops"]["io"] == {"image": stored, "digit": stored}
    if precision.startswith("int"):
        in_float = {"SOFTMAX": 1} if precision == "int8" and not integer_io else {}
        assert facts["ops"]["integer"] >= 5 and facts["ops"]["float"] == in_float
    else:
        assert facts["ops"]["integer"] == 0


@EACH
def test_the_folder_that_a_pusher_copies_has_the_converted_files_only(exporter, exported_digits):
    folder = exported_digits(exporter)[0]
    assert {file.relative_to(folder / "Format-Serving").as_posix() for file in folder.rglob("*") if file.is_file()} == {
        *exporter.files
    }


@EACH_CALIBRATED
def test_the_component_writes_the_model_card_and_logs_a_summary(
    exporter, digits_model, digits_examples, tmp_path, caplog
):
    out = tmp_path / "größe 1"
    with caplog.at_level(logging.INFO, "tfopt"):
        exporter.component(
            model=str(digits_model), examples=str(digits_examples), exported=str(out), precision="int8",
            calibration_count=50,
        )  # fmt: skip
    card = exporter.artifact(out).card.facts
    size = sum((out / "Format-Serving" / name).stat().st_size for name in exporter.files)
    agreement = r"agrees on 2[45]\d of 256 records, largest difference 0\.\d+ \(\d+(\.\d+)?% of the range\)"
    sizes = rf"{re.escape(data_size(size))}( \(\d+% larger than in float32: .*B\))?"
    assert re.fullmatch(rf"{exporter.format} int8: {sizes}, {agreement}", caplog.messages[-1])
    assert (card["name"], card["precision"], card["format"]) == (f"{exporter.format} int8", "int8", exporter.format)
    assert card["sizes"]["raw"] == size
    assert card["parent"]["digest"] == Model(digits_model).digest
    assert card["data"]["digest"] == Examples(digits_examples).digest
    calibration = {name: card["calibration"][name] for name in ("requested", "used", "split", "seed")}
    assert calibration == {"requested": 50, "used": 50, "split": "train", "seed": 0}
    assert len(card["calibration"]["records"]) == 50
    assert card["verified"]["outputs"]["digit"]["agreement"] > 0.95
    assert 0 < card["stability"]["median_difference"] <= card["stability"]["largest_difference"] < 1
    assert card["versions"] and card.items() >= exporter.card.items()
    assert [path for path in tmp_path.iterdir()] == [out]


@EACH_CALIBRATED
def test_the_same_seed_draws_the_same_examples_and_writes_the_same_weights(
    exporter, exported_digits, digits_model, digits_examples, tmp_path
):
    folder, facts = exported_digits(exporter, "int8")
    again = exporter.export(digits_model, digits_examples, tmp_path / "again", "int8")
    assert facts["calibration"] == again["calibration"]
    assert stored_weights(folder, exporter) == stored_weights(tmp_path / "again", exporter)
    parameters = exporter.parameters(precision="int8", seed=1)
    _, other = sample_inputs(Examples(digits_examples), IMAGE, parameters)
    assert facts["calibration"]["digest"] != other["digest"]
    if exporter is ONNX:  # of each exporter, the comparison without calibration records is made with this seed
        exporter.export(digits_model, digits_examples, tmp_path / "other", "int8", seed=1)
        assert stored_weights(folder, exporter) != stored_weights(tmp_path / "other", exporter)


def stored_weights(folder: Path, exporter) -> bytes | list[bytes]:
    file = folder / "Format-Serving" / exporter.files[-1]
    if exporter is not ONNX:
        return file.read_bytes()
    tensors = onnx.load(file).graph.initializer  # the converter's order varies
    return sorted(onnx.numpy_helper.to_array(tensor).tobytes() for tensor in tensors)


def test_a_small_split_is_noted_in_the_card(exported_digits):
    """Export to ONNX; the others take the same inputs and description, which their cards show in another test."""
    _, facts = exported_digits(ONNX, "int8", split="eval", calibration_count=1000)
    assert facts["calibration"]["used"] == 397
    assert facts["calibration"]["note"] == "the split has only 397 examples"


@EACH
def test_calibration_on_fewer_than_two_examples_raises(exporter, digits_model, tmp_path):
    for count in (0, 1):
        data = write_split(tmp_path / f"ex{count}", {"image": np.ones((count, 64), np.float32)})
        write_split(data, {"image": np.ones((9, 64), np.float32)}, "eval")
        with pytest.raises(ComponentError, match=f"split 'train': {count} examples") as error:
            exporter.export(digits_model, data, tmp_path / f"out{count}", "int8")
        assert "at least 2" in error.value.expected and "larger split" in error.value.fix


@EACH
def test_examples_that_do_not_fit_raise(exporter, digits_model, tmp_path):
    wrong = write_split(tmp_path / "wrong", {"image": np.array([["a"] * 64] * 2, object)})
    missing = write_split(tmp_path / "missing", {"imagge": np.ones((2, 63), np.float32)})
    for data in (wrong, missing):
        with pytest.raises(ComponentError, match="image") as error:
            exporter.export(digits_model, data, tmp_path / f"{data.name} out", "int8")
    assert "no feature 'image'" in error.value.received and error.value.fix == "did you mean imagge?"


@EACH_CALIBRATED
def test_a_file_calibrated_on_the_wrong_data_raises(exporter, digits_model, digits_examples, tmp_path):
    faint = np.random.default_rng(0).random((60, 64)).astype(np.float32) / 1000
    data = write_split(tmp_path / "ex", {"image": faint})
    (data / "Split-eval").symlink_to(digits_examples / "Split-eval")
    with pytest.raises(ComponentError) as error:
        exporter.export(digits_model, data, tmp_path / "out", "int8")
    assert error.value.received.startswith("int8, output 'digit'") and "typical examples" in error.value.fix


@EACH_CALIBRATED
def test_calibration_records_are_left_out_of_the_comparison(exporter, digits_model, digits_examples, tmp_path):
    for split in ("train", "eval"):
        (tmp_path / "ex").mkdir(exist_ok=True)
        (tmp_path / f"ex/Split-{split}").symlink_to(digits_examples / "Split-eval")
    some = exporter.export(digits_model, tmp_path / "ex", tmp_path / "some", "int8", calibration_count=300, seed=1)
    parameters = exporter.parameters(precision="int8", calibration_count=300, seed=1)
    _, drawn = sample_inputs(Examples(tmp_path / "ex"), IMAGE, parameters)
    assert some["calibration"]["digest"] == drawn["digest"]
    assert some["verified"]["records"] < 97 + 1 and "also_calibrated_on" not in some["verified"]
    if exporter is ONNX:  # the records are compared and counted by the same function for all
        every = exporter.export(digits_model, tmp_path / "ex", tmp_path / "all", "int8", calibration_count=500)
        assert every["verified"]["also_calibrated_on"] == every["verified"]["records"] == 256


@EACH
@pytest.mark.parametrize("source", ["examples", "random inputs"])
def test_names_and_dtypes_match_the_signature(exporter, source, tmp_path):
    weights = tf.constant(np.random.default_rng(0).normal(size=(2, 4, 3)), tf.float32)

    def serve(zeta, alpha):
        scores = zeta @ weights[1] + tf.cast(alpha, tf.float32)
        return {"z": zeta @ weights[0], "a": scores, "m": tf.argmax(zeta, -1), "same": tf.identity(zeta)}

    model = saved(tmp_path / "model", serve, zeta=([None, 4], tf.float32), alpha=([None, 1], tf.int64))
    zeta, alpha = np.eye(4, dtype=np.float32), np.arange(4, dtype=np.int64)[:, None]
    data = write_split(tmp_path / "ex", {"zeta": zeta, "alpha": alpha}) if source == "examples" else None
    verified = exporter.export(model, data, tmp_path / "out")["verified"]
    assert verified["inputs"].startswith(source)
    assert set(verified["outputs"]) == {"z", "a", "m", "same"} and verified["outputs"]["m"]["agreement"] == 1
    outputs = runtimes.load(exporter.artifact(tmp_path / "out")).run({"alpha": alpha, "zeta": zeta})
    np.testing.assert_allclose(outputs["z"], weights[0], atol=1e-6)
    np.testing.assert_allclose(outputs["a"], weights[1] + alpha, atol=1e-5)
    assert outputs["m"].tolist() == [0, 1, 2, 3] and outputs["m"].dtype == np.int64
    assert outputs["same"].tolist() == zeta.tolist()


@EACH
def test_names_that_are_no_python_identifiers_are_preserved(exporter, tmp_path):
    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        ends = [v1.placeholder(tf.float32, [None, 2], name=name) for name in ("one", "two")]
        inputs = dict(zip(("my in:0/x", "a b"), map(v1.saved_model.build_tensor_info, ends), strict=True))
        outputs = {"out put/1:0": v1.saved_model.build_tensor_info(ends[0] - 3 * ends[1])}
        builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "model"))
        signature = v1.saved_model.build_signature_def(inputs, outputs)
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    exporter.export(tmp_path / "model", None, tmp_path / "out")
    runtime = runtimes.load(exporter.artifact(tmp_path / "out"))
    ones = np.ones((4, 2), np.float32)
    assert runtime.run({"my in:0/x": 5 * ones, "a b": ones})["out put/1:0"].tolist() == (2 * ones).tolist()


UNBATCHED = {
    "a scalar and a batch": (lambda a, x: {"y": x * a}, {"a": [], "x": [None, 3]}),
    "scalars only": (lambda a, x: {"y": x * a + x}, {"a": [], "x": []}),
    "sizes that differ": (lambda a, x: {"y": tf.reduce_sum(a) * x}, {"a": [4], "x": [3]}),
}


@EACH
@pytest.mark.parametrize("kind", UNBATCHED)
def test_inputs_without_a_batch_axis_are_passed_unchanged(exporter, kind, tmp_path):
    serve, shapes = UNBATCHED[kind]
    model = saved(tmp_path / "model", serve, **{name: (shape, tf.float32) for name, shape in shapes.items()})
    verified = exporter.export(model, None, tmp_path / "out")["verified"]
    assert verified["records"] == (36 if [None, 3] in shapes.values() else 1)
    assert verified["outputs"]["y"]["relative_error"] < 1e-5


@EACH
def test_a_scalar_input_is_read_from_examples(exporter, tmp_path):
    model = saved(tmp_path / "model", lambda a, x: {"y": x * a}, a=([], tf.float32), x=([None, 3], tf.float32))
    numbers = np.arange(60, dtype=np.float32)
    data = write_split(tmp_path / "ex", {"a": np.full((20, 1), 3, np.float32), "x": numbers.reshape(20, 3)})
    verified = exporter.export(model, data, tmp_path / "out")["verified"]
    assert verified["outputs"]["y"]["output_range"] == pytest.approx(3 * np.ptp(numbers))


@EACH_CALIBRATED
def test_a_fixed_batch_size_is_preserved(exporter, digits_examples, tmp_path):
    kernel = tf.constant(np.random.default_rng(0).normal(size=(64, 10)), tf.float32)
    model = saved(tmp_path / "model", lambda image: {"digit": image @ kernel}, image=([4, 64], tf.float32))
    facts = exporter.export(model, digits_examples, tmp_path / "out", "int8")
    assert facts["verified"]["records"] == 256
    assert runtimes.load(exporter.artifact(tmp_path / "out")).inputs["image"].shape == (4, 64)


@pytest.mark.parametrize(
    ("kind", "exporter"),
    [
        ("keras 3 file", TFLITE),
        ("keras 2 file", ONNX),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (("keras 3 file", ONNX), ("keras 3 file", OPENVINO), ("keras 2 h5", TFLITE))
        ),
    ],
    ids=str,
)
def test_bare_keras_files_are_exported(exporter, kind, digits_model, tmp_path):
    file = digits_model / "Format-Keras/model.keras" if kind == "keras 3 file" else keras_2_file(tmp_path, kind)
    facts = exporter.export(file, None, tmp_path / "out")
    assert facts["verified"]["inputs"] == "random inputs"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Format-Serving"]
    parent, child = runtimes.load(Model(file)), runtimes.load(exporter.artifact(tmp_path / "out"))
    batch = {name: np.random.default_rng(1).random((5, 8, 8, 1), np.float32) for name in parent.inputs}
    for output, expected in parent.run(batch).items():
        np.testing.assert_allclose(child.run(batch)[output], expected, atol=1e-5)


def keras_2_file(folder: Path, kind: str) -> Path:
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(0)
    shapes = [layers.Conv2D(4, 3, input_shape=(8, 8, 1)), layers.BatchNormalization(), layers.Flatten()]
    file = folder / ("model.h5" if kind.endswith("h5") else "model.keras")
    tf_keras.Sequential([*shapes, layers.Dense(3)]).save(file)
    return file


@pytest.mark.parametrize(
    "exporter",
    [
        pytest.param(TFLITE, marks=pytest.mark.nightly),
        OPENVINO,
    ],  # 4 s and 1 s; test_export_onnx.py has the other, nightly
    ids=str,
)
def test_a_third_party_model_is_exported_exactly(exporter, tmp_path):
    data = write_split(tmp_path / "ex", {"input_2": chords()})
    facts = exporter.export(pretrained("nmp"), data, tmp_path / "out", tolerance=PRETRAINED_ERROR)
    outputs = facts["verified"]["outputs"]
    assert set(outputs) == {"contour", "note", "onset"} and facts["verified"]["records"] == 4
    assert all(parity["correlation"] > 0.9999 for parity in outputs.values())


@EACH
def test_contradicting_arguments_raise_before_any_work(exporter, digits_model, digits_examples, tmp_path):
    model, examples, out = str(digits_model), str(digits_examples), tmp_path / "out"
    (tmp_path / "a.tflite").write_bytes(b"TFL3")
    for arguments, received, fix in [
        ({"precision": "int8"}, "precision='int8' without examples", "pass examples=PATH"),
        ({"precision": "int8", "examples": examples, "split": "trian"}, "split 'trian' missing", "name another split"),
        ({"precision": "int7"}, "precision='int7'", "did you mean int"),
        ({"precision": "int8", "examples": examples, "calibration_count": 1}, "calibration_count=1", "200"),
        ({"tolerance": -1.0}, "tolerance=-1.0", "change the value"),
        ({"model": str(tmp_path / "a.tflite")}, "a tflite model", "it was converted from"),
    ]:
        with pytest.raises(ComponentError) as error:
            exporter.component(**({"model": model, "exported": str(out)} | arguments))
        assert received in error.value.received and fix in error.value.fix
    assert not out.exists()


@EACH
def test_a_tolerance_replaces_the_default_limit(exporter, digits_model, digits_examples, tmp_path):
    with pytest.raises(ComponentError, match=r"at most 1e-06"):
        exporter.export(digits_model, digits_examples, tmp_path / "out", "float16", tolerance=1e-6)


@EACH
def test_values_out_of_the_float16_range_raise(exporter, tmp_path):
    weights = tf.constant([[3e5, 1.0], [-2e5, 2.0]])
    model = saved(tmp_path / "model", lambda x: {"y": x @ weights}, x=([None, 2], tf.float32))
    with pytest.raises(ComponentError, match=r"correlation 0\.\d+ with the parent|NaN or infinity"):
        exporter.export(model, None, tmp_path / "out", "float16")


@EACH
def test_nan_in_the_parent_raises(exporter, tmp_path):
    weights = tf.constant([[1.0, float("nan")]])
    model = saved(tmp_path / "model", lambda x: {"y": x @ weights}, x=([None, 1], tf.float32))
    with pytest.raises(ComponentError, match="parent returns NaN"):
        exporter.export(model, None, tmp_path / "out")


@EACH
def test_a_truncated_saved_model_raises(exporter, digits_model, tmp_path):
    shutil.copytree(digits_model / "Format-Serving", tmp_path / "model")
    data = tmp_path / "model/variables/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ComponentError, match="a SavedModel that TensorFlow can load"):
        exporter.export(tmp_path / "model", None, tmp_path / "out")
