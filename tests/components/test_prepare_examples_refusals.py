"""Test that `prepare_examples` refuses unusable data in three parts and leaves no files."""

import gzip
import importlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import tests.object_store  # noqa: F401  (registers the file system with Beam)
from tfopt.artifacts import Examples
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.errors import ComponentError

GOOD = "x,y,label\n" + "".join(f"{n},{n / 2},{n % 3}\n" for n in range(100))
WORDS = "x,name,label\n" + "".join(f"{n},n{n},{n % 3}\n" for n in range(100))
MIXED = "x,label\n" + "".join(f"{n},{n if n % 2 else 'odd'}\n" for n in range(100))


def refusal(data, folder, **parameters) -> ComponentError:
    """Return the error, after checking that no files are left."""
    with pytest.raises(ComponentError) as caught:
        prepare_examples(data=data, examples=folder / "out", **parameters)
    assert not list(folder.glob("*out*"))
    assert all((caught.value.received, caught.value.expected, caught.value.fix))
    return caught.value


@pytest.mark.parametrize(
    ("text", "parameters", "received", "fix"),
    [
        ("", {}, "empty", "content"),
        ("\n\n", {}, "empty", "content"),
        ("x,y,label\n", {}, "a header and no rows", 'header="no"'),
        ("x,y,label\n", {"header": "yes"}, "a header and no rows", "content"),
        (GOOD, {"label": "labell"}, "no column 'labell'", "did you mean label?"),
        ("digit,0,1\n5,2,3\n", {}, "words where the second line has numbers", 'header="no"'),
        ('"a"b,label\n5,2\n', {}, "line 1: ',' expected", "fix that line"),
        ("a;b;label\n1;2;3\n", {}, "no column 'label'", "commas"),
        ("label\n1\n2\n", {}, "only the label", "commas"),
        ("x,x,label\n1,2,3\n", {}, "named twice: x", "rename"),
        ("x,,label\n1,2,3\n", {}, "no name for column 2", "rename"),
        (MIXED, {}, "50 numbers and 50 words (first 'odd' in data.csv line 2)", "fix the label"),
        (GOOD, {"pack": "image=2x2x1"}, "4 values", "product"),
        (GOOD, {"pack": "label=2"}, "the label is 'label' too", "another name"),
        (GOOD, {"pack": "image:2"}, "pack='image:2'", 'pack="image=28x28x1"'),
        (GOOD, {"pack": "image=2x0"}, "pack=", 'pack="image=28x28x1"'),
        (WORDS, {"pack": "image=2"}, "column 'name' holds words (first 'n0' in data.csv line 2)", "leave pack out"),
        (GOOD, {"splits": ["train"]}, "splits=['train']", '["train:8", "eval:2"]'),
        (GOOD, {"splits": ["train:0"]}, "splits=", '["train:8", "eval:2"]'),
        (GOOD, {"splits": ["a:1", "a:2"]}, "splits=", '["train:8", "eval:2"]'),
        (GOOD, {"splits": ["../a:1"]}, "splits=", '["train:8", "eval:2"]'),
        (GOOD, {"splits": []}, "splits=[]", '["train:8", "eval:2"]'),
        (GOOD, {"splits": ["a:1", "b:1", "huge:100000"]}, "split a, b", "more rows"),
        (GOOD.replace("7,3.5,1", "7,inf,1") + "1,2\n3,4,5,6\n", {}, "unusable (2.0%)", "max_rejected=0.02"),
        (GOOD + f"{'9' * 5000},8,1\n" * 2, {}, "'99999", "max_rejected"),
        (GOOD + f"{'0' * 5000}7,8,{'0' * 5000}1\n" * 2, {}, "'00000", "max_rejected"),
        (GOOD + f"{'x' * 200_000},8,1\n", {}, "or a cell has more than 131072 characters", "close the quote"),
        (GOOD + '7,"8,9\n', {}, "line 102: a quote is opened and never closed", "close the quote"),
        (GOOD + "none,1,2\n" * 9, {}, "9 of 109 rows unusable (8.3%)", "max_rejected=0.083"),
        (GOOD + "1,2,none\n" * 9, {}, "line 102: label: 'none' is no int64", "max_rejected=0.083"),
        ("x,label\n" + "inf,1\n" * 3, {}, "line 2: x: 'inf' is no finite float32", "fix"),
        ("x,label\n" + "1,\n" * 3, {}, "no label", "fix"),
        (GOOD, {"format": "npz"}, "not a zip file", "savez"),
        (GOOD, {"format": "tfrecord"}, "record 1 is damaged", "again"),
    ],
)  # fmt: skip
def test_an_unusable_csv_is_refused_with_a_fix(tmp_path, text, parameters, received, fix):
    (tmp_path / "data.csv").write_text(text)
    error = refusal(tmp_path / "data.csv", tmp_path, **parameters)
    assert received in error.received
    assert fix in error.fix


