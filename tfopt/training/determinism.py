"""Reproducible training: seeds, layer names and deterministic ops, restored to their previous state afterwards."""

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config  # the public API cannot switch determinism off again


@contextlib.contextmanager
def reproducible(seed: int, *, deterministic: bool = True) -> Iterator[None]:
    """Seed every generator, restart the numbering of layer names, and make ops deterministic while the block runs.

    Without ``deterministic``, the order of summation is left to each op, which may be faster on a GPU.
    """
    was_deterministic = config.is_op_determinism_enabled()
    policies = {keras.__name__: keras.mixed_precision.global_policy() for keras in loaded_keras()}
    for keras in loaded_keras():
        keras.backend.clear_session()  # otherwise an output could be named dense_7 because of earlier models
    set_seeds(seed)
    if deterministic:
        config.enable_op_determinism()
    try:
        yield
    finally:
        if deterministic and not was_deterministic:
            config.disable_op_determinism()
        for keras in loaded_keras():
            keras.mixed_precision.set_global_policy(policies.get(keras.__name__, "float32"))


def set_seeds(seed: int) -> None:
    """Seed Python, numpy, TensorFlow and each imported Keras. Call it again after an import that may load a Keras."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    tf.random.set_seed(seed)
    for keras in loaded_keras():
        keras.utils.set_random_seed(seed % 2**32)


def loaded_keras() -> list[Any]:
    """Return the packages ``keras`` and ``tf_keras``, if they have been imported."""
    return [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
