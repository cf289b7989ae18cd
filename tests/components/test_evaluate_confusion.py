"""Confusion matrices and ROC curves: exact counts, as scikit-learn's, and in the form that KFP's interface reads."""

import json
import subprocess
import sys

import numpy as np
import pytest
import yaml
from kfp import dsl
from sklearn import metrics as sk

from tests.conftest import write_examples
from tfopt.artifacts import Evaluation
from tfopt.component import find
from tfopt.components.evaluate.accumulators import Totals
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.confusion import MOST_CLASSES, confusion, roc
from tfopt.components.evaluate.metrics import Scoring
from tfopt.kfp.compiler import compile_component


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    """Two models that tell ill from well, two features, 600 records, their labels and the models' probabilities."""
    import keras

    folder = tmp_path_factory.mktemp("sick")
    draw = np.random.default_rng(3)
    labels = (draw.random(600) < 0.35).astype(np.int64)
    features = draw.normal(labels[:, None] * [1.2, -0.7], 1.0, (600, 2)).astype(np.float32)
    (folder / "examples" / "Split-eval").mkdir(parents=True)
    write_examples(
        folder / "examples" / "Split-eval" / "data_tfrecord-00000-of-00001.gz", {"x": features, "ill": labels}
    )
    (folder / "examples" / "examples.json").write_text(
        json.dumps({"splits": {"eval": 600}, "label": "ill", "classes": ["well", "ill"]})
    )
    chances = []
    for name, kernel in (("parent", [[1.4], [-0.9]]), ("child", [[0.6], [0.2]])):
        given = keras.Input((2,), name="x")
        model = keras.Model(given, keras.layers.Dense(1, activation="sigmoid")(given))
        model.layers[-1].set_weights([np.array(kernel), np.array([-0.6])])
        model.save(folder / f"{name}.keras")
        chances.append(model.predict(features, verbose=0)[:, 0])
    return folder, labels, chances


@pytest.fixture(scope="module")
def judged(sick, tmp_path_factory):
    """The ExecutorOutput of `evaluate` in a container that KFP starts, and where it lies."""
    folder, _, _ = sick
    place = tmp_path_factory.mktemp("step")
    compile_component(find("evaluate"), place / "component.yaml")
    spec = yaml.safe_load((place / "component.yaml").read_text())["components"]["comp-evaluate"]
    given = {"baseline": "parent.keras", "candidates_1": "child.keras", "examples": "examples"}
    artifacts = {key: {"artifacts": [{"name": key, "uri": str(folder / file)}]} for key, file in given.items()}
    places = {
        key: {"artifacts": [{"name": key, "type": found["artifactType"], "uri": str(place / key), "metadata": {}}]}
        for key, found in spec["outputDefinitions"]["artifacts"].items()
    }
    values = {"label": "ill", "output": "", "replicates": 100.0}
    message = {
        "inputs": {"artifacts": artifacts, "parameterValues": values},
        "outputs": {"artifacts": places, "outputFile": str(place / "output.json")},
    }
    words = [sys.executable, "-m", "tfopt.run", "evaluate", "--executor-input", json.dumps(message)]
    subprocess.run(words, check=True, capture_output=True)
    return place, json.loads((place / "output.json").read_text())["artifacts"]


def test_kfp_is_told_what_its_own_sdk_would_tell_it_of_each_model(sick, judged):
    _, labels, chances = sick
    place, written = judged
    assert set(written) == {"evaluation", "evaluation_baseline", "evaluation_candidates_1"}
    for name, chance in zip(("evaluation_baseline", "evaluation_candidates_1"), chances, strict=True):
        artifact = written[name]["artifacts"][0]
        assert artifact["type"]["schemaTitle"] == dsl.ClassificationMetrics.schema_title
        theirs = dsl.ClassificationMetrics()
        theirs.log_confusion_matrix(["well", "ill"], sk.confusion_matrix(labels, chance > 0.5).tolist())
        assert artifact["metadata"]["confusionMatrix"] == theirs.metadata["confusionMatrix"]
        points = artifact["metadata"]["confidenceMetrics"]
        theirs.log_roc_data_point(1.0, 1.0, 0.0)
        assert all(point.keys() == theirs.metadata["confidenceMetrics"][0].keys() for point in points)
        assert json.loads((place / name).read_text()) == artifact["metadata"]


