"""Test `fold_batch_norm` as a component: written files, report, unchanged parts, refusals."""

import importlib
import json
import logging
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.components.batch_norm_models import batch_norms, inputs_for, randomized
from tfopt import keras_models, runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.fold_batch_norm import fold
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.errors import ComponentError

KERAS = pytest.mark.parametrize("keras", ["keras", "tf_keras"], indirect=True)


@pytest.fixture
def keras(request):
    return importlib.import_module(request.param)


@pytest.fixture(scope="module")
def folded_digits(tmp_path_factory, digits_model, digits_examples) -> SavedModel:
    return fold_batch_norm(digits_model, tmp_path_factory.mktemp("fold") / "folded", digits_examples)["folded"]


def test_a_trained_model_loses_its_batch_norms_and_none_of_its_answers(folded_digits, digits_model):
    assert batch_norms(keras_models.load(folded_digits)) == []
    card = SavedModel.open(folded_digits.path).card.facts
    assert card["name"] == "folded"
    assert card["report"]["summary"] == "2 of 2 batch norms folded"
    into = [fold["folded_into"] for fold in card["report"]["batch_norms"]]
    assert [name.rstrip("_0123456789") for name in into] == ["conv2d", "depthwise_conv2d"]
    assert card["verified"]["inputs"] == "examples, split 'eval'"
    assert card["verified"]["outputs"]["digit"]["relative_error"] < 1e-5
    assert card["verified"]["outputs"]["digit"]["agreement"] == 1
    assert card["parent"]["digest"] == SavedModel.open(digits_model).digest


def test_both_forms_answer_as_the_parent_on_inputs_never_seen(folded_digits, digits_model):
    images = {"image": np.random.default_rng(5).uniform(0, 16, (100, 8, 8, 1)).astype("float32")}
    expected = runtimes.load(SavedModel(digits_model)).run(images)["digit"]
    for form in (folded_digits.path, folded_digits.keras):
        assert np.abs(runtimes.load(SavedModel(form)).run(images)["digit"] - expected).max() < 1e-5


def test_signature_names_and_layer_names_stay(folded_digits, digits_model):
    before, after = runtimes.load(SavedModel(digits_model)), runtimes.load(SavedModel(folded_digits.path))
    assert (before.inputs, before.outputs) == (after.inputs, after.outputs)
    names = [layer.name for layer in keras_models.load(SavedModel(digits_model)).layers]
    assert [layer.name for layer in keras_models.load(folded_digits).layers] == [
        name for name in names if "batch_norm" not in name
    ]


def test_folding_again_hands_the_model_on_unchanged(folded_digits, tmp_path):
    again = fold_batch_norm(folded_digits, tmp_path / "again")["folded"]
    assert SavedModel(again.path).digest == SavedModel(folded_digits.path).digest
    assert json.loads((again.path / "model_card.json").read_text())["report"]["summary"] == "unchanged: no batch norms"
    assert _linked(
        again.path / "Format-Serving" / "saved_model.pb", folded_digits.path / "Format-Serving/saved_model.pb"
    )


@pytest.mark.parametrize("keras", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)], indirect=True)
def test_a_saved_model_without_a_keras_form_is_folded_on_its_graph(keras, tmp_path, caplog):
    layers = keras.layers
    image = keras.Input((8, 8, 3), name="image")
    flow = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3)(image)))
    flow = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(flow))
    flow = layers.BatchNormalization()(layers.ReLU()(flow))
    model = randomized(keras.Model(image, layers.BatchNormalization()(layers.Dense(5)(layers.Flatten()(flow)))))
    bare = tmp_path / "bare"
    model.export(bare)
    with caplog.at_level(logging.INFO, "tfopt"):
        folded = fold_batch_norm(bare, tmp_path / "folded")["folded"]
    assert "3 of 4 batch norms folded" in caplog.text  # each once, though Keras serves the same under two keys
    report = SavedModel.open(folded.path).card.facts["report"]
    reasons = [row["refused"] for row in report["batch_norms"] if "refused" in row]
    assert len(reasons) == 1
    assert "follows Relu" in reasons[0]
    assert SavedModel(folded.path).sizes()["raw"] < SavedModel(bare).sizes()["raw"]
    before, after = (runtimes.load(SavedModel(path)) for path in (bare, folded.path))
    assert (before.inputs, before.outputs) == (after.inputs, after.outputs)
    images = {"image": inputs_for(model)}
    for name in before.outputs:
        expected = before.run(images)[name]
        assert np.abs(after.run(images)[name] - expected).max() < 1e-5 * np.ptp(expected)


