"""Test that comparisons compute without TensorFloat-32, and restore the setting."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.loaded_models import predict
from tfopt.conversion.parameters import Calibration
from tfopt.conversion.verification import verify
from tfopt.execution import parity_check
from tfopt.graph_checks.comparison import Comparison
from tfopt.measurement.parity import without_tensor_float_32
from tfopt.runtimes import Runtime

is_enabled = tf.config.experimental.tensor_float_32_execution_enabled


class Recorder(Runtime):
    """A model that records in which mode it is run."""

    def __init__(self, modes: list[bool]) -> None:
        self.inputs = self.outputs = {"x": TensorSpec("float32", (None, 2))}
        self._modes = modes

    def call(self, arrays):
        self._modes.append(is_enabled())
        return {"x": np.asarray(arrays["x"])}


def test_the_setting_is_restored_also_after_an_error():
    assert is_enabled()
    with pytest.raises(ValueError, match="planted"), without_tensor_float_32():
        assert not is_enabled()
        raise ValueError("planted")
    assert is_enabled()


def test_threads_that_overlap_compute_in_float32_until_the_last_one_ends():
    first, second = without_tensor_float_32(), without_tensor_float_32()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not is_enabled()
    second.__exit__(None, None, None)
    assert is_enabled()


def test_a_process_without_tensorflow_does_not_import_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow")
    with without_tensor_float_32():
        assert "tensorflow" not in sys.modules


def test_parent_and_child_of_a_graph_comparison_run_in_float32():
    modes: list[bool] = []
    comparison = Comparison(["serving_default"], lambda _: Recorder(modes), None)
    recorded = len(modes)
    comparison.errors(lambda _: Recorder(modes))
    errors = len(modes)
    comparison.check(lambda _: Recorder(modes), 1e-4)
    assert 0 < recorded < errors < len(modes)
    assert modes == [False] * len(modes)
    assert is_enabled()


def test_a_step_is_compared_with_its_parent_in_float32(monkeypatch):
    modes: list[bool] = []
    monkeypatch.setattr("tfopt.runtimes.load", lambda *_: Recorder(modes))
    parity_check._measure_parity("parent", "child", None, "fix")
    assert modes and not any(modes)


def test_exporters_and_evaluate_run_models_in_float32():
    for run in (
        lambda model: verify(model, model, None, None, Calibration(), "float32"),
        lambda model: predict(model, {"x": np.zeros((3, 2), np.float32)}, "x"),
    ):
        modes: list[bool] = []
        run(Recorder(modes))
        assert modes and not any(modes) and is_enabled()
