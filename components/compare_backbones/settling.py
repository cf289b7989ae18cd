"""What stands in for learning in a model that is measured before it has learnt."""

import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfopt.components.compare_backbones.reading import Size
from tfopt.data.feature_schema import MANIFEST

RECORDS = 16  # of a split that is drawn


def settle(model: Any, images: NDArray[Any], seed: int) -> None:
    """Make the weights such as training leaves them: what costs something then must cost it now.

    Biases, scales and shifts are made as zeros and ones, which converters leave out; here they are drawn. The batch
    norms get the statistics of some images: with those they are made with, activations shrink from layer to layer, to
    nothing that an exporter's check could compare.
    """
    draw = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        value = np.array(weight)
        if value.min() == value.max():
            weight.assign(value + 0.1 * draw.standard_normal(value.shape))
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(images, training=True)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def draw_examples(folder: Path, image: str, stored: Size, seed: int) -> None:
    """Write examples of random pixels, from 0 to 255, for models to be shown where nobody has any."""
    draw, facts = np.random.default_rng(seed), {"dtype": "int64", "shape": list(stored)}
    for split in ("train", "eval"):
        (folder / f"Split-{split}").mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001")) as writer:
            for _ in range(RECORDS):
                pixels = tf.train.Int64List(value=draw.integers(0, 256, math.prod(stored)))
                features = tf.train.Features(feature={image: tf.train.Feature(int64_list=pixels)})
                writer.write(tf.train.Example(features=features).SerializeToString())
    counts = dict.fromkeys(("train", "eval"), RECORDS)
    (folder / MANIFEST).write_text(json.dumps({"features": {image: facts}, "splits": counts}))
