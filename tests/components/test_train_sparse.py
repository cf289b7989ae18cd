"""Test sparse features and features of variable length: trained without padding, and served with padded rows."""

import json
import shutil

import numpy as np
import pytest

from tests.components.exporters import ONNX, TFLITE
from tests.components.train_modules import write
from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.component import evaluate
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.components.profile_training.graph_scan import scan_graphs
from tfopt.components.prune.component import prune
from tfopt.components.train.component import train
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.training.determinism import reproducible
from tfopt.training.training_setup import prepare_training
from tfopt.training.user_module import UserModule

SIZE = 300  # positions; a record has values at one to four of them
SPARSE = ["words=at:weight:300"]

# Layers write the kinds of their inputs to a file, because they run in a traced graph.
MODULE = """
import keras
import tensorflow as tf
from keras import layers

@keras.saving.register_keras_serializable("tests")
class Seen(layers.Layer):
    def call(self, tensor):
        kinds = [kind for kind in (tf.SparseTensor, tf.RaggedTensor) if isinstance(tensor, kind)]
        with open(FILE, "a") as file:
            file.write(f"{self.name} {kinds[0].__name__ if kinds else 'Tensor'}\\n")
        return tensor

@keras.saving.register_keras_serializable("tests")
class Mean(layers.Layer):
    supports_masking = True
    def call(self, tensor, mask=None):
        if isinstance(tensor, tf.RaggedTensor):
            return tf.math.divide_no_nan(tf.reduce_sum(tensor, 1), tf.cast(tensor.row_lengths()[:, None], "float32"))
        return MEAN
    def compute_mask(self, inputs, mask=None):
        return None
    def compute_output_shape(self, shape):
        return shape[0], shape[-1]

def build_model():
    words = layers.Input((300,), sparse=True, name="words")
    tokens = layers.Input((None,), dtype="int64", ragged=True, name="tokens")
    mean = Mean()(layers.Embedding(20, 4, mask_zero=True)(Seen(name="tokens_seen")(tokens)))
    flow = layers.Concatenate()([layers.Dense(8, "relu")(Seen(name="words_seen")(words)), mean])
    model = keras.Model([words, tokens], layers.Dense(1, "sigmoid", name="more")(layers.Dense(16, "relu")(flow)))
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"])
    return model
"""
KERAS_2 = MODULE.replace("import keras", "import tf_keras as keras").replace("from keras", "from tf_keras")
MASKED = (
    "tf.math.divide_no_nan(tf.reduce_sum(tensor * (m := tf.expand_dims(tf.cast(mask, 'float32'), 2)), 1), "
    "tf.reduce_sum(m, 1))"
)
PREPROCESSED = """
import keras
from keras import layers

def preprocess(features):
    assert set(features) == {"words", "tokens"}
    assert features["words"].sparse and features["tokens"].ragged
    return {"words": features["words"], "tokens": features["tokens"]}
"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Examples with an ``examples.json`` that declares features as sparse or of variable length."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("records")
    rows = []
    for number in range(1203):
        at = random.choice(SIZE, random.integers(1, 5), replace=False)
        weight, length = random.random(len(at)), random.integers(0, 6)
        tokens = random.integers(1, 20, length if number < 1200 else 40)  # some blocks contain a long record
        more = 7 in tokens or weight[at < SIZE // 2].sum() > weight[at >= SIZE // 2].sum()
        rows.append({"at": at, "weight": weight.astype(np.float32), "tokens": tokens, "label": np.array([int(more)])})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    write_examples(folder / "rows.tfrecord", columns)
    prepare_examples(data=folder / "rows.tfrecord", examples=folder / "examples", sparse=SPARSE)
    return folder / "examples"


def module(folder, mean=MASKED, text=MODULE):
    return write(folder / "m.py", text.replace("MEAN", mean).replace("FILE", repr(str(folder / "kinds"))))


def test_the_manifest_declares_sparse_features_and_variable_lengths(examples):
    features = json.loads((examples / "examples.json").read_text())["features"]
    assert features["words"] == {
        **{"dtype": "float32", "shape": [SIZE], "missing": 0},
        "sparse": {"positions": "at", "values": "weight"},
    }
    assert features["tokens"]["shape"] == [None]


LIBRARIES = ["keras 3", "keras 2"]
# Exporters convert the SavedModel, whichever Keras wrote it; fine-tuning reads sparse rows as training does.
NIGHTLY_KERAS_2 = pytest.mark.parametrize(
    "trained", [PREPROCESSED + MODULE, pytest.param(KERAS_2, marks=pytest.mark.nightly)], ids=LIBRARIES, indirect=True
)


@pytest.fixture(
    scope="module", params=[PREPROCESSED + MODULE, pytest.param(KERAS_2, marks=pytest.mark.nightly)], ids=LIBRARIES
)
def trained(request, tmp_path_factory, examples):
    """A trained model, and the kinds of inputs of its layers; its module is in the same folder.

    The module of Keras 3 has a ``preprocess``, which asserts that it gets sparse and ragged features.
    """
    folder = tmp_path_factory.mktemp("trained")
    model = train(examples, module(folder, text=request.param), folder / "out", epochs=2)["trained"]
    return model, set((folder / "kinds").read_text().split("\n"))


def test_a_model_is_trained_on_sparse_and_ragged_rows(trained):
    model, kinds = trained
    assert {"words_seen SparseTensor", "tokens_seen RaggedTensor"} <= kinds
    assert model.metadata["metrics"]["val_accuracy"] > 0.6


@pytest.mark.parametrize("trained", [PREPROCESSED + MODULE], ids=["keras 3"], indirect=True)
def test_dense_inputs_are_padded_to_the_longest_row_of_a_batch(tmp_path, trained, examples):
    """Blocks of records are padded to different lengths; masked values have no effect."""
    text = module(tmp_path).read_text().replace(", ragged=True", "").replace("sparse=True, ", "")
    full = train(examples, write(tmp_path / "m.py", text), tmp_path / "full", epochs=2)["trained"]
    losses = [model.metadata["metrics"]["val_loss"] for model in (trained[0], full)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_padded_rows_are_served_and_evaluated(tmp_path, trained, examples):
    model, _ = trained
    correct = []
    with runtimes.load(KerasModel(model.path)) as served:
        assert served.inputs["words"] == TensorSpec("float32", (None, SIZE))
        assert served.inputs["tokens"] == TensorSpec("int64", (None, None))
        specs = {**served.inputs, "label": TensorSpec("int64", (None, 1))}
        for batch in read_batches(Examples(examples).split("eval"), specs, batch_size=100):
            outputs = served.run({name: batch[name] for name in served.inputs})["more"]
            correct += [*((outputs > 0.5) == batch["label"]).ravel()]
    assert np.mean(correct) == pytest.approx(model.metadata["metrics"]["val_accuracy"], abs=1e-6)
    evaluation = evaluate(model.path, [model.path], examples, tmp_path / "evaluation", split="eval")["evaluation"]
    assert evaluation.read()["models"][0]["metrics"]["accuracy"]["value"] == pytest.approx(np.mean(correct))


@NIGHTLY_KERAS_2
@pytest.mark.parametrize("exporter", [TFLITE, ONNX], ids=str)
def test_exported_files_have_the_same_outputs(tmp_path, trained, examples, exporter):
    facts = exporter.export(trained[0].path, examples, tmp_path / "out")
    assert facts["verified"]["records"] > 200
    assert facts["verified"]["outputs"]["more"]["relative_error"] < 1e-4


@NIGHTLY_KERAS_2
def test_an_int8_file_divides_by_zero_in_float(tmp_path, trained, examples):
    """The mean of a row without tokens divides by 0, which LiteRT's int8 kernel refuses."""
    facts = TFLITE.export(trained[0].path, examples, tmp_path / "out", "int8")
    assert facts["verified"]["outputs"]["more"]["relative_error"] < 0.2
    assert facts["float_part"]


