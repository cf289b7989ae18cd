"""Test models that begin with tables, buckets and hashes of numbers: converted whole or after a cut."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.components.evaluate.component import evaluate
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.validate_serving.component import validate_serving

KEYS = list(range(10, 2010))  # more than a table of comparisons holds


def layers_of(name):
    """Return the layers of preprocessing of a model, with the type of its input, and the number of classes."""
    import keras

    layers = keras.layers
    return {
        "IntegerLookup": lambda: ([layers.IntegerLookup(vocabulary=KEYS)], "int64", len(KEYS) + 1),
        "IntegerLookup of few": lambda: ([layers.IntegerLookup(vocabulary=[3, 5, 7])], "int64", 4),
        "Hashing": lambda: ([layers.Hashing(8)], "int64", 8),
        "Hashing with salt": lambda: ([layers.Hashing(8, salt=[1, 2])], "int64", 8),
        "Discretization": lambda: ([layers.Discretization([0.0, 1, 2])], "float32", 4),
        "CategoryEncoding": lambda: ([layers.CategoryEncoding(9, output_mode="multi_hot")], "int64", None),
        "CategoryEncoding count": lambda: ([layers.CategoryEncoding(9, output_mode="count")], "int64", None),
        "IntegerLookup multi_hot": lambda: (
            [layers.IntegerLookup(vocabulary=KEYS, output_mode="multi_hot")],
            "int64",
            None,
        ),
    }[name]()


def model_of(name, folder, form):
    import keras

    keras.utils.set_random_seed(0)
    layers, dtype, classes = layers_of(name)
    x = flow = keras.Input((3,), dtype=dtype, name="x")
    for layer in layers:
        flow = layer(flow)
    if classes:
        flow = keras.layers.Flatten()(keras.layers.Embedding(classes, 4, embeddings_initializer="normal")(flow))
    model = keras.Model(x, keras.layers.Dense(3, "softmax", kernel_initializer=keras.initializers.Ones())(flow))
    model.layers[-1].set_weights(
        [np.random.default_rng(0).normal(size=w.shape) for w in model.layers[-1].get_weights()]
    )
    path = folder / ("model.keras" if form == "keras" else "model")
    model.save(path) if form == "keras" else model.export(path, verbose=False)
    values = np.random.default_rng(1).integers(0, 9, (60, 3)) * (
        250 if "IntegerLookup" in name and "few" not in name else 1
    )
    return path, values.astype(dtype)


CUT = [
    ("IntegerLookup", export_tflite, "keras", True),
    *(
        pytest.param(*case, marks=pytest.mark.nightly)
        for case in (
            ("IntegerLookup", export_onnx, "saved_model", True),
            ("IntegerLookup of few", export_tflite, "keras", False),
            ("IntegerLookup of few", export_onnx, "saved_model", False),
            ("IntegerLookup multi_hot", export_tflite, "saved_model", True),
            ("Hashing", export_onnx, "keras", True),
            ("Hashing with salt", export_tflite, "saved_model", True),
            ("Discretization", export_onnx, "saved_model", True),
            ("Discretization", export_tflite, "keras", False),
            ("CategoryEncoding", export_tflite, "keras", True),
            ("CategoryEncoding", export_onnx, "keras", False),
            ("CategoryEncoding count", export_tflite, "saved_model", True),
        )
    ),
]


@pytest.mark.parametrize(("name", "export", "form", "is_cut"), CUT)
def test_a_model_with_preprocessing_of_numbers_is_converted(name, export, form, is_cut, tmp_path):
    model, values = model_of(name, tmp_path, form)
    export(model=model, exported=tmp_path / "out")
    assert Model(tmp_path / "out").preprocessing is not None if is_cut else not Model(tmp_path / "out").preprocessing
    with runtimes.load(Model(model)) as parent, runtimes.load(Model(tmp_path / "out")) as child:
        assert child.inputs.keys() == parent.inputs.keys()
        expected, actual = (next(iter(each.run({"x": values}).values())) for each in (parent, child))
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(actual, expected, atol=1e-6)


class Sentences(tf.Module):
    """A mean of word vectors, as modules of TensorFlow Hub have it, with a layer behind it."""

    def __init__(self):
        super().__init__()
        draw, words = np.random.default_rng(0).normal, [f"w{number}" for number in range(20)]
        keys = tf.lookup.KeyValueTensorInitializer(words, range(20), value_dtype=tf.int64)
        self.table = tf.lookup.StaticVocabularyTable(keys, 2)
        self.vectors = tf.Variable(draw(size=(22, 6)), dtype=tf.float32)
        self.kernel = tf.Variable(draw(size=(6, 3)), dtype=tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "x")])
    def serve(self, x):
        words = tf.strings.split(x)
        rows = tf.gather(self.vectors, self.table.lookup(words.flat_values))
        mean = tf.math.segment_mean(rows, words.value_rowids())
        return {"y": tf.tanh(mean @ self.kernel)}


class Buckets(tf.Module):
    """Buckets by binary search, and a row of a table for each."""

    def __init__(self, side):
        super().__init__()
        self.side, self.rows = side, tf.Variable(np.random.default_rng(0).normal(size=(5, 3)), dtype=tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def serve(self, x):
        bucket = tf.searchsorted(tf.constant([1.0, 3, 4, 7]), x, side=self.side)
        return {"y": tf.gather(self.rows, bucket) @ tf.linalg.diag([1.0, 2, 3])}


@pytest.mark.parametrize(
    ("make", "values"),
    [
        pytest.param(Sentences, ["w1 w2 w3", "w4", "other w1", "w9 w9", "w0 w1 w2 w3 w4"], id="words"),
        pytest.param(lambda: Buckets("left"), [-1.0, 1, 2, 3, 8], id="lower bound"),
        pytest.param(lambda: Buckets("right"), [-1.0, 1, 2, 3, 8], id="upper bound", marks=pytest.mark.nightly),
    ],
)
def test_tensors_without_a_row_per_record_are_in_the_preprocessing(make, values, tmp_path):
    module = make()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"serving_default": module.serve})
    x = np.array(values * 4, object if isinstance(values[0], str) else np.float32)
    write_examples(tmp_path / "examples" / "Split-train" / "data_tfrecord-00000-of-00001", {"x": x})
    export_onnx(tmp_path / "model", tmp_path / "out", examples=tmp_path / "examples")
    assert Model(tmp_path / "out").preprocessing is not None
    with runtimes.load(Model(tmp_path / "out")) as child:
        np.testing.assert_allclose(child.run({"x": x})["y"], module.serve(tf.constant(x))["y"].numpy(), atol=1e-6)


@pytest.mark.nightly
def test_two_crossed_features_of_unknown_width_are_converted_and_served(tmp_path):
    import keras

    a, b = (keras.Input((1,), dtype="int64", name=name) for name in "ab")
    crossed = keras.layers.HashedCrossing(8)((a, b))
    flow = keras.layers.Flatten()(keras.layers.Embedding(8, 4, embeddings_initializer="normal")(crossed))
    keras.Model([a, b], keras.layers.Dense(3, "softmax")(flow)).export(tmp_path / "model", verbose=False)
    random = np.random.default_rng(0)
    rows = {name: random.integers(0, 9, 80) for name in "ab"} | {"label": random.integers(0, 3, 80)}
    for split in ("train", "eval"):
        write_examples(tmp_path / "examples" / f"Split-{split}" / "data_tfrecord-00000-of-00001", rows)
    both = {"model": tmp_path / "model", "examples": tmp_path / "examples"}
    export_onnx(**both, exported=tmp_path / "onnx")
    compared = {"baseline": tmp_path / "model", "candidates": [tmp_path / "onnx"], "examples": tmp_path / "examples"}
    evaluate(**compared, evaluation=tmp_path / "evaluation")
    parent, child = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["models"]
    assert not child.get("error")
    for name, facts in parent["metrics"].items():
        assert child["metrics"][name]["value"] == pytest.approx(facts["value"], abs=1e-6)
    served = {"model": tmp_path / "onnx", "examples": tmp_path / "examples", "layout": "plain"}
    validate_serving(**served, infra_blessing=tmp_path / "served")
    report = json.loads(next((tmp_path / "served").glob("*.json")).read_text())
    assert report["blessed"], report["reason"]
