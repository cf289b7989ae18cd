"""The same seed, the same weights: what is drawn, what is named, and how ops add up; put back as it was afterwards."""

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def reproducible(seed: int, *, deterministic: bool = True) -> Iterator[None]:
    """Seed every generator, count layer names from nothing, and make ops deterministic while the block runs.

    Args:
        seed: Of all generators.
        deterministic: False leaves the order of sums to each op, which may be faster on a GPU.
    """
    from tensorflow.python.framework import config  # only there can determinism be switched off again

    was_on = config.is_op_determinism_enabled()
    policies = {keras.__name__: keras.mixed_precision.global_policy() for keras in _loaded()}
    for keras in _loaded():
        keras.backend.clear_session()  # or an output would be called dense_7 because of what ran before
    set_seeds(seed)
    if deterministic:
        config.enable_op_determinism()
    try:
        yield
    finally:
        if deterministic and not was_on:
            config.disable_op_determinism()
        for keras in _loaded():
            keras.mixed_precision.set_global_policy(policies.get(keras.__name__, "float32"))


def set_seeds(seed: int) -> None:
    """Seed Python, numpy, TensorFlow and each Keras that is loaded; again after an import that may have loaded one."""
    import numpy as np
    import tensorflow as tf

    random.seed(seed)
    np.random.seed(seed % 2**32)
    tf.random.set_seed(seed)
    for keras in _loaded():
        keras.utils.set_random_seed(seed % 2**32)


def _loaded() -> list[Any]:
    return [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
