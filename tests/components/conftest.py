"""Fixtures that several test files of components share because they are slow to make."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.components.pushes import Push
from tests.components.workloads import tflite


@pytest.fixture(scope="session")
def exported_digits(digits_model, digits_examples, tmp_path_factory) -> Callable[..., tuple[Path, dict]]:
    """Return a function that exports the digits model, once for each precision and options: folder and metadata."""
    made: dict[str, tuple[Path, dict]] = {}

    def once(exporter, precision: str = "float32", **options) -> tuple[Path, dict]:
        key = json.dumps([exporter.format, precision, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp("exported") / "out"
            made[key] = folder, exporter.export(digits_model, digits_examples, folder, precision, **options)
        return made[key]

    return once


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> dict[str, Path]:
    """LiteRT files with more and less of the same work, and some unusual ones."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)

    def dense(width):
        inner, outer = (tf.constant(rng.normal(size=size), tf.float32) for size in ((64, width), (width, 8)))
        return lambda x: {"y": tf.nn.relu(x @ inner) @ outer}

    def both(left, right):
        return {"sum": left + right, "product": left * right}

    free, fixed = tf.TensorSpec([None, 64], name="x"), tf.TensorSpec([2, 64], name="x")
    left, right = (tf.TensorSpec([None, 3], name=name) for name in ("left", "right"))
    return {
        "small": tflite(folder / "small.tflite", dense(512), free),
        "middle": tflite(folder / "middle.tflite", dense(2048), free),
        "large": tflite(folder / "large.tflite", dense(8192), free),
        "fixed": tflite(folder / "fixed.tflite", dense(64), fixed),
        "nan": tflite(folder / "nan.tflite", lambda x: {"y": tf.math.log(x - 2.0)}, free),
        "pair": tflite(folder / "pair.tflite", both, left, right),
    }


@pytest.fixture
def push(tmp_path) -> Push:
    return Push(tmp_path)
