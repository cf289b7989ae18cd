"""Test the common behavior of all runtimes: names, batch sizes, outputs, NaN, errors and threads.

Behavior of a single runtime is tested in a file of its own.
"""

import numpy as np
import pytest

from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError

ONES = np.ones((1, 2), np.float32)


@pytest.fixture(scope="module", params=formulas.CROSSED)
def model(request, tmp_path_factory) -> Model:
    return formulas.CROSSED[request.param](tmp_path_factory.mktemp("größe 1"))


def test_inputs_and_outputs_have_names_at_any_batch_size(model):
    runtime = runtimes.load(model)
    assert runtime.inputs == dict.fromkeys(["alpha", "zeta"], TensorSpec("float32", (None, 2)))
    assert runtime.outputs == dict.fromkeys(["a", "z"], TensorSpec("float32", (None, 2)))
    if model.format in ("onnx", "openvino"):  # the other formats store no order
        assert list(runtime.outputs) == ["z", "a"]
    for batch in (1, 5, 5, 1, 3):
        zeta = np.random.default_rng(batch).random((batch, 2), np.float32)
        alpha = zeta[::-1, ::-1] + 1
        answer = runtime.run({"alpha": alpha, "zeta": zeta})
        np.testing.assert_allclose(answer["z"], zeta - alpha, atol=1e-6)
        np.testing.assert_allclose(answer["a"], alpha * 2, atol=1e-6)


def test_inputs_may_be_non_contiguous(model):
    alpha = np.arange(8, dtype=np.float32).reshape(2, 4)[:, ::-2]
    assert runtimes.load(model).run({"zeta": alpha.T, "alpha": alpha})["a"].tolist() == (2 * alpha).tolist()


def test_the_next_call_does_not_change_outputs(model):
    runtime = runtimes.load(model)
    first = runtime.run({"alpha": ONES, "zeta": ONES})["a"]
    runtime.run({"alpha": ONES * 9, "zeta": ONES})
    assert first.tolist() == [[2, 2]]


@pytest.mark.parametrize(
    ("change", "received", "fix"),
    [
        ({"alpha": None, "alfa": ONES}, "no input 'alpha'", "did you mean alfa?"),
        ({"alpha": np.ones((1, 3), np.float32)}, "input 'alpha': float32[1,3]", "reshape"),
        ({"alpha": np.ones(2, np.float32)}, "input 'alpha': float32[2]", "reshape"),
        ({"alpha": np.ones((1, 2))}, "input 'alpha': float64[1,2]", "convert it to float32"),
        ({"qqq": ONES}, "input 'qqq'", "known: alpha, zeta"),
    ],
)
def test_wrong_names_dtypes_and_shapes_are_rejected_after_valid_calls(model, change, received, fix):
    runtime, good = runtimes.load(model), {"zeta": ONES, "alpha": ONES}
    runtime.run(good)
    with pytest.raises(ComponentError) as error:
        runtime.run({name: array for name, array in (good | change).items() if array is not None})
    assert error.value.received == received and fix in error.value.fix
    assert runtime.run(good)["a"].tolist() == [[2, 2]]


def test_nan_is_passed_through(model):
    arrays = {"zeta": np.array([[np.nan, 1]], np.float32), "alpha": ONES}
    np.testing.assert_array_equal(runtimes.load(model).run(arrays)["z"], [[np.nan, 0]])


@pytest.mark.parametrize("threads", [1, 2, None])
def test_the_number_of_threads_does_not_change_outputs(model, threads):
    if model.format == "saved_model" and threads:
        pytest.skip("TensorFlow has one thread count per process: tests/runtimes/test_saved_model.py")
    runtime = runtimes.load(model, threads=threads)
    assert runtime.run({"zeta": ONES, "alpha": ONES})["a"].tolist() == [[2, 2]]
