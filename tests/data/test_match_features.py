"""Test which feature feeds an input of another name, and the errors where none does."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import parse_records, read_batches
from tfopt.data.feature_schema import check_features, feature_specs, match_features
from tfopt.data.tfrecords import read_records
from tfopt.errors import ExamplesError

MATRIX, WHOLE = TensorSpec("float32", (None, 2, 3)), TensorSpec("int32", (None, None))
STORED = {
    "x": TensorSpec("float32", (None, 6)),
    "mask": TensorSpec("int64", (None, 6)),
    "label": TensorSpec("int64", (None, 1)),
    "image/encoded": TensorSpec("string", (None, 1)),
}


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({"input_layer": MATRIX}, {"input_layer": "x"}),  # of its own type; mask could feed it as well
        ({"tokens": WHOLE}, {"tokens": "mask"}),  # the label also has a length that fits
        ({"x": MATRIX}, {"x": None}),
        ({"input_layer": MATRIX, "mask": WHOLE}, {"input_layer": None, "mask": None}),
        ({"input_layer": TensorSpec("float32", (None, 7))}, {"input_layer": None}),
        ({"input_layer": TensorSpec("string", (None,))}, {"input_layer": "image/encoded"}),
    ],
)
def test_a_single_input_gets_the_only_feature_that_fits(specs, expected):
    assert {name: spec.feature for name, spec in match_features(specs, STORED, "label").items()} == expected


def test_two_features_that_fit_are_not_guessed():
    stored = STORED | {"other": STORED["x"]}
    matched = match_features({"input_layer": MATRIX}, stored, "label")
    with pytest.raises(ExamplesError, match="if it is x or other, run: tfopt prepare_examples --rename x=input_layer"):
        check_features(stored, matched, "here")


def test_the_label_of_the_manifest_feeds_no_input(tmp_path):
    values, label = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    file = tmp_path / "Split-train" / "data_tfrecord-00000-of-00001"
    write_examples(file, {"size": values, "price": label})
    (tmp_path / "examples.json").write_text('{"schema_version": 1, "label": "price"}')
    spec = {"keras_tensor": TensorSpec("float32", (None, 1))}
    assert next(read_batches([file], spec, batch_size=8))["keras_tensor"].ravel().tolist() == values.tolist()
    records = list(read_records([file]))
    assert parse_records(records, spec, files=[file])["keras_tensor"].ravel().tolist() == values.tolist()
    with pytest.raises(ExamplesError, match="if it is price or size"):  # without the manifest it could be either
        parse_records(records, spec)


@pytest.mark.parametrize(
    ("spec", "fix"),
    [
        (TensorSpec("float32", (None, 28, 28, 1)), "--pack image=28x28x1"),
        (TensorSpec("float32", (None, None, None, 3)), "--pack image=SIZExSIZEx3"),
    ],
)
def test_the_error_says_how_to_decode_images(spec, fix):
    for stored in (STORED, {"image": STORED["image/encoded"]}):
        with pytest.raises(ExamplesError, match="encoded images") as error:
            check_features(stored, {"image": spec}, "here")
        assert fix in error.value.fix


def test_the_error_says_how_to_join_columns():
    stored = {name: TensorSpec("float32", (None, 1)) for name in ("a", "b", "c", "label")}
    with pytest.raises(ExamplesError, match="--pack input_layer=3"):
        check_features(stored, {"input_layer": TensorSpec("float32", (None, 3))}, "here")


PAIR, SIZES, VECTOR = (TensorSpec("int64", shape) for shape in ((None, 2), (2,), (None,)))


@pytest.mark.parametrize(
    ("specs", "kind"),
    [
        ({"w": PAIR, "w_1": TensorSpec("float32", (None,)), "w_2": SIZES}, "w, w_1, w_2 are the parts of one sparse"),
        ({"shape": SIZES, "values": VECTOR, "at": PAIR}, "at, values, shape are the parts of one sparse"),
        ({"tokens": VECTOR, "tokens_1": VECTOR}, "tokens, tokens_1 are the parts of one ragged"),
    ],
)
def test_parts_of_sparse_and_ragged_tensors_are_named(specs, kind):
    with pytest.raises(ExamplesError, match=kind) as error:
        check_features(STORED, specs, "here")
    assert "pass the Keras file" in error.value.fix


@pytest.mark.parametrize(
    "specs",
    [
        {"x": PAIR, "x_1": TensorSpec("float32", (None,)), "x_2": SIZES},
        {"x": TensorSpec("string", (None,)), "x_1": VECTOR},
    ],
    ids=["sparse", "ragged"],
)
def test_parts_are_named_next_to_a_feature_with_the_name_of_the_whole(specs):
    with pytest.raises(ExamplesError, match=r"inputs x, x_1.* are the parts of one"):
        check_features({"x": TensorSpec("float32", (None, 6))}, specs, "here")


def test_names_of_records_are_checked_without_a_manifest(tmp_path):
    write_examples(tmp_path / "a.tfrecord", {"x": np.zeros((2, 6), np.float32)})
    (record, _) = read_records([tmp_path / "a.tfrecord"])
    assert match_features({"any": MATRIX}, feature_specs(record), "label")["any"].feature == "x"
