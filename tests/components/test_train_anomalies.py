"""Test that anomalies reported by TensorFlow Data Validation stop `train`; see also tests/tfx/test_tfx_daily.py."""

import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2

from tests.components.train_modules import DIGITS, write
from tfopt.components.train.component import train
from tfopt.errors import ComponentError


def write_anomalies(folder, split, **features):
    """Write anomalies as ExampleValidator does."""
    message = anomalies_pb2.Anomalies()
    for name, description in features.items():
        message.anomaly_info[name].reason.add(short_description="", description=description)
    (folder / f"Split-{split}").mkdir(parents=True)
    (folder / f"Split-{split}" / "SchemaDiff.pb").write_bytes(message.SerializeToString())


def test_anomalies_are_reported_and_stop_the_training(tmp_path, digits_examples):
    write_anomalies(tmp_path / "anomalies", "train", image="Values are beyond 16.", colour="New column.")
    write_anomalies(tmp_path / "anomalies", "eval")
    with pytest.raises(ComponentError, match=r"train, colour: New column\.; train, image: Values are beyond 16\."):
        train(digits_examples, write(tmp_path / "m.py", DIGITS), tmp_path / "out", anomalies=tmp_path / "anomalies")
    assert not (tmp_path / "out").exists()


def test_training_runs_without_anomalies(tmp_path, digits_examples):
    write_anomalies(tmp_path / "anomalies", "train")
    (tmp_path / "module.py").write_text("1 / 0")
    with pytest.raises(ComponentError, match="importing it raised"):  # as far as the module
        train(digits_examples, tmp_path / "module.py", tmp_path / "out", anomalies=tmp_path / "anomalies")


def test_a_file_of_another_kind_is_refused(tmp_path, digits_examples):
    (tmp_path / "anomalies").mkdir()
    (tmp_path / "anomalies" / "SchemaDiff.pb").write_bytes(b"\xff\xff")
    with pytest.raises(ComponentError, match="not an Anomalies message"):
        train(digits_examples, write(tmp_path / "m.py", DIGITS), tmp_path / "out", anomalies=tmp_path / "anomalies")
