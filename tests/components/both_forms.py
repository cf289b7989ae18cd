"""Run both forms of a Keras model, in a process that has imported nothing else of tfopt."""

import sys

import numpy as np


def outputs_of_both_forms(path: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the outputs ``digit`` of the Keras form and of the SavedModel, and the imported modules."""
    from tfopt import runtimes
    from tfopt.artifacts import KerasModel
    from tfopt.runtimes import keras

    before, model = [*sys.modules], KerasModel(path)
    image = np.random.default_rng(0).uniform(0, 16, (5, 8, 8, 1)).astype("float32")
    with keras.load(model, signature="", threads=None) as form, runtimes.load(model) as served:
        answers = [loaded.run({"image": image})["digit"] for loaded in (form, served)]
    return *answers, before
