"""Test export_tflite: stored weights, unsupported ops; test_exporters.py has what all exporters do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import TFLITE, write_split
from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt import keras_models, runtimes
from tfopt.artifacts import Model, TFLiteModel
from tfopt.components.export_tflite import flatbuffer
from tfopt.components.export_tflite.component import export_tflite
from tfopt.conversion.convert import summarize
from tfopt.errors import ComponentError


def test_contradicting_arguments_raise_before_any_work(digits_model, tmp_path):
    for arguments, received, fix in [
        ({"precision": "int16x8"}, "precision='int16x8' without examples", "pass examples=PATH"),
        ({"precision": "float16", "integer_io": True}, "integer_io with precision='float16'", "leave integer_io out"),
    ]:
        with pytest.raises(ComponentError) as error:
            export_tflite(model=str(digits_model), exported=str(tmp_path / "out"), **arguments)
        assert received in error.value.received and fix in error.value.fix
    assert not (tmp_path / "out").exists()


def test_a_model_with_a_lookup_table_is_calibrated_on_the_words_of_the_examples(tmp_path):
    word = keras.Input((1,), dtype="string", name="word")
    rows = keras.layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")(word)
    model = keras.Model(word, keras.layers.Dense(4)(rows))
    model.layers[-1].set_weights([np.diag(np.float32([1, 2, 3, 4])), np.zeros(4)])  # each word has another range
    model.export(tmp_path / "model", verbose=False)  # its lookup table is an op without outputs
    for split in ("train", "eval"):
        words = np.asarray([["a"], ["b"], ["z"], ["c"]] * 8)
        write_examples(tmp_path / "examples" / f"Split-{split}" / "data_tfrecord.gz", {"word": words})
    arguments = {"examples": tmp_path / "examples", "precision": "int16x8"}
    exported = export_tflite(tmp_path / "model", exported=tmp_path / "out", **arguments)["exported"]
    with runtimes.load(exported) as runtime:
        [rows] = runtime.run({"word": np.asarray([[b"z"], [b"a"], [b"b"], [b"c"]])}).values()
    np.testing.assert_allclose(rows, np.diag([1, 2, 3, 4]), atol=0.001)


def test_integer_io_that_the_converter_left_in_float_raises(tmp_path):
    kernel = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)

    def serve(x):
        return {"product": x @ kernel, "constant": tf.zeros([2])}  # the converter does not quantize constants

    model = saved(tmp_path / "model", serve, x=([None, 4], tf.float32))
    data = write_split(tmp_path / "ex", {"x": np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)})
    with pytest.raises(ComponentError, match="constant: float in the converted file"):
        TFLITE.export(model, data, tmp_path / "out", "int8", integer_io=True, calibration_count=2)


def test_examples_without_the_models_input_name_the_nearest(digits_model, tmp_path):
    write_split(tmp_path / "ex", {"imagge": np.ones((5, 63), np.float32)})
    with pytest.raises(ComponentError) as error:
        export_tflite(model=str(digits_model), examples=str(tmp_path / "ex"), exported=str(tmp_path / "out"))
    assert "no feature 'image'" in error.value.received and error.value.fix == "did you mean imagge?"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ex"]  # nothing half-written


def test_weights_that_the_converter_drops_for_keras_objects_are_stored(digits_model, tmp_path):
    model = keras_models.load(Model(digits_model))
    serve = tf.function(lambda image: model(image, training=False), autograph=False)
    concrete = serve.get_concrete_function(tf.TensorSpec([None, 8, 8, 1], tf.float32, name="image"))
    without_weights = tf.lite.TFLiteConverter.from_concrete_functions([concrete], model).convert()
    (tmp_path / "without_weights.tflite").write_bytes(without_weights)
    image = np.random.default_rng(0).random((3, 8, 8, 1), np.float32) * 16
    assert not np.allclose(
        next(iter(runtimes.load(Model(tmp_path / "without_weights.tflite")).run({"image": image}).values())),
        model(image),
    )
    assert flatbuffer.has_lost_weights(without_weights)

    facts = TFLITE.export(digits_model, None, tmp_path / "out")
    ours = runtimes.load(TFLiteModel(tmp_path / "out")).run({"image": image})["digit"]
    np.testing.assert_allclose(ours, model(image), atol=1e-5)
    kernels = sum(weight.shape.num_elements() for weight in model.trainable_weights if len(weight.shape) > 1)
    assert facts["ops"]["constant_bytes"] >= 4 * kernels  # all float32 kernels; batch norm is folded into them
    assert facts["verified"]["inputs"] == "random inputs"


class KerasModule(tf.Module):
    """A module around a Keras 3 model, whose variables LiteRT's converter does not find."""

    def __init__(self) -> None:
        super().__init__()
        self.model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")], autograph=False)
    def serve(self, x):
        return {"y": self.model(x)}


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_weights_of_a_keras_model_in_a_module_are_in_the_file(precision, tmp_path):
    module = KerasModule()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    examples = write_split(tmp_path / "ex", {"x": x})
    TFLITE.export(tmp_path / "model", examples, tmp_path / "out", precision, calibration_count=20)
    outputs = runtimes.load(TFLiteModel(tmp_path / "out")).run({"x": x})["y"]
    np.testing.assert_allclose(outputs, module.model(x), atol=1e-5 if precision == "float32" else 0.05)


def test_ops_that_litert_lacks_are_named_with_the_advice_select_tf_ops(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.linalg.inv(x + 5 * tf.eye(3))}, x=([None, 3, 3], tf.float32))
    with pytest.raises(ComponentError) as error:
        TFLITE.export(model, None, tmp_path / "refused")
    assert error.value.received == "ops that LiteRT lacks: MatrixInverse" and "--select-tf-ops" in error.value.fix

    facts = TFLITE.export(model, None, tmp_path / "out", select_tf_ops=True)
    assert facts["verified"] == {"run": False, "reason": "needs TensorFlow's Flex delegate for MatrixInverse"}
    summary = summarize(TFLiteModel(tmp_path / "out", {"name": "tflite float32", **facts}))
    assert summary.endswith("not run: needs TensorFlow's Flex delegate for MatrixInverse")
    with pytest.raises(ComponentError) as error:
        runtimes.load(TFLiteModel(tmp_path / "out"))
    assert "TensorFlow ops in it (MatrixInverse)" in error.value.received and "Flex delegate" in error.value.expected


def test_select_tf_ops_changes_nothing_where_litert_has_every_op(digits_model, tmp_path):
    facts = TFLITE.export(digits_model, None, tmp_path / "out", select_tf_ops=True)
    assert facts["verified"]["run"] and facts["ops"]["flex"] == []


def test_ops_that_neither_litert_nor_select_tf_ops_has_are_named(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.math.betainc(x, x, x)}, x=([None, 3], tf.float32))
    with pytest.raises(ComponentError) as error:
        TFLITE.export(model, None, tmp_path / "out", select_tf_ops=True)
    assert error.value.received.endswith(": Betainc") and "other ops" in error.value.fix