@NIGHTLY_KERAS_2
def test_a_model_with_sparse_inputs_is_pruned_and_fine_tuned(tmp_path, trained, examples):
    parameters = {"sparsity": 0.5, "epochs": 1}
    pruned = prune(trained[0].path, tmp_path / "out", examples, trained[0].path.parent / "m.py", **parameters)["pruned"]
    assert pruned.metadata["report"]["sparsity"] == 0.5
    assert pruned.metadata["fine_tuned"]["after"]["val_accuracy"] > 0.6
    with runtimes.load(KerasModel(pruned.path)) as served:
        assert served.inputs["tokens"] == TensorSpec("int64", (None, None))


@pytest.mark.nightly  # daily with dense ones: test_profile_training_graph_scan.py
def test_loops_are_found_in_a_model_with_sparse_inputs(tmp_path, examples):
    looped = "layers.Lambda(lambda rows: tf.map_fn(lambda row: 2.0 * row, rows), output_shape=(4,))"
    text = (
        module(tmp_path)
        .read_text()
        .replace("mean = Mean()(", f"mean = {looped}(Mean()(")
        .replace("(tokens)))", "(tokens))))")
    )
    settings = {"label": "label", "seed": 0, "precision": "module", "jit_compile": "off"}
    with reproducible(0):
        setup = prepare_training(UserModule(write(tmp_path / "l.py", text)), Examples(examples), **settings)
        source = setup.read_sources()["train"]
        (loop,) = scan_graphs(setup.parts.model, source, source.first_batch(16), tmp_path / "l.py")
    assert (loop.kind, loop.where, loop.independent) == ("map_fn", "step", True)


