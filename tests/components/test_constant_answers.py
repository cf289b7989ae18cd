"""Test that models which are no better than a constant answer, or give one, are reported and not blessed."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.components.decisions import decide, reason
from tests.reports import DIGITS
from tfopt import keras_models
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.constant_model import constant_output, describe_constant
from tfopt.components.evaluate.metrics.task_metrics import Scoring
from tfopt.components.evaluate.parameters import Settings

RECORDS = 400


def write_examples(folder, labels, features):
    """Write the split test of examples with the features x and label."""
    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "data_tfrecord-00000-of-00001")) as writer:
        for label, row in zip(labels, features, strict=True):
            kind = (
                {"int64_list": tf.train.Int64List(value=[label])}
                if isinstance(label, int)
                else {"float_list": tf.train.FloatList(value=[label])}
            )
            feature = {
                "label": tf.train.Feature(**kind),
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return folder.parent


def linear(kernel, bias):
    """Return a linear model of two features."""
    inputs = keras.Input((2,), name="x")
    layer = keras.layers.Dense(len(bias), name="y")
    model = keras.Model(inputs, layer(inputs))
    layer.set_weights([np.array(kernel, np.float32), np.array(bias, np.float32)])
    return model


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Examples of three unbalanced classes, and four models: right, at chance, one class, the same outputs."""
    folder = tmp_path_factory.mktemp("classes")
    generator = np.random.default_rng(0)
    features = generator.normal(size=(RECORDS, 2))
    labels = [int(value) for value in np.digitize(features[:, 0], [0.6, 1.5])]
    models = {
        "right": linear([[-4, 0, 4], [0, 0, 0]], [2, 0, -4.5]),
        "chance": linear([[0, 0, 0], [3, 0, -3]], [0, 0.2, 0]),
        "one class": linear([[0.1, 0, 0], [0, 0.1, 0]], [9, 0, 0]),
        "same": linear(np.zeros((2, 3)), [0, 1, 0]),
    }
    for name, model in models.items():
        keras_models.save(model, folder / name)
    examples = write_examples(folder / "examples" / "Split-test", labels, features.tolist())
    paths = [folder / name for name in models]
    report = evaluate(paths[0], paths[1:], examples, folder / "evaluation")["evaluation"].read()
    return labels, report


def test_the_most_frequent_class_is_the_constant_model(classes):
    labels, report = classes
    share = np.bincount(labels).max() / RECORDS
    assert report["constant"]["name"] == "always class 0"
    assert report["constant"]["metrics"]["accuracy"]["value"] == pytest.approx(share)
    right, chance, *_ = report["models"]
    assert right["over_constant"]["accuracy"]["low"] > 0
    assert chance["over_constant"]["accuracy"]["low"] < 0


def test_models_that_ignore_their_inputs_have_a_note(classes):
    _, report = classes
    notes = {tuple(row["notes"]) for row in report["models"][:2]}
    assert notes == {()}
    assert report["models"][2]["notes"] == ["only class 0 is predicted, 3 classes occur"]
    assert report["models"][3]["notes"] == [f"the outputs are the same for all {RECORDS} records"]


def test_a_regression_is_compared_with_the_median(tmp_path):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(RECORDS, 2))
    labels = [float(value) for value in 5000 + 100 * features[:, 0] + generator.normal(0, 9, RECORDS)]
    keras_models.save(linear([[100], [0]], [5000]), tmp_path / "right")
    keras_models.save(linear([[0], [900]], [5000]), tmp_path / "wrong")
    examples = write_examples(tmp_path / "examples" / "Split-test", labels, features.tolist())
    done = evaluate(tmp_path / "right", [tmp_path / "wrong"], examples, tmp_path / "evaluation")
    report = done["evaluation"].read()
    median = np.median(np.array(labels, np.float32))
    error = report["constant"]["metrics"]["mean_absolute_error"]["value"]
    assert error == pytest.approx(np.abs(np.array(labels) - median).mean(), rel=1e-5)
    assert report["constant"]["name"].endswith(", the median of the labels")
    right, wrong = (row["over_constant"]["mean_absolute_error"] for row in report["models"])
    assert right["high"] < 0 < wrong["low"], "the error of one is smaller than that of the median, of the other larger"


def with_constant(gain):
    """Return an edit of evaluation.json: a constant model, and every model this much better, give or take a point."""

    def edit(content):
        metric = {"value": 0.112, "low": 0.1, "high": 0.13, "higher_is_better": True}
        content["constant"] = {"name": "always class 3", "metrics": {"accuracy": metric}}
        for row in content["models"]:
            row["over_constant"] = {"accuracy": {"value": gain, "low": gain - 0.01, "high": gain + 0.01}}

    return edit


@pytest.mark.parametrize(("gain", "blessed"), [(0.5, True), (0.005, False), (-0.1, False)])
def test_a_model_that_is_no_better_than_a_constant_answer_is_not_blessed(tmp_path, gain, blessed):
    decision = decide(DIGITS[:2], tmp_path, edit=with_constant(gain))
    assert decision["blessed"] is blessed
    assert decision["constant"] == {"name": "always class 3", "metric": "accuracy", "value": 0.112}
    text = "not significantly better than 11.20% of a constant answer (always class 3)"
    assert (text in reason(decision, "folded")) is not blessed
    assert (text in reason(decision, "trained")) is not blessed
    page = (tmp_path / "decision" / "report.html").read_text()
    assert 'id="constant-row"' in page and "always class 3" in page


def test_the_user_may_accept_such_a_model(tmp_path):
    assert decide(DIGITS[:2], tmp_path, edit=with_constant(-0.1), better_than_constant=False)["blessed"]


@pytest.mark.parametrize(
    ("task", "width", "is_logits", "labels", "expected"),
    [
        ("classification", 3, False, [0, 2, 2], [1.5 / 4.5, 0.5 / 4.5, 2.5 / 4.5]),
        ("classification", 3, True, [0, 2, 2], np.log([1.5 / 4.5, 0.5 / 4.5, 2.5 / 4.5])),
        ("binary", 1, False, [0, 1, 1], [2.5 / 4]),
        ("binary", 1, True, [0, 1, 1], [np.log(2.5 / 1.5)]),
        ("regression", 1, False, [1.0, 2.0, 9.0], [2.0]),
    ],
)
def test_the_constant_output_is_in_the_form_of_the_models(tmp_path, task, width, is_logits, labels, expected):
    from tfopt.artifacts.tensor_spec import TensorSpec

    examples = write_examples(tmp_path / "examples" / "Split-test", labels, np.zeros((3, 2)).tolist())
    dtype = "int64" if isinstance(labels[0], int) else "float32"
    features = {"label": TensorSpec(dtype, (None, 1))}
    files = [str(next((examples / "Split-test").iterdir()))]
    scoring = Scoring(task, is_logits, width, 5)
    output = constant_output(files, Settings(), features, scoring, 2)
    assert output == pytest.approx(np.array(expected), rel=1e-6)
    assert describe_constant(scoring, output, ["no", "yes", "maybe"]).startswith("always ")
