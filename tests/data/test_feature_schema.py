"""Test feature schemas from the first record and from ``examples.json``."""

import json

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_batches
from tfopt.data.feature_schema import SparseSpec, read_manifest, stored_features
from tfopt.errors import ComponentError
from tfopt.reports.examples_manifest import ExamplesManifest

NUMBERS = {"dtype": "int64", "shape": [None], "missing": 1, "min": 1, "max": 3}
WORDS = {"dtype": "string", "shape": [None], "missing": 0, "distinct": 2, "distinct_is_exact": True}
ANY = {name: TensorSpec(name, (None, None)) for name in ("int64", "string", "float32")}


@pytest.mark.parametrize(
    ("facts", "column"),
    [
        (NUMBERS, ANY["int64"]),
        (NUMBERS | {"shape": [3]}, None),
        (WORDS, ANY["string"]),
        (WORDS | {"distinct": 0, "distinct_is_exact": False}, ANY["string"]),  # too long to be counted
        (WORDS | {"distinct": 0}, None),  # no values
        ({"dtype": "float32", "shape": [None], "missing": 9}, None),
        (
            {"dtype": "float32", "shape": [50], "sparse": {"positions": "at", "values": "weight"}},
            SparseSpec("float32", (None, 50), positions="at", values="weight"),
        ),
    ],
)
def test_the_manifest_adds_features_missing_in_the_first_record(tmp_path, facts, column):
    file = tmp_path / "Split-train" / "rows"
    write_examples(file, {"id": np.arange(3)})
    (tmp_path / "examples.json").write_text(json.dumps({"features": {"more": facts}}))
    expected = {"id": TensorSpec("int64", (None, 1))} | ({"more": column} if column else {})
    assert stored_features([file]) == expected


def test_the_manifest_may_be_next_to_the_files(tmp_path):
    file = tmp_path / "examples" / "rows"
    write_examples(file, {"id": np.arange(3)})
    (tmp_path / "examples.json").write_text(json.dumps({"features": {"above": NUMBERS}}))
    assert list(stored_features([file])) == ["id"]
    (tmp_path / "examples" / "examples.json").write_text(json.dumps({"features": {"beside": NUMBERS}}))
    assert list(stored_features([file])) == ["beside", "id"]
    (tmp_path / "examples" / "examples.json").write_text(json.dumps({"splits": {"train": 3}}))
    assert list(stored_features([file])) == ["id"]
    assert read_manifest(tmp_path / "nowhere") == ExamplesManifest()


def test_rows_of_varying_length_are_padded_at_the_end(tmp_path):
    file = tmp_path / "Split-train" / "rows"
    lengths = [[], [], [7], [1, 2, 3]]
    columns = {"id": np.arange(4), "words": [np.array([f"w{one}" for one in row], object) for row in lengths]}
    write_examples(file, columns | {"numbers": [np.array(row, int) for row in lengths]})
    features = {"numbers": NUMBERS, "words": WORDS}
    (tmp_path / "examples.json").write_text(json.dumps({"features": features}))
    specs = {"numbers": ANY["int64"], "words": ANY["string"]}
    first, second = read_batches([file], specs, batch_size=2)
    assert first["numbers"].tolist() == [[0], [0]]
    assert second["numbers"].tolist() == [[7, 0, 0], [1, 2, 3]]
    assert second["words"].tolist() == [[b"w7", b"", b""], [b"w1", b"w2", b"w3"]]


def test_an_invalid_record_is_named_after_records_of_varying_length(tmp_path):
    file = tmp_path / "Split-train" / "rows"
    lengths = [np.array([1]), np.array([], int), np.array([1, 2, 3]), np.array([4])]
    ids = [np.array([0]), np.array([1]), np.array([2]), np.array([3, 3])]
    write_examples(file, {"id": ids, "numbers": lengths})
    (tmp_path / "examples.json").write_text(json.dumps({"features": {"numbers": NUMBERS}}))
    specs = {"numbers": ANY["int64"], "id": TensorSpec("int64", (None, 1))}
    with pytest.raises(ComponentError, match=r"rows, record 3: feature 'id' is int64\[\?,2\]"):
        list(read_batches([file], specs, batch_size=2))
