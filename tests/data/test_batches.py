"""Test reading of Examples as batches, and the errors for invalid data."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import parse_records, read_batches, sample_records, to_input
from tfopt.data.feature_schema import feature_specs
from tfopt.data.tfrecords import read_records
from tfopt.errors import ComponentError

IMAGE = {"image": TensorSpec("float32", (None, 2, 2, 1))}


def rows(start, stop):
    return {"image": np.arange(start * 4, stop * 4, dtype=np.float32).reshape(-1, 4), "id": np.arange(start, stop)}


@pytest.fixture
def shards(tmp_path):
    """Ten records in three shards: gzipped, empty, plain."""
    files = [tmp_path / name for name in ("a-00000-of-00003.gz", "a-00001-of-00003", "a-00002-of-00003")]
    for file, (start, stop) in zip(files, [(0, 6), (6, 6), (6, 10)], strict=True):
        write_examples(file, rows(start, stop))
    return files


def write_raw(file, *features):
    with tf.io.TFRecordWriter(str(file), "GZIP" if str(file).endswith(".gz") else "") as writer:
        for feature in features:
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return file


def floats(*values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def integers(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def test_batches_span_shards_and_only_the_last_is_smaller(shards):
    batches = list(read_batches(shards, IMAGE | {"id": TensorSpec("int64", (None, 1))}, batch_size=4))
    assert [len(batch["id"]) for batch in batches] == [4, 4, 2]
    assert np.concatenate([batch["id"] for batch in batches]).ravel().tolist() == list(range(10))
    assert batches[1]["image"].shape == (4, 2, 2, 1) and batches[1]["image"][0, 0, 1, 0] == 17
    assert batches[1]["image"].dtype == np.float32


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (TensorSpec("float32", (None,)), (10,)),
        (TensorSpec("int32", (None, 1)), (10, 1)),
        (TensorSpec("float16", (None, 1, 1)), (10, 1, 1)),
        (TensorSpec("uint8", (4, None)), (10, 1)),
    ],
)
def test_integers_are_converted_to_the_dtype_and_shape_of_the_signature(shards, spec, shape):
    array = next(read_batches(shards, {"id": spec}, batch_size=99))["id"]
    assert array.shape == shape and array.dtype == spec.dtype and array.ravel().tolist() == list(range(10))


def test_an_integer_that_does_not_fit_the_dtype_is_rejected():
    assert to_input(np.array([[0], [255]]), TensorSpec("uint8", (None, 1))).tolist() == [[0], [255]]
    with pytest.raises(ComponentError, match="values from 0 to 256"):
        to_input(np.array([[0], [256]]), TensorSpec("uint8", (None, 1)))


def test_a_scalar_input_gets_one_value_of_the_batch(shards):
    for batch in read_batches(shards, {"id": TensorSpec("int32", ()), "image": IMAGE["image"]}, batch_size=4):
        assert batch["id"].shape == () and batch["id"].dtype == np.int32
    assert to_input(np.array([[b"a"], [b"b"]], object), TensorSpec("string", ())).item() == b"a"


def test_text_and_bytes_are_returned_as_bytes(tmp_path):
    write_examples(
        tmp_path / "t.gz", {"text": np.array(["größe", "b"], object), "raw": np.array([b"\0\xff", b""], object)}
    )
    specs = {"text": TensorSpec("string", (None,)), "raw": TensorSpec("string", (None, 1))}
    batch = next(read_batches([tmp_path / "t.gz"], specs, batch_size=2))
    assert batch["text"].tolist() == ["größe".encode(), b"b"] and batch["raw"].tolist() == [[b"\0\xff"], [b""]]


def test_a_dynamic_size_is_taken_from_the_records(tmp_path):
    file = write_raw(tmp_path / "a", *({"x": floats(*range(6))} for _ in range(3)))
    batch = next(read_batches([file], {"x": TensorSpec("float32", (None, None, 2))}, batch_size=3))
    assert batch["x"].shape == (3, 3, 2)
    with pytest.raises(ComponentError, match="has 6 values"):
        next(read_batches([file], {"x": TensorSpec("float32", (None, None, 4))}, batch_size=3))


def test_paths_may_contain_spaces_and_non_ascii_letters(tmp_path):
    write_examples(tmp_path / "größe 1/Split-train/data_tfrecord-00000-of-00001.gz", rows(0, 3))
    files = Examples(tmp_path / "größe 1").split("train")
    assert len(next(read_batches(files, IMAGE, batch_size=8))["image"]) == 3


def test_a_missing_feature_error_names_the_feature_that_fits(shards):
    with pytest.raises(ComponentError) as error:
        next(read_batches(shards, {**IMAGE, "imagee": IMAGE["image"]}, batch_size=4))
    assert "no feature 'imagee'" in error.value.received and "--rename image=imagee" in error.value.fix


@pytest.mark.parametrize(
    ("spec", "received"),
    [
        (TensorSpec("int64", (None, 4)), "feature 'image' is float32"),
        (TensorSpec("string", (None, 4)), "feature 'image' is float32"),
        (TensorSpec("float32", (None, 5)), "feature 'image' has 4 values"),
    ],
)
def test_another_type_or_length_than_in_the_signature_is_rejected(shards, spec, received):
    with pytest.raises(ComponentError) as error:
        next(read_batches(shards, {"image": spec}, batch_size=4))
    assert received in error.value.received and str(spec) in error.value.expected


@pytest.mark.parametrize(
    ("bad", "received", "fix"),
    [
        ({}, "feature 'x' is missing", "fill in missing values"),
        ({"x": floats()}, "feature 'x' is missing", "fill in missing values"),
        ({"x": floats(1, 2, 3)}, "feature 'x' is float32[?,3]", "pad"),
        ({"x": integers(1, 2)}, "feature 'x' is int64[?,2]", "one type"),
    ],
)
def test_an_invalid_record_is_named_by_file_and_index(tmp_path, bad, received, fix):
    good = {"x": floats(1, 2)}
    files = [write_raw(tmp_path / "one.gz", good, good), write_raw(tmp_path / "two.gz", good, good, good, bad, good)]
    with pytest.raises(ComponentError) as error:
        list(read_batches(files, {"x": TensorSpec("float32", (None, 2))}, batch_size=2))
    assert error.value.received.startswith(f"{files[1]}, record 3: {received}") and fix in error.value.fix
    with pytest.raises(ComponentError, match="calibration, record 1"):
        records = list(read_records(files))
        parse_records([records[0], records[5]], {"x": TensorSpec("float32", (None, 2))}, where="calibration")


@pytest.mark.parametrize("name", ["a-00000-of-00003.gz", "a-00002-of-00003"])
@pytest.mark.parametrize("keep", [0.4, 0.95])
def test_a_truncated_file_is_named(shards, name, keep):
    file = next(file for file in shards if file.name == name)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ComponentError) as error:
        list(read_batches(shards, IMAGE, batch_size=4))
    assert name in error.value.received and "damaged" in error.value.received
    assert error.value.expected.startswith("a complete TFRecord file")


def test_no_truncation_of_a_gzip_file_is_silent(tmp_path):
    write_examples(tmp_path / "whole.gz", rows(0, 40))
    content, part = (tmp_path / "whole.gz").read_bytes(), tmp_path / "part.gz"
    silent = []
    for remaining in [
        5,
        12,
        30,
        *range(len(content) - 60, len(content) - 8),
    ]:  # some of these cuts fall between two records
        part.write_bytes(content[:remaining])
        try:
            silent.append(len(list(read_records([part]))))
        except ComponentError as error:
            assert "part.gz: damaged" in error.received
    assert set(silent) <= {40}
    part.write_bytes(content + content)  # several gzip members make one file
    assert len(list(read_records([part]))) == 80
    for files in ([part], [part, part]):
        assert sum(len(batch["image"]) for batch in read_batches(files, IMAGE, batch_size=9)) == 80 * len(files)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_ends_within_the_header_of_a_record_is_damaged(tmp_path, compressed):
    write_examples(tmp_path / "whole", rows(0, 40))
    content = (tmp_path / "whole").read_bytes()
    size = len(content) // 40
    part = tmp_path / ("part.gz" if compressed else "part")
    for remaining in (1, 5, 11):  # of the 12 bytes of the header of record 25
        cut = content[: 25 * size + remaining]
        part.write_bytes(gzip.compress(cut) if compressed else cut)
        for read in (lambda: list(read_records([part])), lambda: list(read_batches([part], IMAGE, batch_size=9))):
            with pytest.raises(ComponentError, match=rf"{part.name}: damaged .*{25 * size} of {len(cut)} bytes"):
                read()
    part.write_bytes(gzip.compress(content[: 25 * size]) if compressed else content[: 25 * size])
    assert len(list(read_records([part]))) == 25


def test_other_files_than_tfrecords_are_rejected(tmp_path):
    (tmp_path / "text.tfrecord").write_text("hello, I am not a TFRecord file at all\n" * 20)
    plain = tmp_path / "plain"
    write_examples(plain, rows(0, 4))
    (tmp_path / "packed").write_bytes(gzip.compress(plain.read_bytes()))
    for name in ("text.tfrecord", "packed", "absent"):
        with pytest.raises(ComponentError, match=name) as error:
            next(read_batches([tmp_path / name], IMAGE, batch_size=4))
        assert ".gz" in error.value.expected


def test_records_other_than_examples_are_rejected(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as writer:
        writer.write(b"\xff\xfe not a tf.Example")
    with pytest.raises(ComponentError, match=r"not a tf\.Example"):
        next(read_batches([tmp_path / "a"], IMAGE, batch_size=4))


def test_files_without_records_are_rejected(tmp_path):
    write_examples(tmp_path / "a.gz", rows(0, 0))
    (tmp_path / "b.gz").touch()
    for files in ([tmp_path / "a.gz"], [tmp_path / "b.gz"], []):
        with pytest.raises(ComponentError, match="no records"):
            next(read_batches(files, IMAGE, batch_size=4))


def test_a_feature_without_values_is_not_stored():
    example = tf.train.Example(features=tf.train.Features(feature={"a": floats(1, 2), "b": floats(), "c": integers(1)}))
    batches = feature_specs(example.SerializeToString())
    assert batches == {"a": TensorSpec("float32", (None, 2)), "c": TensorSpec("int64", (None, 1))}


def test_a_sample_is_uniform_and_reproducible(shards):
    every = list(read_records(shards))
    assert sample_records(shards, count=10, seed=0) == sample_records(shards, count=99, seed=1) == every
    assert sample_records(shards, count=4, seed=7) == sample_records(shards, count=4, seed=7)
    counts = dict.fromkeys(every, 0)
    for seed in range(60):
        drawn = sample_records(shards[:1], count=2, seed=seed)
        assert len(set(drawn)) == 2
        for record in drawn:
            counts[record] += 1
    assert all(8 <= counts[record] <= 34 for record in every[:6])  # 60 * 2 / 6 = 20 each


def test_a_sample_parses_as_a_batch(shards):
    batch = parse_records(sample_records(shards, count=3, seed=0), IMAGE)
    assert batch["image"].shape == (3, 2, 2, 1)