def test_the_roc_curve_is_exact_at_each_threshold_and_bends_as_that_of_scikit_learn(sick, judged):
    _, labels, chances = sick
    models = Evaluation(judged[0] / "evaluation").read()["models"]
    for chance, model in zip(chances, models, strict=True):
        points = model["roc"]
        for point in points[1:-1]:
            above = chance >= point["threshold"]
            assert point["true_positive_rate"] == pytest.approx(above[labels == 1].mean(), abs=1e-9)
            assert point["false_positive_rate"] == pytest.approx(above[labels == 0].mean(), abs=1e-9)
        rates = [(point["false_positive_rate"], point["true_positive_rate"]) for point in points]
        assert (rates[0], rates[-1]) == ((0.0, 0.0), (1.0, 1.0))
        assert rates == sorted(rates)
        assert sk.auc(*zip(*rates, strict=True)) == pytest.approx(sk.roc_auc_score(labels, chance), abs=2e-3)
        assert sk.auc(*zip(*rates, strict=True)) == pytest.approx(model["metrics"]["auc"]["value"], abs=1e-9)


def test_rows_are_the_true_classes_and_every_record_is_counted_once(sick, judged):
    _, labels, chances = sick
    content = Evaluation(judged[0] / "evaluation").read()
    assert content["classes"] == ["well", "ill"]
    for chance, model in zip(chances, content["models"], strict=True):
        assert model["confusion"] == sk.confusion_matrix(labels, chance > 0.5).tolist()
        assert np.trace(model["confusion"]) / 600 == pytest.approx(model["metrics"]["accuracy"]["value"], abs=1e-12)


def test_several_shards_of_many_classes_add_up(digits_model, digits_examples, tmp_path):
    content = evaluate(digits_model, [digits_model], digits_examples, tmp_path / "evaluation", replicates=100)
    parent, twin = content["evaluation"].read()["models"]
    assert np.sum(parent["confusion"]) == 397
    assert np.shape(parent["confusion"]) == (10, 10)
    assert parent["confusion"] == twin["confusion"]
    assert parent["roc"] == []
    assert content["evaluation"].read()["classes"] == [str(digit) for digit in range(10)]


def test_parts_in_any_order_give_the_same_counts():
    draw = np.random.default_rng(0)
    labels, taken = draw.integers(0, 7, (2, 5, 90))
    whole, other = Totals.empty(2), Totals.empty(2)
    for order, total in ((range(5), whole), (reversed(range(5)), other)):
        for number in order:
            part = Totals.empty(2)
            part.add_confusion(1, confusion(labels[number], taken[number], 7))
            total.merge(part)
    assert (whole.confusion == other.confusion).all()
    assert (whole.confusion[1] == sk.confusion_matrix(labels.ravel(), taken.ravel())).all()
    assert not whole.confusion[0].any()


def test_beyond_the_stated_number_of_classes_there_is_no_matrix_and_in_a_regression_none():
    labels = np.arange(MOST_CLASSES)
    assert confusion(labels, labels, MOST_CLASSES).trace() == MOST_CLASSES
    assert confusion(labels, labels, MOST_CLASSES + 1).size == 0
    assert Scoring("regression", False, 1, 5).known_classes == 0


def test_one_class_alone_has_no_roc_curve():
    assert roc(np.array([[3, 4], [0, 0]])) == []
    assert len(roc(np.array([[3, 4], [0, 1]]))) == 3