def test_a_folded_graph_that_differs_on_nan_is_not_passed_on(tmp_path, monkeypatch):
    import tensorflow as tf

    kernel, scale = tf.ones([3, 2]), tf.constant([2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([4, 3], name="x")])
    def serve(x):
        normal = tf.nn.batch_normalization(x @ kernel, scale, scale, scale, scale, 1e-3)
        return {"y": normal + tf.reduce_sum(x * tf.zeros([3]), 1, keepdims=True)}

    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
    card = fold_batch_norm(tmp_path / "model", tmp_path / "exact")["folded"].card
    assert card.facts["folded"] == 1
    monkeypatch.setattr(fold, "FOLDING", (*fold.FOLDING, "fold_zero_products", "strip_unused"))
    monkeypatch.setattr(fold, "write_verified", None)  # never reached
    folded = fold_batch_norm(tmp_path / "model", tmp_path / "folded")["folded"]
    assert "instead of nan on NaN, infinities" in folded.card.facts["report"]["summary"]
    before, after = (SavedModel(path).saved_model / "saved_model.pb" for path in (tmp_path / "model", folded.path))
    assert before.read_bytes() == after.read_bytes()


def test_a_saved_model_that_cannot_be_frozen_is_passed_through_with_the_reason(tmp_path):
    module = tf.Module()
    call = tf.function(lambda: {"y": tf.numpy_function(lambda: np.float32(1), [], tf.float32)}, input_signature=[])
    module.call = call
    tf.saved_model.save(module, tmp_path / "bare", {"serving_default": module.call})
    folded = fold_batch_norm(tmp_path / "bare", tmp_path / "folded", trust_model_code=True)["folded"]
    assert "cannot be frozen" in folded.metadata["report"]["summary"]
    assert _linked(folded.path / "Format-Serving" / "saved_model.pb", tmp_path / "bare" / "saved_model.pb")


def _flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[10] ^= 255
    file.write_bytes(content)


DAMAGES = {
    "empty graph": lambda folder: (folder / "saved_model.pb").write_bytes(b""),
    "random graph": lambda folder: (folder / "saved_model.pb").write_bytes(bytes(range(256)) * 8),
    "half a graph": lambda folder: os.truncate(folder / "saved_model.pb", 800),
    "pointer of Git LFS": lambda folder: (folder / "saved_model.pb").write_text("version https://git-lfs.github.com\n"),
    "no variables": lambda folder: shutil.rmtree(folder / "variables"),
    "cut variables": lambda folder: os.truncate(next((folder / "variables").glob("*.data*")), 5),
    "flipped byte": lambda folder: _flip_a_byte(next((folder / "variables").glob("*.data*"))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_saved_model_is_not_passed_through(tmp_path, damage):
    module = tf.Module()
    module.kernel = tf.Variable(np.ones((4, 3), np.float32))
    specs = [tf.TensorSpec([None, 4], tf.float32, name="x")]
    module.call = tf.function(lambda x: {"y": tf.matmul(x, module.kernel)}, input_signature=specs)
    tf.saved_model.save(module, tmp_path / "bare", {"serving_default": module.call})
    DAMAGES[damage](tmp_path / "bare")
    with pytest.raises(ComponentError):
        fold_batch_norm(tmp_path / "bare", tmp_path / "folded")
    assert [path.name for path in tmp_path.iterdir()] == ["bare"]


@pytest.mark.parametrize(
    ("keras", "kind"),
    [
        ("keras", "keras"),
        ("tf_keras", "h5"),
        pytest.param("keras", "h5", marks=pytest.mark.nightly),
        pytest.param("tf_keras", "keras", marks=pytest.mark.nightly),
    ],
    indirect=["keras"],
)
def test_a_keras_file_is_folded_and_exported(keras, kind, tmp_path, caplog):
    image = keras.Input((8, 8, 3), name="image")
    flow = keras.layers.BatchNormalization(name="n")(keras.layers.Conv2D(4, 3, name="c")(image))
    flow = keras.layers.BatchNormalization(name="stays")(keras.layers.ReLU(name="r")(flow))
    model = randomized(keras.Model(image, flow))
    file = tmp_path / "mein Modell ü" / f"model.{kind}"
    file.parent.mkdir()
    model.save(file)
    with caplog.at_level(logging.INFO, "tfopt"):
        folded = fold_batch_norm(file, tmp_path / "gefaltet ü")["folded"]
    assert "1 of 2 batch norms folded" in caplog.text
    assert re.search(r"(?m)records, largest difference \S+ \(\S+% of the range\)$", "\n".join(caplog.messages))
    assert "stays stays: it follows 'r' (ReLU), which is no convolution or dense layer" in caplog.text
    assert folded.metadata["verified"]["inputs"] == "random inputs"
    images = inputs_for(model)
    answer = runtimes.load(SavedModel(folded.path)).run({"image": images})["stays"]
    assert np.abs(answer - np.asarray(model(images, training=False))).max() < 1e-5 * np.ptp(answer)


@KERAS
def test_a_sequential_model_stays_one(keras, tmp_path):
    layers = [keras.Input((8, 8, 3), name="image"), keras.layers.DepthwiseConv2D(3), keras.layers.BatchNormalization()]
    randomized(keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(3)])).save(tmp_path / "m.keras")
    folded = keras_models.load(fold_batch_norm(tmp_path / "m.keras", tmp_path / "folded")["folded"])
    assert isinstance(folded, keras.Sequential)
    assert len(folded.layers) == 3