def test_a_model_whose_outputs_depend_on_padding_is_refused_before_training(tmp_path, examples):
    with pytest.raises(ComponentError, match="'more' changes when rows of tokens are padded"):
        train(examples, module(tmp_path, "tf.reduce_mean(tensor, 1)"), tmp_path / "out", epochs=1)
    assert not (tmp_path / "out").exists()


def test_an_input_of_fixed_length_is_refused(tmp_path, examples):
    text = module(tmp_path).read_text().replace('(None,), dtype="int64", ragged=True', '(5,), dtype="int64"')
    with pytest.raises(ComponentError, match=r"(?s)'tokens' has a varying number of values.*keras.Input\(\(None"):
        train(examples, write(tmp_path / "m.py", text), tmp_path / "out", epochs=1)


@pytest.mark.parametrize("label", ["tokens", "words"])
def test_a_label_that_is_sparse_or_of_variable_length_is_refused(tmp_path, examples, label):
    with pytest.raises(ComponentError, match=f"label '{label}' is sparse, or has another number of values"):
        train(examples, module(tmp_path), tmp_path / "out", label=label)


def test_without_the_manifest_a_record_that_differs_from_the_first_is_named(tmp_path, examples):
    shutil.copytree(examples, tmp_path / "examples", ignore=shutil.ignore_patterns("examples.json"))
    text = module(tmp_path).read_text().replace("words,", "").replace("flow = layers.Con", "flow = mean  # ")
    with pytest.raises(ComponentError, match=r"(?s)record \d+: feature 'tokens' is .*prepare_examples, which records"):
        train(tmp_path / "examples", write(tmp_path / "m.py", text), tmp_path / "out", epochs=1)


REFUSED = {
    "words=at:weight": 'write sparse=\\["words=word_ids:counts:5000"\\]',
    "words=att:weight:300": "no feature 'att'.*did you mean at",
    "words=weight:at:300": "feature 'weight' is float32",
    "label=at:weight:300": "there is such a feature",
    "words=at:weight:100": "words: positions beyond 0 to 99",
    "words=at:tokens:300": r"words: \d positions and \d values",
}


@pytest.mark.parametrize(("sparse", "message"), REFUSED.items())
def test_prepare_examples_refuses_invalid_sparse_features(tmp_path, examples, sparse, message):
    with pytest.raises(ComponentError, match=f"(?s){message}"):
        prepare_examples(data=examples.parent / "rows.tfrecord", examples=tmp_path / "out", sparse=[sparse])