def test_rows_beyond_the_limit_are_refused_with_file_and_line(tmp_path):
    (tmp_path / "größe data").mkdir()
    (tmp_path / "größe data" / "ä b.csv").write_text(GOOD + "1,2\n" + "3,word,1\n")
    error = refusal(tmp_path / "größe data", tmp_path)
    assert "ä b.csv line 102: 2 columns instead of 3" in error.received
    assert "ä b.csv line 103: y: 'word' is no float32" in error.received
    assert error.expected == "at most 1.0% (max_rejected=0.01)"
    prepare_examples(data=tmp_path / "größe data", examples=tmp_path / "out", max_rejected=0.02)


def test_bytes_that_are_not_utf8_are_rejected(tmp_path):
    (tmp_path / "data.csv").write_bytes(GOOD.encode() + b"1,\xff\xfe,2\n")
    error = refusal(tmp_path / "data.csv", tmp_path, max_rejected=0.0)
    assert "line 102: not UTF-8" in error.received


def test_a_missing_file_and_folders_without_a_single_format_are_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "nothing.csv", tmp_path).received
    (tmp_path / "folder").mkdir()
    assert "empty" in refusal(tmp_path / "folder", tmp_path).received
    (tmp_path / "folder" / "notes.txt").write_text("hello")
    assert "no format known for notes.txt" in refusal(tmp_path / "folder", tmp_path).received
    (tmp_path / "folder" / "a.csv").write_text(GOOD)
    (tmp_path / "folder" / "a.npz").write_text("")
    error = refusal(tmp_path / "folder", tmp_path)
    assert "csv, npz" in error.received
    assert "format='csv'" in error.fix
    prepare_examples(data=tmp_path / "folder", examples=tmp_path / "out", format="csv")


