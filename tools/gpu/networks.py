"""Write networks with random weights and settled batch norms, each with examples labelled by its own outputs.

python tools/gpu/networks.py FOLDER efficientnet transformer convolutions --size 224
"""

import argparse
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

TOKENS, LENGTH, WIDTH, CLASSES = 1000, 128, 256, 10
SETTLING = 12  # batches by which the statistics of batch norms become those of the inputs


def main() -> None:
    """Write ``NAME.keras`` and the folder ``NAME-examples`` for each name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=("efficientnet", "transformer", "convolutions"))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--records", type=int, default=128)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        keras.utils.set_random_seed(0)
        network = transformer() if name == "transformer" else images(name, options.size)
        draw = np.random.default_rng(0)
        for _ in range(SETTLING):
            network(draw_inputs(network, draw, 16), training=True)
        network.save(options.folder / f"{name}.keras")
        for split in ("train", "eval"):
            folder = options.folder / f"{name}-examples" / f"Split-{split}"
            folder.mkdir(parents=True, exist_ok=True)
            write(folder / "data-00000-of-00001.tfrecord", network, draw_inputs(network, draw, options.records))


def images(name: str, size: int) -> Any:
    """Return EfficientNetB0, most of whose work is 1x1 convolutions, or a network of 3x3 convolutions only."""
    image = layers.Input((size, size, 3), name="input")
    if name == "efficientnet":
        flow = keras.applications.EfficientNetB0(weights=None, include_top=False, input_tensor=image).output
    else:
        flow = image
        for filters in (32, 64, 128, 256, 256):
            flow = layers.Conv2D(filters, 3, 2, padding="same", use_bias=False)(flow)
            flow = layers.ReLU()(layers.BatchNormalization(momentum=0.8)(flow))
            flow = layers.Conv2D(filters, 3, padding="same", activation="relu")(flow)
    flow = layers.GlobalAveragePooling2D()(flow)
    return keras.Model(image, layers.Dense(CLASSES, activation="softmax", name="class")(flow))


def transformer(blocks: int = 4, heads: int = 4) -> Any:
    """Return an encoder of text with a classifier."""
    tokens = layers.Input((LENGTH,), dtype="int32", name="input")
    flow = layers.Embedding(TOKENS, WIDTH)(tokens)
    for _ in range(blocks):
        normalized = layers.LayerNormalization()(flow)
        flow = flow + layers.MultiHeadAttention(heads, WIDTH // heads)(normalized, normalized)
        hidden = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(flow))
        flow = flow + layers.Dense(WIDTH)(hidden)
    flow = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(flow))
    return keras.Model(tokens, layers.Dense(CLASSES, activation="softmax", name="class")(flow))


def draw_inputs(network: Any, draw: np.random.Generator, records: int) -> Any:
    """Return random tokens or pixels."""
    shape = (records, *network.inputs[0].shape[1:])
    if network.inputs[0].dtype == "int32":
        return draw.integers(0, TOKENS, shape)
    return (draw.normal(size=shape) + draw.normal(size=(records, *[1] * (len(shape) - 1)))).astype(np.float32)


def write(file: Path, network: Any, inputs: Any) -> None:
    """Write records with ``input`` and ``label``."""
    labels = network.predict(inputs, batch_size=16, verbose=0).argmax(1)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for row, label in zip(inputs, labels, strict=True):
            is_text = np.issubdtype(row.dtype, np.integer)
            value = {"int64_list": tf.train.Int64List(value=row)} if is_text else {}
            value = value or {"float_list": tf.train.FloatList(value=row.ravel())}
            features = {
                "input": tf.train.Feature(**value),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


if __name__ == "__main__":
    main()
