"""What a model's folder says to whoever serves it outlives every rewriting of its graph."""

from pathlib import Path

import numpy as np
import pytest

from tfopt.artifacts import KerasModel, SavedModel
from tfopt.component import find
from tfopt.keras_models import io as keras_models
from tfopt.runtimes import environment
from tfopt.serving import warm_up

VARIABLES = {"TFOPT_EXAMPLE": "1"}
REQUESTS = b"recorded before"


@pytest.fixture(scope="module")
def parent(tmp_path_factory) -> Path:
    """A model with a batch norm to fold and an operation to cast, in both forms, with variables and requests."""
    import keras

    folder = tmp_path_factory.mktemp("extras")
    model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3), keras.layers.BatchNormalization()])
    model.layers[-1].moving_mean.assign(np.array([0.5, -1.0, 2.0]))
    model.save(folder / "model.keras")
    keras_models.save(keras_models.load(KerasModel(folder / "model.keras")), folder / "model")
    environment.write(folder / "model" / "Format-Serving", VARIABLES)
    (folder / "model" / "Format-Serving" / warm_up.FILE).write_bytes(REQUESTS)
    return folder / "model"


@pytest.mark.parametrize("form", ["keras", "bare"])
@pytest.mark.parametrize(("component", "given"), [
    ("fold_batch_norm", {}), ("optimize_graph", {}), ("cast_precision", {}), ("compile_xla", {"warm_up": False}),
])  # fmt: skip
def test_variables_and_warm_up_requests_stay(parent, tmp_path, component, given, form):
    step = find(component)
    model = parent if form == "keras" else parent / "Format-Serving"
    made = SavedModel(step(model, **{next(iter(step.outputs)): tmp_path / "made"}, **given).popitem()[1].path)
    assert made.card["name"] != "model"  # it was not handed on as it is
    assert environment.read(made) == VARIABLES
    assert (made.saved_model / warm_up.FILE).read_bytes() == REQUESTS


def test_requests_written_anew_leave_those_of_the_parent_alone(parent, tmp_path):
    made = find("compile_xla")(parent, compiled=tmp_path / "made", batch_sizes=["2"])["compiled"]
    assert len(list(warm_up.read_requests(made.saved_model))) == 1
    assert (parent / "Format-Serving" / warm_up.FILE).read_bytes() == REQUESTS