def test_files_with_different_columns_are_refused_by_name(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.csv").write_text(GOOD)
    (tmp_path / "data" / "2.csv").write_text("y,x,label\n1,2,3\n")
    error = refusal(tmp_path / "data", tmp_path)
    assert "2.csv: the header y,x,label" in error.received
    assert "x,y,label" in error.expected


@pytest.mark.parametrize("size", [10, 400, -4])
def test_a_truncated_gzip_is_refused(tmp_path, size):
    whole = gzip.compress((GOOD + "".join(f"{n},{n},1\n" for n in np.random.default_rng(0).normal(size=999))).encode())
    (tmp_path / "data.csv.gz").write_bytes(whole[:size])
    error = refusal(tmp_path / "data.csv.gz", tmp_path)
    assert "data.csv.gz" in error.received
    assert error.fix == "copy or write it again"


def test_a_gz_file_that_is_not_gzip_is_refused(tmp_path):
    (tmp_path / "data.csv.gz").write_text(GOOD)
    assert "Not a gzipped file" in refusal(tmp_path / "data.csv.gz", tmp_path).received


@pytest.mark.parametrize("kind", ["", "GZIP"])
def test_a_truncated_or_foreign_tfrecord_is_refused(tmp_path, kind):
    file = tmp_path / ("a.tfrecord.gz" if kind else "a.tfrecord")
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    example = tf.train.Example(features=tf.train.Features(feature={"label": feature, "x": feature}))
    with tf.io.TFRecordWriter(str(file), kind) as writer:
        for _ in range(3):
            writer.write(example.SerializeToString())
    assert "no feature 'labels'" in refusal(file, tmp_path, label="labels").received
    whole = file.read_bytes()
    file.write_bytes(whole[:-6])
    assert file.name in refusal(file, tmp_path).received
    file.write_bytes(b"")
    assert "no records" in refusal(file, tmp_path).received
    with tf.io.TFRecordWriter(str(file), kind) as writer:
        writer.write(b"\xff\xff no example")
    assert "not a tf.Example" in refusal(file, tmp_path).received


@pytest.mark.parametrize(
    ("arrays", "received", "fix"),
    [
        ({"x": np.zeros(3), "label": np.zeros(4)}, "x: 3, label: 4 rows", "one file per set of rows"),
        ({"x": np.zeros(3), "labels": np.zeros(3)}, "no array 'label'", "labels"),
        ({"x": np.zeros(3), "label": np.zeros((3, 10))}, "label 'label' has shape (3, 10)", "argmax"),
        ({"x": np.zeros(3), "label": np.float64(1)}, "array 'label'", "first dimension"),
        ({"x": np.zeros(3, complex), "label": np.zeros(3)}, "array 'x' of complex128", "numbers or text"),
        ({"x": np.array([{}, 1, 2], object), "label": np.zeros(3)}, "array 'x' of object", "numbers or text"),
        ({"label": np.zeros(3)}, "only the label", "features"),
        ({"x": np.zeros((0, 2)), "label": np.zeros(0)}, "no rows", "content"),
        ({"x": np.array([1, np.nan, np.inf]), "label": np.zeros(3)}, "line 2: x: a value that is not finite", "fix"),
        ({"x": np.array([1, 2, 1e300]), "label": np.zeros(3)}, "line 3: x: a value that is not finite", "fix"),
        ({"x": np.array([2**64 - 1] * 3, np.uint64), "label": np.zeros(3)}, "3 of 3 rows unusable", "fix"),
    ],
)
def test_an_unusable_npz_is_refused(tmp_path, arrays, received, fix):
    np.savez(tmp_path / "a.npz", **arrays)
    error = refusal(tmp_path / "a.npz", tmp_path)
    assert received in error.received
    assert fix in error.fix


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': [([([(, 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 3000 + "4," + ")" * 3000 + ", }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 60,), }",
        "{'descr': 'é', 'fortran_order': False, 'shape': (4,), }",
        "{",
        "x" * 9000,
        "\0" * 64,
    ],
)
def test_a_damaged_header_in_an_npz_is_refused(tmp_path, header):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        text = header.encode("latin1").ljust(53) + b"\n"
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64))
        with archive.open("label.npy", "w") as stream:
            np.save(stream, np.zeros(4, np.int64))
    error = refusal(tmp_path / "a.npz", tmp_path)
    assert (error.expected, error.fix) == ("a complete NPZ file", "write it again with numpy.savez")
    assert len(error.received) < 400


@pytest.mark.parametrize(("offset", "value"), [(6, 1), (8, 99), (8, 1)])  # encrypted; other compressions
def test_an_npz_that_zipfile_cannot_unpack_is_refused(tmp_path, offset, value):
    np.savez(tmp_path / "a.npz", x=np.zeros(3), label=np.zeros(3))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    for place in (offset, content.index(b"PK\1\2") + offset + 2):
        content[place] = value
    (tmp_path / "a.npz").write_bytes(content)
    assert refusal(tmp_path / "a.npz", tmp_path).expected == "a complete NPZ file"


def test_a_truncated_npz_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3), label=np.zeros(3))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-40])
    assert "a.npz" in refusal(tmp_path / "a.npz", tmp_path).received


@pytest.fixture
def pets(tmp_path) -> Path:
    for index, name in enumerate(("cat", "dog")):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(5):
            Image.new("L", (4, 4), 50 * index + number).save(tmp_path / "pets" / name / f"{number}.png")
    return tmp_path / "pets"


def test_images_need_a_size_and_the_error_suggests_that_of_the_first(pets, tmp_path):
    assert 'pack="image=4x4x1"' in refusal(pets, tmp_path).fix
    assert 'pack="image=4x4x1"' in refusal(pets, tmp_path, pack="image=16").fix
    assert 'pack="image=4x4x1"' in refusal(pets, tmp_path, pack="image=4x4x2").fix


