"""Test how `evaluate` chooses the task, logits and threshold: one-hot labels, logged reasons, and contradictions."""

import logging

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.task_metrics import Scoring
from tfopt.components.evaluate.parameters import Settings
from tfopt.components.evaluate.task_choice import choose_scoring
from tfopt.errors import ComponentError

COUNT, CLASSES = 600, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Examples with the same classes as integers, one-hot integers and one-hot floats, and two models."""
    import keras

    folder = tmp_path_factory.mktemp("classes")
    generator = np.random.default_rng(0)
    values, kernel = generator.normal(size=(COUNT, 4)), generator.normal(size=(4, CLASSES))
    classes = (values @ kernel + generator.normal(0, 0.5, (COUNT, CLASSES))).argmax(1)
    one_hot = np.eye(CLASSES, dtype=np.int64)[classes]
    features = {"x": values, "plain": classes[:, None], "whole": one_hot, "real": one_hot.astype(np.float32)}
    write_examples(folder / "examples" / "Split-eval" / "a_tfrecord", features)
    for name, factor, activation in (("parent", 1.0, "softmax"), ("child", 0.2, "softmax"), ("raw", 1.0, None)):
        x = keras.Input((4,), name="x")
        model = keras.Model(x, keras.layers.Dense(CLASSES, activation=activation)(x))
        model.layers[-1].set_weights([kernel * [1, 1, factor], np.zeros(CLASSES)])
        model.save(folder / f"{name}.keras")
    return folder


def run(folder, target, label, **changes):
    arguments = {"baseline": folder / "parent.keras", "candidates": [folder / "child.keras"], "label": label}
    arguments |= {"examples": folder / "examples", "evaluation": target, "replicates": 100}
    return evaluate(**arguments | changes)["evaluation"].read()


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_one_hot_labels_of_both_types_are_classes(folder, tmp_path, task):
    expected = run(folder, tmp_path / "plain", "plain", task=task, slices=["plain"])
    assert {"accuracy", "log_loss", "macro_f1"} <= set(expected["models"][0]["metrics"])
    for label in ("whole", "real"):
        content = run(folder, tmp_path / label, label, task=task, slices=["plain"])
        assert content["task"] == "classification"
        assert content["models"] == expected["models"]


def test_the_choices_are_logged_with_their_reasons(folder, tmp_path, caplog):
    caplog.set_level(logging.INFO, "tfopt")
    run(folder, tmp_path / "a", "real")
    assert "task classification: the label is one-hot in the first 256 records, one value for each of 3" in caplog.text
    assert "output of probabilities: all are from 0 to 1 in the first 256 records; output_kind=logits" in caplog.text
    caplog.clear()
    run(folder, tmp_path / "b", "whole", task="multi_label", threshold=0.3, output_kind="probabilities")
    assert "task multi_label: task=multi_label" in caplog.text
    assert "output of probabilities: output_kind=probabilities" in caplog.text
    assert "threshold=0.3" in caplog.text


@pytest.mark.parametrize(
    ("row", "received"),
    [([1, 1, 0], "2 of 3 values are 1"), ([0, 0, 0], "0 of 3 values are 1"), ([5, 0, 0], "2 are 0")],
)
def test_a_later_record_that_is_not_one_hot_is_refused(folder, tmp_path, row, received):
    labels = np.tile(np.eye(CLASSES, dtype=np.int64), (200, 1))
    labels[-1] = row
    split = tmp_path / "examples" / "Split-eval" / "a_tfrecord"
    write_examples(split, {"x": np.ones((COUNT, 4)), "tags": labels})
    with pytest.raises(ComponentError) as refusal:
        run(folder, tmp_path / "evaluation", "tags", examples=tmp_path / "examples")
    assert "'tags' is not one-hot in 1 of 88 records" in refusal.value.received
    assert received in refusal.value.received
    assert "exactly one 1" in refusal.value.expected
    assert "task=multi_label" in refusal.value.fix
    if max(row) == 1:
        several = run(folder, tmp_path / "e", "tags", examples=tmp_path / "examples", task="multi_label")
        assert several["task"] == "multi_label"


def test_labels_that_are_not_one_hot_are_no_classes(folder, tmp_path):
    split = tmp_path / "examples" / "Split-eval" / "a_tfrecord"
    labels = np.tile([[0.2, 0.3, 0.5]], (20, 1)).astype(np.float32)
    write_examples(split, {"x": np.ones((20, 4)), "tags": labels})
    assert run(folder, tmp_path / "a", "tags", examples=tmp_path / "examples")["task"] == "regression"
    with pytest.raises(ComponentError, match="not one-hot in 20 of 20 records"):
        run(folder, tmp_path / "b", "tags", examples=tmp_path / "examples", task="classification")


def test_a_later_output_that_is_no_probability_is_refused(folder, tmp_path):
    import keras

    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Dense(1)(x))
    model.layers[-1].set_weights([np.full((4, 1), 0.2), np.zeros(1)])
    model.save(tmp_path / "raw.keras")
    values = np.full((COUNT, 4), 0.5)
    values[-1] = 4
    split = tmp_path / "examples" / "Split-eval" / "a_tfrecord"
    write_examples(split, {"x": values, "y": np.arange(COUNT)[:, None] % 2})
    models = {
        "baseline": tmp_path / "raw.keras",
        "candidates": [tmp_path / "raw.keras"],
        "examples": tmp_path / "examples",
    }
    with pytest.raises(ComponentError) as refusal:
        run(folder, tmp_path / "a", "y", **models)
    assert "output of the baseline: 3.2 in 1 records" in refusal.value.received
    assert "probabilities from 0 to 1" in refusal.value.expected
    assert "output_kind=logits" in refusal.value.fix
    assert run(folder, tmp_path / "b", "y", output_kind="logits", **models)["output_kind"] == "logits"


def test_the_threshold_applies_to_probabilities_and_logits():
    chance = np.array([[0.25], [0.35], [0.6]])
    logits = np.log(chance) - np.log1p(-chance)
    for threshold, expected in ((0.5, [0, 0, 1]), (0.3, [0, 1, 1]), (0.0, [1, 1, 1]), (1.0, [0, 0, 0])):
        assert Scoring("binary", False, 1, 5, threshold).classes(chance).tolist() == expected
        assert Scoring("binary", True, 1, 5, threshold).classes(logits).tolist() == expected


def test_a_threshold_of_a_task_without_one_is_refused():
    with pytest.raises(ComponentError, match=r"threshold=0\.3 for task=classification"):
        choose_scoring(Settings(threshold=0.3), np.full((4, 2), 0.5), np.zeros((4, 1), np.int64))
