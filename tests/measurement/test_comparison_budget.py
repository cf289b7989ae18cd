"""Test that a comparison ends when its time or memory is spent, and compares everything otherwise."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.sample_inputs import split_batches
from tfopt.graph_checks.comparison import Comparison
from tfopt.measurement import comparison_budget
from tfopt.measurement.comparison_budget import ComparisonBudget
from tfopt.runtimes import Runtime

OPEN = {"x": TensorSpec("float32", (None, 2))}
FIXED = {"x": TensorSpec("float32", (4, 2))}
MEGABYTE = 1 << 20


@pytest.fixture
def machine(monkeypatch):
    """A clock and a peak memory that the test advances."""
    state = {"time": 0.0, "memory": 500 * MEGABYTE}
    monkeypatch.setattr(comparison_budget.time, "monotonic", lambda: state["time"])
    monkeypatch.setattr(comparison_budget, "peak_memory", lambda: state["memory"])
    return state


def run(machine, specs, *sizes, records=64, seconds=0.0, warm_up=0.0, megabytes=0.0):
    """Return the sizes of the yielded batches, and the budget; each record costs time, and memory while it runs."""
    budget = ComparisonBudget(specs, seconds=60, size=1000 * MEGABYTE)
    arrays = {"x": np.arange(2 * records, dtype=np.float32).reshape(records, 2)}
    yielded = []
    for batch in budget.within(split_batches(arrays, specs, *sizes)):
        yielded.append(batch["x"])
        machine["time"] += seconds * len(batch["x"]) + (warm_up if len(yielded) == 1 else 0)
        machine["memory"] = max(machine["memory"], 500 * MEGABYTE + int(megabytes * len(batch["x"]) * MEGABYTE))
    np.testing.assert_array_equal(np.concatenate(yielded), arrays["x"][: budget.records])
    return [len(batch) for batch in yielded], budget


def test_cheap_records_are_all_compared_in_the_batches_of_the_caller(machine):
    assert run(machine, OPEN, 1, 3, 32)[0] == [1, 3, 32, 28]
    assert run(machine, OPEN, 1, 8, 64, seconds=0.1)[1].limited == ""


def test_time_ends_the_comparison_before_a_batch_that_does_not_fit(machine):
    sizes, budget = run(machine, OPEN, 1, 8, 64, seconds=2.0)
    assert sum(sizes) == budget.records == 30 and machine["time"] == 60
    assert budget.limited == "only 30 of them, as a comparison is limited to 60 s and 1.05 GB"


def test_a_slow_first_call_does_not_leave_records_out(machine):
    sizes, budget = run(machine, OPEN, 1, 8, 64, seconds=0.1, warm_up=50.0)
    assert sum(sizes) == 64 and not budget.limited


def test_memory_shortens_batches_and_leaves_no_record_out(machine):
    sizes, budget = run(machine, OPEN, 1, 3, 32, megabytes=100)
    assert sum(sizes) == 64 and max(sizes) <= 10 and not budget.limited
    assert machine["memory"] <= 1500 * MEGABYTE


def test_memory_that_every_record_keeps_ends_the_comparison(machine):
    budget = ComparisonBudget(OPEN, size=100 * MEGABYTE)
    for batch in budget.within({"x": np.zeros((8, 2), np.float32)} for _ in range(100)):
        machine["memory"] += 5 * len(batch["x"]) * MEGABYTE
    assert 16 <= budget.records <= 32 and budget.limited


def test_a_fixed_batch_is_run_whole_or_not_at_all(machine):
    sizes, budget = run(machine, FIXED, 1, seconds=4.0)
    assert set(sizes) == {4} and budget.records == 12 and budget.limited


class Texts(Runtime):
    """A model that takes time on the clock of a machine for each text."""

    def __init__(self, machine, seconds):
        self.inputs = {"texts": TensorSpec("string", (None, None))}
        self.outputs = {"score": TensorSpec("float32", (None, 1))}
        self.machine, self.seconds, self.shapes = machine, seconds, []

    def call(self, arrays):
        self.shapes.append(arrays["texts"].shape)
        self.machine["time"] += self.seconds * arrays["texts"].size
        return {"score": np.array([[len(row[0])] for row in arrays["texts"]], np.float32)}


def compared(machine, seconds, keys=("serving_default",), examples=None):
    """Return the shapes of the inputs that are compared, without those of the measured records, and their source."""
    runtimes = {key: Texts(machine, seconds) for key in keys}
    source = Comparison(keys, runtimes.__getitem__, examples).source
    return {key: [shape for shape in one.shapes[2:]] for key, one in runtimes.items()}, source


def test_open_axes_of_texts_are_small_and_slow_records_are_fewer(machine):
    assert compared(machine, 0.0) == ({"serving_default": [(12, 2), (12, 2)]}, "random inputs")
    shapes, source = compared(machine, 0.25)
    assert shapes == {"serving_default": [(10, 2)]}
    assert source == "random inputs; only 10 of 24 records, as a run is limited to 5 s and 2.15 GB"


def test_open_axes_have_the_sizes_of_examples_in_every_signature(machine, tmp_path):
    write_examples(tmp_path / "Split-eval" / "a", {"texts": np.full((30, 5), b"word", object)})
    shapes, source = compared(machine, 0.0, ("other", "serving_default"), Examples(tmp_path))
    assert shapes == {key: [(12, 5), (12, 5)] for key in ("other", "serving_default")}
    assert source == "examples, split 'eval'"