@pytest.mark.parametrize(("keras", "nested"), [("keras", dict), ("tf_keras", list)], indirect=["keras"])
def test_several_inputs_and_outputs_keep_names_and_places(keras, nested, tmp_path):
    layers = keras.layers
    image, extra = keras.Input((6, 6, 2), name="image"), keras.Input((5,), name="extra")
    left = layers.BatchNormalization(name="left")(layers.Conv2D(3, 3)(image))
    right = layers.BatchNormalization(name="right")(layers.Dense(4)(extra))
    inputs = {"image": image, "extra": extra} if nested is dict else [image, extra]
    outputs = {"z": left, "a": right} if nested is dict else [left, right]
    model = randomized(keras.Model(inputs, outputs))
    keras_models.save(model, tmp_path / "parent")
    folded = fold_batch_norm(tmp_path / "parent", tmp_path / "folded")["folded"]
    before, after = runtimes.load(SavedModel(tmp_path / "parent")), runtimes.load(SavedModel(folded.path))
    assert set(after.outputs) == ({"a", "z"} if nested is dict else {"left", "right"})
    assert (before.inputs, before.outputs) == (after.inputs, after.outputs)
    assert batch_norms(keras_models.load(folded)) == []


def test_outputs_that_keras_3_exported_by_number_keep_their_numbers(tmp_path):
    import keras

    image = keras.Input((6, 6, 2), name="image")
    conv = keras.layers.BatchNormalization(name="z")(keras.layers.Conv2D(3, 3)(image))
    model = randomized(keras.Model(image, [conv, keras.layers.Dense(2, name="a")(conv)]))
    model.export(tmp_path / "parent" / "Format-Serving", verbose=False)
    (tmp_path / "parent" / "Format-Keras").mkdir()
    model.save(tmp_path / "parent" / "Format-Keras" / "model.keras")
    folded = fold_batch_norm(tmp_path / "parent", tmp_path / "folded")["folded"]
    outputs = runtimes.load(SavedModel(folded.path)).outputs
    assert [spec.shape[-1] for spec in (outputs["output_0"], outputs["output_1"])] == [3, 2]


def test_a_saved_model_of_keras_2_is_its_own_keras_form(tmp_path):
    import tf_keras

    model = tf_keras.Sequential([tf_keras.Input((5,), name="x"), tf_keras.layers.Dense(4),
                                 tf_keras.layers.BatchNormalization(), tf_keras.layers.Dense(3)])  # fmt: skip
    randomized(model).save(tmp_path / "parent", save_format="tf")
    folded = fold_batch_norm(tmp_path / "parent", tmp_path / "folded")["folded"]
    assert folded.metadata["folded"] == 1


