"""Test that environment variables and warm-up requests stay with a SavedModel when its graph is rewritten."""

from pathlib import Path

import numpy as np
import pytest

from tfopt import keras_models
from tfopt.artifacts import KerasModel, SavedModel
from tfopt.component import find
from tfopt.runtimes import environment
from tfopt.serving import warm_up

# As in tests/conftest.py: a model with other variables runs in a process that imports TensorFlow again.
VARIABLES = {environment.ONEDNN: "1"}
REQUESTS = b"recorded before"


@pytest.fixture(scope="module")
def parent(tmp_path_factory) -> Path:
    """Save a model with a batch norm to fold and an operation to cast, with environment variables and requests."""
    import keras

    folder = tmp_path_factory.mktemp("extras")
    model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3), keras.layers.BatchNormalization()])
    model.layers[-1].moving_mean.assign(np.array([0.5, -1.0, 2.0]))
    model.save(folder / "model.keras")
    keras_models.save(keras_models.load(KerasModel(folder / "model.keras")), folder / "model")
    environment.add_variables(folder / "model" / "Format-Serving", VARIABLES)
    (folder / "model" / "Format-Serving" / warm_up.FILE).write_bytes(REQUESTS)
    return folder / "model"


@pytest.mark.parametrize("form", ["keras", pytest.param("bare", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("component", "parameters"), [
    ("fold_batch_norm", {}), ("optimize_graph", {}), ("cast_precision", {}), ("compile_xla", {"warm_up": False}),
])  # fmt: skip
def test_components_copy_variables_and_warm_up_requests(parent, tmp_path, component, parameters, form):
    step = find(component)
    model = parent if form == "keras" else parent / "Format-Serving"
    child = SavedModel(step(model, **{next(iter(step.outputs)): tmp_path / "made"}, **parameters).popitem()[1].path)
    assert child.card.name != "model"  # the component rewrote it
    assert environment.read_variables(child) == VARIABLES
    assert (child.saved_model / warm_up.FILE).read_bytes() == REQUESTS


def test_new_requests_do_not_change_those_of_the_parent(parent, tmp_path):
    child = find("compile_xla")(parent, compiled=tmp_path / "made", batch_sizes=["2"])["compiled"]
    assert len(list(warm_up.read_requests(child.saved_model))) == 1
    assert (parent / "Format-Serving" / warm_up.FILE).read_bytes() == REQUESTS
