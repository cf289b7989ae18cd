"""Test confusion matrices and ROC curves against scikit-learn, and their form for the KFP user interface."""

import json

import numpy as np
import pytest
import yaml
from kfp import dsl
from sklearn import metrics as sk

from tests.conftest import write_examples
from tfopt.artifacts import Evaluation
from tfopt.cli.main import main
from tfopt.component import find
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.accumulators import Totals
from tfopt.components.evaluate.metrics.task_metrics import MOST_CLASSES, Scoring, confusion, roc
from tfopt.kfp.compiler import compile_component


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    """Two binary classifiers, 600 records with two features, their labels and the models' probabilities."""
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
    probabilities = []
    for name, kernel in (("parent", [[1.4], [-0.9]]), ("child", [[0.6], [0.2]])):
        x = keras.Input((2,), name="x")
        model = keras.Model(x, keras.layers.Dense(1, activation="sigmoid")(x))
        model.layers[-1].set_weights([np.array(kernel), np.array([-0.6])])
        model.save(folder / f"{name}.keras")
        probabilities.append(model.predict(features, verbose=0)[:, 0])
    return folder, labels, probabilities


@pytest.fixture(scope="module")
def evaluated(sick, tmp_path_factory):
    """The folder and the output artifacts of `evaluate`, run by the command of a container of KFP."""
    folder, _, _ = sick
    output_folder = tmp_path_factory.mktemp("step")
    compile_component(find("evaluate"), output_folder / "component.yaml")
    spec = yaml.safe_load((output_folder / "component.yaml").read_text())["components"]["comp-evaluate"]
    files = {"baseline": "parent.keras", "candidates_1": "child.keras", "examples": "examples"}
    artifacts = {key: {"artifacts": [{"name": key, "uri": str(folder / file)}]} for key, file in files.items()}
    outputs = {
        key: {
            "artifacts": [
                {"name": key, "type": output["artifactType"], "uri": str(output_folder / key), "metadata": {}}
            ]
        }
        for key, output in spec["outputDefinitions"]["artifacts"].items()
    }
    values = {"label": "ill", "output": "", "replicates": 100.0}
    message = {
        "inputs": {"artifacts": artifacts, "parameterValues": values},
        "outputs": {"artifacts": outputs, "outputFile": str(output_folder / "output.json")},
    }
    assert not main(["evaluate", "--executor-input", json.dumps(message)])
    return output_folder, json.loads((output_folder / "output.json").read_text())["artifacts"]


def test_the_metadata_of_each_model_equals_that_of_the_kfp_sdk(sick, evaluated):
    _, labels, probabilities = sick
    folder, written = evaluated
    assert set(written) == {"evaluation", "evaluation_baseline", "evaluation_candidates_1"}
    for name, chance in zip(("evaluation_baseline", "evaluation_candidates_1"), probabilities, strict=True):
        artifact = written[name]["artifacts"][0]
        assert artifact["type"]["schemaTitle"] == dsl.ClassificationMetrics.schema_title
        theirs = dsl.ClassificationMetrics()
        theirs.log_confusion_matrix(["well", "ill"], sk.confusion_matrix(labels, chance > 0.5).tolist())
        assert artifact["metadata"]["confusionMatrix"] == theirs.metadata["confusionMatrix"]
        points = artifact["metadata"]["confidenceMetrics"]
        theirs.log_roc_data_point(1.0, 1.0, 0.0)
        assert all(point.keys() == theirs.metadata["confidenceMetrics"][0].keys() for point in points)
        assert json.loads((folder / name).read_text()) == artifact["metadata"]


def test_the_roc_curve_is_exact_at_each_threshold_and_has_the_auc_of_scikit_learn(sick, evaluated):
    _, labels, probabilities = sick
    models = Evaluation(evaluated[0] / "evaluation").read()["models"]
    for chance, model in zip(probabilities, models, strict=True):
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


def test_rows_are_the_true_classes_and_every_record_is_counted_once(sick, evaluated):
    _, labels, probabilities = sick
    content = Evaluation(evaluated[0] / "evaluation").read()
    assert content["classes"] == ["well", "ill"]
    for chance, model in zip(probabilities, content["models"], strict=True):
        assert model["confusion"] == sk.confusion_matrix(labels, chance > 0.5).tolist()
        assert np.trace(model["confusion"]) / 600 == pytest.approx(model["metrics"]["accuracy"]["value"], abs=1e-12)


def test_confusion_matrices_of_several_shards_add_up(digits_model, digits_examples, tmp_path):
    content = evaluate(digits_model, [digits_model], digits_examples, tmp_path / "evaluation", replicates=100)
    parent, copy = content["evaluation"].read()["models"]
    assert np.sum(parent["confusion"]) == 397
    assert np.shape(parent["confusion"]) == (10, 10)
    assert parent["confusion"] == copy["confusion"]
    assert parent["roc"] == []
    assert content["evaluation"].read()["classes"] == [str(digit) for digit in range(10)]


def test_parts_in_any_order_give_the_same_counts():
    draw = np.random.default_rng(0)
    labels, predicted = draw.integers(0, 7, (2, 5, 90))
    whole, other = Totals.empty(2), Totals.empty(2)
    for order, total in ((range(5), whole), (reversed(range(5)), other)):
        for number in order:
            part = Totals.empty(2)
            part.add_confusion(1, confusion(labels[number], predicted[number], 7))
            total.merge(part)
    assert (whole.confusion == other.confusion).all()
    assert (whole.confusion[1] == sk.confusion_matrix(labels.ravel(), predicted.ravel())).all()
    assert not whole.confusion[0].any()


def test_there_is_no_matrix_for_too_many_classes_or_a_regression():
    labels = np.arange(MOST_CLASSES)
    assert confusion(labels, labels, MOST_CLASSES).trace() == MOST_CLASSES
    assert confusion(labels, labels, MOST_CLASSES + 1).size == 0
    assert Scoring("regression", False, 1, 5).class_count == 0


def test_a_single_class_has_no_roc_curve():
    assert roc(np.array([[3, 4], [0, 0]])) == []
    assert len(roc(np.array([[3, 4], [0, 1]]))) == 3