def test_a_class_folder_without_images_and_images_without_a_class_are_refused(pets, tmp_path):
    (pets / "eel").mkdir()
    (pets / "eel" / "readme.txt").write_text("none yet")
    assert "no images in class folder eel" in refusal(pets, tmp_path, pack="image=4x4x1").received
    (pets / "eel" / "readme.txt").rename(pets / "eel" / "readme.md")
    Image.new("L", (4, 4)).save(pets / "stray.png")
    assert "stray.png: an image outside a class folder" in refusal(pets, tmp_path, pack="image=4x4x1").received


def test_undecodable_images_are_reported_and_refused_beyond_the_limit(pets, tmp_path):
    (pets / "cat" / "0.png").write_bytes(b"hello")
    (pets / "cat" / "1.png").write_bytes((pets / "cat" / "2.png").read_bytes()[:45])
    Image.new("I;16", (4, 4)).save(pets / "dog" / "0.png")
    error = refusal(pets, tmp_path, pack="image=4x4x1")
    assert "3 of 10 rows unusable (30.0%)" in error.received
    assert "cat/0.png: no image" in error.received
    assert "dog/0.png: no image: mode I;16; 8 bits a channel are expected" in error.received
    parameters = {"pack": "image=4x4x1", "max_rejected": 0.3, "splits": ["all:1"]}
    for name in ("a", "b"):
        prepare_examples(data=pets, examples=tmp_path / name, **parameters)
    report = json.loads((tmp_path / "a" / "examples.json").read_text())
    assert (report["splits"], report["rejected"]["count"]) == ({"all": 7}, 3)
    assert Examples(tmp_path / "a").digest == Examples(tmp_path / "b").digest


def test_remote_addresses_give_the_same_examples_as_local_files(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(GOOD)
    (tmp_path / "in" / "2.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    prepare_examples(data=tmp_path / "in", examples=tmp_path / "local")
    prepare_examples(data=f"objects://{tmp_path}/in", examples=f"objects://{tmp_path}/far")
    assert Examples(tmp_path / "far").digest == Examples(tmp_path / "local").digest
    assert not list((tmp_path / "far").glob(".*"))


def test_no_files_stay_at_a_remote_address_after_an_error(tmp_path):
    (tmp_path / "1.csv").write_text(GOOD + "bad,row,1\n" * 9)
    with pytest.raises(ComponentError):
        prepare_examples(data=f"objects://{tmp_path}/1.csv", examples=f"objects://{tmp_path}/far")
    assert not [file for file in (tmp_path / "far").rglob("*") if file.is_file()]
    with pytest.raises(ComponentError, match="no files"):
        prepare_examples(data=f"objects://{tmp_path}/none/", examples=f"objects://{tmp_path}/far")


@pytest.mark.parametrize("declared", [pytest.param("by the archive", marks=pytest.mark.nightly), "by a header"])
def test_arrays_that_unpack_to_gigabytes_are_refused(tmp_path, declared):
    rows = 3 << 29
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape in (("x", (rows,)), ("y", (rows,))):
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array_header_1_0(stream, {"descr": "|i1", "fortran_order": False, "shape": shape})
                if declared == "by the archive" and name == "x":
                    for _ in range(rows >> 24):
                        stream.write(bytes(1 << 24))
    assert (tmp_path / "a.npz").stat().st_size < 2 << 20
    with pytest.raises(ComponentError, match=r"(?s)(1\.6|3\.2)\d GB of arrays.*numpy\.savez"):
        prepare_examples(data=tmp_path / "a.npz", examples=tmp_path / "out", label="y")


def test_arrays_of_zeros_are_read_as_the_message_says(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((50, 1000), np.float32), y=np.arange(50))
    prepare_examples(data=tmp_path / "a.npz", examples=tmp_path / "out", label="y")


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_line_without_end_is_not_read_whole(tmp_path, monkeypatch, format):
    monkeypatch.setattr(importlib.import_module("tfopt.components.prepare_examples.files"), "MAX_LINE", 1 << 16)
    first = "x,label\n1,0\n" if format == "csv" else '{"x": 1, "label": 0}\n'
    (tmp_path / f"data.{format}").write_text(first + "[" * 100_000)
    error = refusal(tmp_path / f"data.{format}", tmp_path / "examples")
    assert "a line of more than 65536 bytes" in error.received
