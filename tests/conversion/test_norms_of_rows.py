"""Test that layer normalizations of both Keras versions are converted as plain operations, exact in 8 and 16 bits."""

from importlib import import_module

import numpy as np
import pytest

from tests.components.exporters import TFLITE, run, write_split
from tests.lite_files import scales
from tfopt.artifacts import Examples, Model
from tfopt.components.export_tflite.export import export
from tfopt.conversion.core_model import convert_model
from tfopt.conversion.norms_of_rows import has_norms_of_rows, replace_norms_of_rows
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.saved_models import saved_model


@pytest.fixture(scope="module")
def inputs():
    """Records whose variances differ by a factor of 100."""
    draw = np.random.default_rng(0)
    values = draw.normal(size=(400, 6, 16)) * 10 ** draw.uniform(-1, 0, (400, 1, 1))
    return {"x": values.astype(np.float32)}


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def model(request, tmp_path_factory):
    keras = import_module(request.param)
    keras.utils.set_random_seed(1)
    layers, folder = keras.layers, tmp_path_factory.mktemp(request.param) / "model"
    flow = x = layers.Input((6, 16), name="x")
    for _ in range(2):
        flow = layers.LayerNormalization()(layers.Dense(16, use_bias=False)(flow))
        flow = layers.Add()([flow, layers.Dense(16, "relu")(flow)])
    built = keras.Model(x, layers.Dense(4, name="y")(layers.Flatten()(flow)))
    for weight in built.weights:
        if len(weight.shape) == 1:
            weight.assign(np.random.default_rng(2).normal(1, 0.4, weight.shape))
    built.export(str(folder), **({"verbose": False} if request.param == "keras" else {}))
    return request.param, folder


@pytest.fixture(scope="module")
def examples(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    rows = inputs["x"].reshape(len(inputs["x"]), -1)
    write_split(folder, {"x": rows[200:]}, "eval")
    return write_split(folder, {"x": rows[:200]})


def test_norms_of_rows_become_plain_operations_with_the_same_outputs(model, inputs):
    library, exported = model
    frozen = saved_model.read(exported)
    assert has_norms_of_rows(frozen.graph) == (library == "tf_keras")
    replaced = replace_norms_of_rows(frozen)
    assert not has_norms_of_rows(replaced.graph) and "FusedBatchNormV3" not in {node.op for node in replaced.graph.node}
    before, after = (FrozenRuntime(some, "serving_default").run(inputs) for some in (frozen, replaced))
    (name,) = before
    np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("keras", "int8"),
        pytest.param("keras", "int16x8", marks=pytest.mark.nightly),
        pytest.param("tf_keras", "int16x8", marks=pytest.mark.nightly),
        pytest.param("tf_keras", "int8", marks=pytest.mark.nightly),
    ],
    indirect=["model"],
)
def test_the_variance_stays_in_float(precision, model, inputs, examples, tmp_path):
    _, exported = model
    (tmp_path / "out").mkdir()
    parameters = TFLITE.parameters(precision=precision)
    convert_model(export, Model(exported), Examples(examples), tmp_path / "out", parameters)
    by_op = scales(tmp_path / "out/Format-Serving/tflite")
    assert not np.any(by_op["RSQRT"] + by_op["MEAN"] + by_op["SQUARED_DIFFERENCE"]) and "FILL" not in by_op
    assert all(by_op["FULLY_CONNECTED"])
    received, expected = (next(iter(run(some, inputs).values())) for some in map(Model, (tmp_path / "out", exported)))
    error = np.abs(received - expected)[200:].mean() / expected.std()
    assert error < {"int8": 0.05, "int16x8": 0.01}[precision]
