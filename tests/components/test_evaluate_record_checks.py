"""Test what `evaluate` says of its records: skipped, equal, with several labels, of one class, seen in training."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.accumulators import RecordFacts
from tfopt.data import record_hashes
from tfopt.data.record_hashes import RecordHashes, hash_records
from tfopt.errors import ComponentError

X = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
LABELS = (X[:, 0] > 0).astype(np.int64)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("model") / "model"
    return saved(folder, lambda x: {"chances": tf.nn.softmax(x)}, x=((None, 2), "float32"))


@pytest.fixture
def run(model, tmp_path):
    """Return a function that evaluates the model on records by split, and returns the report."""

    def run(splits, **parameters):
        for split, columns in splits.items():
            write_examples(tmp_path / "examples" / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
        outputs = evaluate(model, [model], tmp_path / "examples", tmp_path / "out", replicates=100, **parameters)
        return outputs["evaluation"].read()

    return run


def table(rows=slice(None), labels=LABELS):
    return {"x": X[rows], "label": labels[rows]}


def add_unlabeled(folder, count):
    write_examples(folder / "examples" / "Split-test" / "more_tfrecord", {"x": X[:count]})


def test_records_without_fault_add_no_note(run):
    report = run({"test": table(slice(20)), "train": table(slice(20, 40))})
    assert "notes" not in report
    assert report["counts"]["distinct"] == 20


def test_skipped_records_are_refused_with_reasons_and_counts(run, tmp_path):
    add_unlabeled(tmp_path, 5)
    with pytest.raises(
        ComponentError, match=r"(?s)5 of 45 records of split 'test' skipped \(11.1%\): 5 x no label"
    ) as e:
        run({"test": table()})
    assert "at most 0.0% (max_skipped=0)" in e.value.expected
    assert "max_skipped=0.112" in e.value.fix


def test_accepted_skipped_records_are_a_note(run, tmp_path):
    add_unlabeled(tmp_path, 5)
    assert run({"test": table()}, max_skipped=0.112)["notes"] == ["5 of 45 records skipped: 5 x no label"]


def test_copies_are_counted(run):
    report = run({"test": table(np.tile(np.arange(8), 5))})
    assert report["counts"]["distinct"] == 8
    assert len(report["notes"]) == 1
    assert report["notes"][0].startswith("the 40 evaluated records are 8 different ones:")


def test_a_row_with_two_labels_is_counted(run):
    rows = np.r_[0:10, 0:2]
    report = run({"test": {"x": X[rows], "label": np.r_[LABELS[:10], 1 - LABELS[:2]]}})
    (note,) = report["notes"]
    assert note.startswith("2 rows have different labels in different records (4 of the evaluated records)")


def test_records_of_the_training_are_counted(run):
    (note,) = run({"test": table(slice(20)), "train": table(slice(13, 40))})["notes"]
    assert note.startswith("7 of 20 evaluated records are in split 'train' too")


def test_the_training_split_itself_is_reported(run):
    (note,) = run({"train": table()}, split="train")["notes"]
    assert note.startswith("the 40 evaluated records are split 'train'")


def test_a_damaged_training_file_is_a_note_and_no_error(run, tmp_path):
    file = tmp_path / "examples" / "Split-train" / "more_tfrecord"
    write_examples(file, table(slice(20, 40)))
    file.write_bytes(file.read_bytes()[:-3])
    (note,) = run({"test": table(slice(20)), "train": table(slice(20, 40))})["notes"]
    assert "were compared with the evaluated ones: not all of its files were read" in note


def test_one_class_is_reported_with_its_number(run):
    labels = np.ones_like(LABELS)
    (note,) = run({"test": table(labels=labels)})["notes"]
    assert note.startswith("all 40 evaluated records have the label 1: ")


def test_hashes_do_not_depend_on_the_order_of_features(tmp_path):
    import tensorflow as tf

    feature = {"a": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))}
    feature["label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    whole = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    parts = [tf.train.Example(features=tf.train.Features(feature={key: feature[key]})) for key in ("label", "a")]
    bodies = b"".join(part.features.SerializeToString() for part in parts)
    reordered = b"\n" + bytes([len(bodies)]) + bodies
    one, other = hash_records([whole, reordered, b"no example"], "label").tolist()
    assert one == other
    assert hash_records([b"no example"], "label").shape == (0, 2)
    assert one[0] != hash_records([whole], "a").tolist()[0][1]


@pytest.mark.parametrize("seed", range(3))
def test_a_bounded_set_depends_on_the_records_alone(monkeypatch, seed):
    monkeypatch.setattr(record_hashes, "MOST", 100)
    generator = np.random.default_rng(seed)
    hashes = np.random.default_rng(9).integers(0, 2**63, (1000, 2)).astype(np.uint64)
    hashes = np.concatenate([hashes, hashes[:300]])
    total = RecordFacts()
    for part in np.array_split(generator.permutation(hashes), 7):
        own = RecordFacts()
        for batch in np.array_split(part, 4):
            own.evaluated.add(batch)
        total.merge(own)
    expected = RecordHashes()
    expected.add(hashes)
    expected.compact()
    assert total.evaluated.level == expected.level == 4
    assert len(expected.records) <= 100
    np.testing.assert_array_equal(total.evaluated.records, expected.records)
    np.testing.assert_array_equal(total.evaluated.counts, expected.counts)
    assert 1 < expected.counts.sum() / len(expected.records) < 1.7


def test_a_small_part_is_sampled_as_the_large_one_that_is_merged_with_it(monkeypatch):
    monkeypatch.setattr(record_hashes, "MOST", 100)
    hashes = np.random.default_rng(9).integers(0, 2**63, (140, 2)).astype(np.uint64)
    small, large, whole = RecordHashes(), RecordHashes(), RecordHashes()
    small.add(hashes[:20])
    large.add(hashes[20:])
    whole.add(hashes)
    whole.compact()
    small.merge(large)
    assert small.level == whole.level == 1
    np.testing.assert_array_equal(small.records, whole.records)
