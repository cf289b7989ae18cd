"""Measure what fused batch norms save in training, on the GPU if there is one, as ratios of times of a step.

    python benchmarks/batch_norm.py [--rounds 12] [--precision mixed_bfloat16] [--models mnist MobileNetV2 ResNet50]

Two copies of each network, with the same weights, train on the same random batch: one as Keras 3 computes it, one
with `tfopt.training.compute.fused_batch_norm`. They take turns of a few steps, in alternating order. The ratio is the
median of the rounds with the 99 % interval of `benchmark`; `difference` is the relative difference of the losses of
the first turn, which rounding causes.
`mnist` is the network of docs/mnist; the others are Keras's own, without weights.
"""

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfopt.measurement.speedup import speedup
from tfopt.training.compute.fused_batch_norm import fuse_batch_norms

MNIST = Path(__file__).parent.parent / "docs" / "mnist" / "model.py"
SIZES = {"mnist": ((28, 28, 1), 64, 20)}  # shape of an image, batch size, steps of a turn
SIZE = ((128, 128, 3), 16, 2)  # of the other networks
GPU_SIZE = ((224, 224, 3), 128, 10)
CLASSES = 10


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--models", nargs="+", default=["mnist", "MobileNetV2", "ResNet50"])
    options = parser.parse_args()
    keras.mixed_precision.set_global_policy(options.precision)
    gpus = tf.config.list_physical_devices("GPU")
    device = tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else "CPU"
    print(f"{device}, {options.precision}")
    for name in options.models:
        print(_measure(name, options.rounds, bool(gpus)), flush=True)


def _measure(name: str, rounds: int, on_gpu: bool) -> str:
    """Return the line of a network."""
    shape, size, steps = SIZES.get(name, GPU_SIZE if on_gpu else SIZE)
    models = [_build(name, shape) for _ in range(2)]
    models[1].set_weights(models[0].get_weights())
    count = fuse_batch_norms(models[1])
    random = np.random.default_rng(0)
    images, labels = random.random((size, *shape), np.float32), random.integers(0, CLASSES, size)
    batches = tf.data.Dataset.from_tensors((tf.constant(images), tf.constant(labels))).repeat(steps)
    losses = [model.fit(batches, verbose=0).history["loss"][0] for model in models]  # traces
    seconds = np.empty((2, rounds))
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            models[which].fit(batches, verbose=0)
            seconds[which, turn] = (time.perf_counter() - start) / steps
    ratio = speedup(seconds[0], seconds[1], min_effect=0.02)
    milliseconds = " -> ".join(f"{np.median(row) * 1000:.1f}" for row in seconds)
    return (
        f"{name}: {count} batch norms, batch of {size}: {milliseconds} ms per step, {ratio.value:.2f}x "
        f"({ratio.low:.2f}x to {ratio.high:.2f}x), difference {abs(losses[1] / losses[0] - 1):.1g}"
    )


def _build(name: str, shape: tuple[int, ...]) -> Any:
    """Return a compiled network; the same weights' shapes and seed in each call."""
    keras.utils.set_random_seed(0)
    if name == "mnist":
        spec = importlib.util.spec_from_file_location("mnist_model", MNIST)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.build_model()
    model = getattr(keras.applications, name)(weights=None, input_shape=shape, classes=CLASSES)
    model.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy")
    return model


if __name__ == "__main__":
    main()
