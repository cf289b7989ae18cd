"""Test that models which look up numbers by integers are converted, and that words in files kill no converter."""

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import ONNX, OPENVINO, TFLITE, write_split
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.conversion.core_model import convert_model
from tfopt.errors import ComponentError
from tfopt.saved_models import numeric_tables, saved_model

GROUPS = np.array([7, 9, 8, 6, -1, 7], np.int64)


class Tables(tf.Module):
    """A table of floats and one of integers, both with defaults, next to a layer; and a vocabulary in a file."""

    def __init__(self, vocabulary=None):
        keys = tf.constant([7, 8, 9], tf.int64)
        initializer = tf.lookup.KeyValueTensorInitializer
        self.prior = tf.lookup.StaticHashTable(initializer(keys, tf.constant([0.5, -1.0, 2.0])), 0.25)
        self.renamed = tf.lookup.StaticHashTable(initializer(keys, tf.constant([70, 80, 90], tf.int64)), -1)
        self.kernel = tf.constant(np.random.default_rng(1).normal(size=(3, 4)), tf.float32)
        if vocabulary:
            lines = tf.lookup.TextFileIndex
            words = tf.lookup.TextFileInitializer(
                str(vocabulary), tf.string, lines.WHOLE_LINE, tf.int64, lines.LINE_NUMBER
            )
            self.words = tf.lookup.StaticHashTable(words, -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x"), tf.TensorSpec([None], tf.int64, "group")])
    def numbers(self, x, group):
        columns = tf.concat([x, self.prior.lookup(group)[:, None]], 1)
        return {"y": columns @ self.kernel, "renamed": self.renamed.lookup(group)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "word")])
    def texts(self, word):
        return {"row": tf.gather(tf.eye(3), tf.maximum(self.words.lookup(word), 0))}


@pytest.fixture
def model(tmp_path):
    """A model with both signatures; that of the numbers is not the default one."""
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("ant\nbee\ncat\n")
    module = Tables(vocabulary)
    signatures = {"numbers": module.numbers, "serving_default": module.texts}
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("exporter", "precision"),
    [
        *((TFLITE, "int8"), (ONNX, "int8"), (OPENVINO, "float32")),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in ((TFLITE, "float32"), (ONNX, "float32"), (OPENVINO, "int8"))
        ),
    ],
    ids=str,
)
def test_tables_of_numbers_are_converted(exporter, precision, tmp_path):
    module = Tables()
    module.texts = None
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.numbers)
    draw = np.random.default_rng(0)
    columns = {"x": draw.normal(size=(96, 2)).astype(np.float32), "group": draw.integers(6, 11, 96)}
    examples = write_split(tmp_path / "examples", columns)
    outputs = exporter.component(
        model=tmp_path / "model", examples=examples, exported=tmp_path / "out", precision=precision
    )
    with runtimes.load(Model(outputs["exported"].path)) as exported:
        results = exported.run({name: values[:32] for name, values in columns.items()})
    expected = module.numbers(columns["x"][:32], columns["group"][:32])
    assert results["renamed"].tolist() == expected["renamed"].numpy().tolist()
    assert np.abs(results["y"] - expected["y"].numpy()).max() < (1e-5 if precision == "float32" else 0.1)


def test_keys_that_are_missing_have_the_default(tmp_path, model):
    frozen = saved_model.read(model)
    signatures = {"serving_default": frozen.signatures["numbers"]}
    frozen.signatures = signatures
    replaced = numeric_tables.replace_numeric_tables(frozen)
    assert replaced.initializer is None and not replaced.assets
    assert not [node.name for node in replaced.graph.node if "Table" in node.op]
    saved_model.write(replaced, tmp_path / "replaced")
    with runtimes.load(Model(tmp_path / "replaced")) as runtime:
        results = runtime.run({"x": np.zeros((6, 2), np.float32), "group": GROUPS})
    assert results["renamed"].tolist() == [70, 90, 80, -1, -1, 70]
    assert np.allclose(results["y"], np.array([0.5, 2, -1, 0.25, 0.25, 0.5])[:, None] * Tables().kernel[2])


def test_tables_with_many_keys_and_tables_of_text_stay(monkeypatch, model):
    monkeypatch.setattr(numeric_tables, "MOST_KEYS", 2)
    frozen = saved_model.read(model)
    assert numeric_tables.has_numeric_tables(model)
    replaced = numeric_tables.replace_numeric_tables(frozen)
    finds = [sum(node.op == "LookupTableFindV2" for node in each.graph.node) for each in (frozen, replaced)]
    assert finds == [3, 3] and replaced.initializer and replaced.assets


class WideKeys(tf.Module):
    """A table with a key that OpenVINO on CPUs would truncate to 1."""

    def __init__(self) -> None:
        super().__init__()
        keys, values = tf.constant([2**33 + 1, 5], tf.int64), tf.constant([2, 1], tf.int64)
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "user")])
    def serve(self, user):
        return {"row": tf.gather(tf.eye(3), self.table.lookup(user))}


def test_a_table_with_keys_beyond_32_bits_runs_before_openvino(tmp_path):
    module = WideKeys()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    users = np.array([2**33 + 1, 5, 1, 7] * 4)
    examples = write_split(tmp_path / "examples", {"user": users})
    outputs = OPENVINO.component(model=tmp_path / "model", examples=examples, exported=tmp_path / "out")
    with runtimes.load(Model(outputs["exported"].path)) as exported:
        assert exported.run({"user": users[:4]})["row"].argmax(1).tolist() == [2, 1, 0, 0]


def test_a_vocabulary_in_a_file_is_refused_and_does_not_kill_the_converter(tmp_path, model):
    """A SavedModel that tfopt writes stores the file's name as TensorFlow 1 does."""
    frozen = saved_model.read(model)
    frozen.signatures.pop("numbers")
    saved_model.write(frozen, tmp_path / "written")
    with runtimes.load(Model(tmp_path / "written")) as runtime:
        assert runtime.run({"word": np.array([b"cat", b"dog"], object)})["row"].tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(ComponentError, match="whose content is in a file"):
        TFLITE.export(tmp_path / "written", None, tmp_path / "refused")
    outputs = TFLITE.component(model=tmp_path / "written", exported=tmp_path / "out")  # from where its numbers begin
    with runtimes.load(Model(outputs["exported"].path)) as exported:
        assert exported.run({"word": np.array([b"bee"], object)})["row"].tolist() == [[0, 1, 0]]


def test_a_model_with_words_and_numbers_is_converted_as_it_is(tmp_path):
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("ant\nbee\ncat\n")
    module = Tables(vocabulary)
    specs = [tf.TensorSpec([None], tf.string, "word"), *module.numbers.input_signature]
    serve = tf.function(
        lambda word, x, group: {"row": module.texts(word)["row"], "y": module.numbers(x, group)["y"]},
        input_signature=specs,
    )
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
    converted = []

    def convert(model, examples, target, parameters):
        converted.append(model.path)
        return {}

    (tmp_path / "out").mkdir()
    convert_model(convert, Model(tmp_path / "model"), None, tmp_path / "out", TFLITE.parameters())
    assert converted == [tmp_path / "model"]
