"""Test a model whose input has another name than its feature, with all that meets examples, and bad shared sources."""

import json

import numpy as np
import pytest

from tests.components.train_modules import write
from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.components.benchmark.component import benchmark
from tfopt.components.evaluate.component import evaluate
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.components.train.component import train
from tfopt.components.validate_serving.component import validate_serving
from tfopt.dag import tracing
from tfopt.errors import ExamplesError
from tfopt.process_engine.runner import run

MODULE = """
import keras

def build_model():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, "softmax")])
    model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
    return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Examples with the features x, mask and label, and a Keras model with an input that Keras named."""
    import keras

    folder, random = tmp_path_factory.mktemp("single"), np.random.default_rng(0)
    x = random.normal(size=(300, 6)).astype(np.float32)
    np.savez(folder / "rows.npz", x=x, mask=(x > 0).astype(np.int64), label=x[:, :3].argmax(1))
    prepare_examples(data=folder / "rows.npz", examples=folder / "examples")
    keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, "softmax")]).save(folder / "model.keras")
    return folder


@pytest.mark.nightly  # daily: train
def test_every_component_feeds_the_only_feature_that_fits(folder, tmp_path, caplog):
    both = {"model": folder / "model.keras", "examples": folder / "examples"}
    with caplog.at_level("INFO", "tfopt"):
        export_tflite(**both, exported=tmp_path / "lite", precision="int8")
        compared = {"baseline": both["model"], "candidates": [tmp_path / "lite"], "examples": both["examples"]}
        evaluate(**compared, evaluation=tmp_path / "evaluation")
    assert "gets feature 'x', the only one that fits float32[?,6]" in caplog.text
    rows = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["models"]
    assert not any(row.get("error") for row in rows)
    benchmark(**compared, benchmark=tmp_path / "benchmark", seconds=0.2, batch_sizes=["1"])
    report = json.loads((tmp_path / "benchmark" / "benchmark.json").read_text())
    assert report["inputs"]["source"] == "examples"
    validate_serving(**both, infra_blessing=tmp_path / "served")
    served = json.loads(next((tmp_path / "served").glob("*.json")).read_text())
    assert served["blessed"]


def test_a_training_reads_the_feature_that_fits(folder, tmp_path):
    module = write(tmp_path / "m.py", MODULE)
    train(examples=folder / "examples", module=module, trained=tmp_path / "trained", epochs=12)
    with runtimes.load(Model(tmp_path / "trained")) as model:
        (name,) = model.inputs
        with np.load(folder / "rows.npz") as rows:
            (output,) = model.run({name: rows["x"]}).values()
            assert (output.argmax(1) == rows["label"]).mean() > 0.6  # a constant reaches 0.35


@pytest.mark.parametrize(
    "kind",
    ["damaged", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("no tf.Example", "other features"))],
)
def test_a_bad_source_is_one_error_and_no_failed_models(folder, tmp_path, kind):
    examples = tmp_path / "examples"
    for split in ("train", "eval"):
        file = examples / f"Split-{split}" / "data_tfrecord-00000-of-00001"
        write_examples(file, {"x": np.zeros((20, 5), np.float32), "label": np.zeros(20, np.int64)})
        if kind == "damaged":
            file.write_bytes(file.read_bytes()[:-4])
        elif kind == "no tf.Example":
            import tensorflow as tf

            with tf.io.TFRecordWriter(str(file)) as writer:
                writer.write(b"\xff\xffhello")
    dag, sources = tracing.load("optimize"), {"model": folder / "model.keras", "examples": examples}
    with pytest.raises(ExamplesError) as error:
        run(dag, {name: str(path) for name, path in sources.items()}, tmp_path / "run")
    assert "prepare_examples" in error.value.fix or kind == "other features"
    assert not list((tmp_path / "run" / "artifacts").glob("*/*/*/failure.json"))
