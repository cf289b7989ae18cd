"""Test the parts of a split that is held out."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.training.datasets.dataset import Source


@pytest.mark.parametrize("count", [2, 10, 11])
def test_the_first_of_every_ten_records_is_held_out_and_the_counts_are_those_of_the_parts(count, tmp_path):
    write_examples(tmp_path / "file.gz", {"x": np.arange(count)})
    spec = {"x": TensorSpec("int64", (None, 1))}
    source = Source([tmp_path / "file.gz"], count, spec, spec, lambda inputs, parsed: (inputs["x"], parsed["x"]))
    parts = source.hold_out()
    values = [np.concatenate([batch.numpy() for batch, _ in part.in_order()]).ravel().tolist() for part in parts]
    assert values == [[number for number in range(count) if number % 10], list(range(0, count, 10))]
    assert [part.count for part in parts] == [len(value) for value in values]
