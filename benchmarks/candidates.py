"""Candidates of peers.py: models with random weights, and the files that peers and tfopt make of them.

Three backbones, a transformer, a text model with an LSTM, and a recommender with two inputs. The last two are written
by Keras 2 (`tf_keras`) as it saves any model: nothing in them was chosen for a law or an exporter of tfopt.
"""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from graph import export
from transformer import LENGTH, WORDS, export_transformer

MODELS = ("MobileNetV2", "ResNet50", "EfficientNetB0", "transformer", "LSTM", "two inputs")
WIDTH = 128  # of the transformer, and of the text model
CATEGORIES, NUMBERS = 26, 13  # categorical and numeric features of a record of the recommender
RECORDS = 32
# The parity of random weights on random data means nothing, so an int8 file with low parity is measured too.
EXPORT = {"calibration_count": RECORDS, "tolerance": 100.0}
EXPORTERS = ("export_tflite", "export_onnx", "export_openvino")


def write_model(name: str, folder: Path, side: int | None) -> None:
    """Write a backbone as graph.py does, or one of the small models below."""
    small = {"transformer": write_transformer, "LSTM": write_text_model, "two inputs": write_recommender}
    if name in small:
        small[name](folder)
    else:
        export(name, "keras", folder, side)


def write_text_model(folder: Path) -> None:
    """Write a classifier of texts, given as the numbers of words, with an LSTM."""
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(0)
    ids = layers.Input((LENGTH,), dtype="int32", name="ids")
    states = layers.LSTM(WIDTH, return_sequences=True)(layers.Embedding(WORDS, WIDTH)(ids))
    hidden = layers.Dense(WIDTH, "relu")(layers.LSTM(WIDTH)(states))
    tf_keras.Model(ids, layers.Dense(10, "softmax")(hidden)).save(str(folder), save_format="tf")


def write_recommender(folder: Path) -> None:
    """Write a "wide and deep" model: numeric features, and categorical ones with embeddings."""
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(0)
    numbers = layers.Input((NUMBERS,), name="numbers")
    ids = layers.Input((CATEGORIES,), dtype="int32", name="ids")
    embedded = layers.Flatten()(layers.Embedding(WORDS, 16)(ids))
    deep = layers.concatenate([layers.BatchNormalization()(numbers), embedded])
    for units in (512, 256, 128):
        deep = layers.Dropout(0.2)(layers.BatchNormalization()(layers.Dense(units, "relu")(deep)))
    wide = layers.Flatten()(layers.Embedding(WORDS, 1)(ids))
    probability = layers.Dense(1, "sigmoid")(layers.concatenate([wide, deep]))
    tf_keras.Model([numbers, ids], probability).save(str(folder), save_format="tf")


def write_transformer(folder: Path) -> None:
    """Write a small transformer encoder for classification."""
    export_transformer(folder, WIDTH, masked=False, approximate=True, random_biases=False)


def write_examples(model: Path, folder: Path) -> None:
    """Write random records that fit a model's inputs, the same for both splits."""
    import tensorflow as tf

    from tfopt import runtimes
    from tfopt.artifacts import SavedModel

    with runtimes.load(SavedModel(model)) as plain:
        specs = dict(plain.inputs)
    draw = np.random.default_rng(0)
    for split in ("train", "eval"):
        file = folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"
        file.parent.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(file), "GZIP") as writer:
            for _ in range(RECORDS):
                features = tf.train.Features(feature={name: draw_feature(draw, spec) for name, spec in specs.items()})
                writer.write(tf.train.Example(features=features).SerializeToString())


def draw_feature(draw: np.random.Generator, spec: Any) -> Any:
    """Return random numbers of words, or values between 0 and 1, for an input."""
    import tensorflow as tf

    size = math.prod(size or 1 for size in spec.shape[1:])
    if spec.dtype == "int32":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=draw.integers(0, WORDS, size)))
    return tf.train.Feature(float_list=tf.train.FloatList(value=draw.random(size, np.float32)))


def convert_with_peers(folder: Path) -> dict[str, Path]:
    """Convert the SavedModel with each peer's defaults; print the error of one that fails, and leave it out."""
    import tensorflow as tf

    from tfopt import runtimes
    from tfopt.artifacts import Examples, SavedModel
    from tfopt.data.batches import read_batches
    from tfopt.runtimes.openvino_import import openvino, without_telemetry

    with without_telemetry():
        import nncf

    plain = folder / "plain"

    def convert_tflite(file: Path) -> None:
        file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(plain)).convert())

    def convert_onnx(file: Path) -> None:
        arguments = ["-m", "tf2onnx.convert", "--saved-model", str(plain), "--output", str(file)]
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    def convert_openvino(file: Path) -> None:
        openvino.save_model(openvino.convert_model(plain), file)

    def quantize_openvino(file: Path) -> None:
        with runtimes.load(SavedModel(plain)) as baseline:
            feed = list(read_batches(Examples(folder / "examples").split("train"), baseline.inputs, batch_size=1))
        openvino.save_model(nncf.quantize(openvino.convert_model(plain), nncf.Dataset(feed)), file)

    converters: dict[str, tuple[Callable[[Path], None], str]] = {
        "tf.lite": (convert_tflite, "lite.tflite"),
        "onnxruntime": (convert_onnx, "onnx.onnx"),
        "openvino": (convert_openvino, "vino.xml"),
        "openvino + nncf": (quantize_openvino, "nncf.xml"),
    }
    converted = {}
    for name, (convert, file) in converters.items():
        try:
            convert(folder / file)
            converted[name] = folder / file
        except Exception as error:  # their exceptions share no base
            print(f"  {name} fails: {str(error).splitlines()[0][:120]}", flush=True)
    return converted


def make_tfopt_candidates(folder: Path) -> dict[str, Path]:
    """Make the candidates of `pipelines/optimize.py`, by name."""
    from tfopt.component import find
    from tfopt.pipelines.optimize import CANDIDATES, make_candidates

    class ImmediateSteps:
        """Steps that run at once instead of being traced."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            component = find(name)
            (output,) = component.outputs

            def run(id: str = name, **arguments: Any) -> SimpleNamespace:
                options = EXPORT if name in EXPORTERS else {}
                return SimpleNamespace(outputs=component(**arguments, **options, **{output: folder / id}))

            return run

    steps: Any = ImmediateSteps()
    models: list[Any] = make_candidates(steps, folder / "plain", folder / "examples", CANDIDATES)
    return {name: artifact.path for name, artifact in zip(CANDIDATES, models, strict=True)}