@KERAS
def test_a_subclassed_model_is_passed_through_with_the_reason(keras, tmp_path):
    model = _subclassed(keras)
    randomized(model)
    serve = tf.function(lambda x: {"y": model(x, training=False)})
    signature = serve.get_concrete_function(tf.TensorSpec([None, 5], name="x"))
    tf.saved_model.save(model, str(tmp_path / "parent" / "Format-Serving"), signatures=signature)
    (tmp_path / "parent" / "Format-Keras").mkdir()
    model.save(tmp_path / "parent" / "Format-Keras" / "model.keras")
    report = fold_batch_norm(tmp_path / "parent", tmp_path / "folded")["folded"].metadata["report"]
    assert report["summary"] == "unchanged: 0 of 1 batch norms folded"
    assert "inside" in report["batch_norms"][0]["refused"]
    assert "which has no graph of Keras layers" in report["batch_norms"][0]["refused"]


@KERAS
def test_nan_in_a_weight_is_refused_by_name(keras, tmp_path):
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(4, name="hidden"), keras.layers.BatchNormalization()]
    )
    model.get_layer("hidden").bias.assign([0, float("nan"), 0, 0])
    model.save(tmp_path / "m.keras")
    _refused(tmp_path, tmp_path / "m.keras", "1 NaN in weight hidden/bias")


def test_a_truncated_file_is_refused(digits_model, tmp_path):
    content = (digits_model / "Format-Keras" / "model.keras").read_bytes()
    (tmp_path / "m.keras").write_bytes(content[: len(content) // 2])
    _refused(tmp_path, tmp_path / "m.keras", "m.keras")


def test_an_output_beyond_the_tolerance_is_refused(digits_model, tmp_path):
    _refused(tmp_path, digits_model, "of the folded model differs by", tolerance=0.0)


def test_a_signature_the_keras_form_does_not_account_for_is_refused(digits_model, tmp_path):
    def serve(**arguments):
        return {"digit": tf.reduce_sum(next(iter(arguments.values())), [1, 2, 3])}

    for name, names, also, message in (("inputs", "picture", {}, "serving_default takes picture"),
                                    ("signatures", "image", {"raw": "image"}, "signatures raw beside")):  # fmt: skip
        parent = tmp_path / name
        (parent / "Format-Keras").mkdir(parents=True)
        os.link(digits_model / "Format-Keras" / "model.keras", parent / "Format-Keras" / "model.keras")
        signatures = {key: tf.function(serve).get_concrete_function(**{each: tf.TensorSpec([None, 8, 8, 1], name=each)})
                      for key, each in {"serving_default": names, **also}.items()}  # fmt: skip
        tf.saved_model.save(tf.Module(), str(parent / "Format-Serving"), signatures=signatures)
        _refused(tmp_path, parent, message)


def test_examples_without_the_model_s_input_are_refused_with_the_nearest_name(digits_examples, tmp_path):
    import keras

    model = keras.Sequential([keras.Input((9, 9, 1), name="images"), keras.layers.Conv2D(2, 3)])
    model.add(keras.layers.BatchNormalization())
    model.save(tmp_path / "m.keras")
    error = _refused(tmp_path, tmp_path / "m.keras", "no feature 'images'", examples=digits_examples)
    assert error.fix == "did you mean image?"


def _refused(folder: Path, model: Path, received: str, **arguments) -> ComponentError:
    with pytest.raises(ComponentError) as refusal:
        fold_batch_norm(model, folder / "folded", **arguments)
    assert received in refusal.value.received
    assert refusal.value.expected
    assert refusal.value.fix
    assert not list(folder.glob("*folded*")), "files were left"
    return refusal.value


def _linked(one: Path, other: Path) -> bool:
    return one.stat().st_ino == other.stat().st_ino


def _subclassed(keras):
    @keras.saving.register_keras_serializable("tests")
    class Net(keras.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.dense = keras.layers.Dense(4)
            self.norm = keras.layers.BatchNormalization()

        def call(self, inputs, training=False):
            return self.norm(self.dense(inputs), training=training)

    model = Net()
    model(np.zeros((1, 5), "float32"))
    return model
