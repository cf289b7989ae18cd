"""Write examples for the measurements: images of noisy waves, labelled by one of ten directions.

python tools/gpu/waves.py FOLDER --size 224 --train 512 --eval 128
"""

import argparse
from pathlib import Path

import numpy as np
import tensorflow as tf

CLASSES = 10


def main() -> None:
    """Write ``Split-train`` and ``Split-eval`` below the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--train", type=int, default=512)
    parser.add_argument("--eval", type=int, default=128)
    options = parser.parse_args()
    for seed, (split, count) in enumerate((("train", options.train), ("eval", options.eval))):
        folder = options.folder / f"Split-{split}"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "data-00000-of-00001.tfrecord", options.size, count, seed)


def write(file: Path, size: int, count: int, seed: int) -> None:
    """Write records with ``image``, floats from 0 to 255, and ``label``, the direction of the wave."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:size, 0:size].astype(np.float32)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for _ in range(count):
            label = int(random.integers(CLASSES))
            angle = np.pi * label / CLASSES
            wave = np.sin((np.cos(angle) * x + np.sin(angle) * y) * 0.35 + random.uniform(0, 2 * np.pi))
            image = 127 + 70 * wave[..., None] * random.uniform(0.5, 1, 3) + random.normal(0, 30, (size, size, 3))
            floats = tf.train.FloatList(value=np.clip(image, 0, 255).astype(np.float32).ravel())
            features = {
                "image": tf.train.Feature(float_list=floats),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


if __name__ == "__main__":
    main()
