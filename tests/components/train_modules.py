"""User modules and the examples they learn, for the tests of `train`."""

from pathlib import Path

import numpy as np

from tests.conftest import write_examples

DIGITS = """
import keras
from keras import layers

def preprocess(features):
    return {"image": layers.Rescaling(1 / 16, name="scale")(features["image"])}

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.Conv2D(8, 3, padding="same", use_bias=False)(image)
    flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(flow))
    flow = layers.Dropout(0.1)(layers.Flatten()(layers.MaxPooling2D()(flow)))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow), name="digits")
    model.compile(RATE, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
""".replace("RATE", "keras.optimizers.Adam(0.005)")


# The layers of a training that have a state, in a model whose training function is traced in less time.
SMALL = """
import keras
from keras import layers

def preprocess(features):
    return {"image": layers.Rescaling(1 / 16, name="scale")(features["image"])}

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.BatchNormalization(momentum=0.9, name="norm")(layers.Flatten()(image))
    flow = layers.Dropout(0.1)(flow)
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow), name="digits")
    model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


# One layer, to fine-tune models without preprocessing.
DENSE = """
import keras

def build_model():
    image = keras.Input((8, 8, 1), name="image")
    model = keras.Model(image, keras.layers.Dense(10, activation="softmax")(keras.layers.Flatten()(image)))
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


# One layer, without preprocessing.
LINEAR = """
import keras
from keras import layers

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.Flatten()(layers.Rescaling(1 / 16)(image))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow))
    model.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


# Prints a line each time that TensorFlow traces a training step.
TRACED = """
@keras.saving.register_keras_serializable("tests")
class Traced(keras.Model):
    def train_step(self, data):
        print("traced a step")
        return super().train_step(data)
"""


FRUIT = """
import keras
from keras import layers

colours = layers.StringLookup(vocabulary=["green", "red"])

def preprocess(features):
    assert set(features) == {"size", "colour", "count", "noise"}
    size, count = features["size"] / 10.0, keras.ops.cast(features["count"], "float32")
    return {"numbers": layers.Concatenate()([size, count]), "colour_id": colours(features["colour"])}

def build_model():
    numbers = layers.Input((3,), name="numbers")
    colour = layers.Input((1,), name="colour_id", dtype="int64")
    both = layers.Concatenate()([numbers, layers.Flatten()(layers.Embedding(3, 2)(colour))])
    model = keras.Model([colour, numbers], layers.Dense(1, name="price")(layers.Dense(8, "relu")(both)))
    model.compile("adam", "mse", metrics=["mae"])
    return model
"""


TWO_BY_TWO = """
import keras
from keras import layers

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    mean = layers.Input((1,), name="mean")
    flow = layers.Concatenate()([layers.Rescaling(1 / 16)(layers.Flatten()(image)), mean])
    main = layers.Dense(10, activation="softmax", name="main")(layers.Dense(32, "relu")(flow))
    early = layers.Dense(10, activation="softmax", name="early")(flow)
    model = keras.Model(INPUTS, OUTPUTS)
    model.compile(keras.optimizers.Adam(0.01), loss=LOSS, loss_weights=WEIGHTS)
    return model
"""


def fruit(folder: Path) -> Path:
    """Made-up rows of every type, with a float label."""
    random = np.random.default_rng(0)
    for split, count in (("train", 120), ("eval", 40)):
        size, kind = random.random((count, 2)).astype(np.float32), random.integers(0, 2, count)
        columns = {
            "size": size,
            "colour": np.array(["green", "red"], object)[kind],
            "count": random.integers(1, 9, count),
            "noise": size[:, 0],
            "price": (size.sum(1) + kind).astype(np.float32),
        }
        write_examples(folder / "fruit" / f"Split-{split}" / "data_tfrecord-00000-of-00001", columns)
    return folder / "fruit"


def with_mean(folder: Path) -> Path:
    """Digits with a second feature, plain and gzipped shards mixed."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    columns = {"image": images, "mean": images.mean(1), "label": labels}
    for name, rows in (("train/a.gz", slice(0, 700)), ("train/b", slice(700, 1400)), ("eval/a.gz", slice(1400, 1797))):
        write_examples(folder / "two" / f"Split-{name}", {key: column[rows] for key, column in columns.items()})
    return folder / "two"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def divide_cpu(count: int) -> list[str]:
    """Divide the CPU of a process that has not used TensorFlow yet, and return the names of the virtual devices."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [device.name for device in tf.config.list_logical_devices("CPU")]


# A model whose third validation fails as long as a file is there, or its training as soon as it begins.
STOPS = """
import pathlib
class Stops(keras.Model):
    validations = 0
    def fit(self, *data, **more):
        if pathlib.Path(FILE).exists() and pathlib.Path(FILE).read_text() == "at the beginning":
            raise RuntimeError("stopped at the beginning")
        return super().fit(*data, **more)
    def evaluate(self, *data, **more):
        Stops.validations += 1
        if Stops.validations == 3 and pathlib.Path(FILE).exists():
            raise RuntimeError("stopped here")
        return super().evaluate(*data, **more)
"""
