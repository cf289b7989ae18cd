"""Test metrics of TensorFlow Model Analysis by name against scikit-learn, sharded as unsharded, and what is refused."""

import sys

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from tests.components.test_evaluate_runners import model
from tests.conftest import write_examples
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.tfma_metrics import HIGHER, LOWER, PARTS, Partition
from tfopt.data import beam_runner
from tfopt.errors import ComponentError

NAMES = ("AUCPrecisionRecall", "F1Score", "BinaryCrossEntropy", "MeanAbsoluteError")


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(900, 4))
    return values, (values.sum(1) + generator.normal(size=900) > 1).astype(int)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("tfma")
    for file, rows in (("a_tfrecord.gz", slice(0, 700)), ("b_tfrecord", slice(700, None))):
        write_examples(folder / "examples" / "Split-eval" / file, {"x": data[0][rows], "label": data[1][rows]})
    return {
        "baseline": model(folder / "parent.keras", np.ones(4)),
        "candidates": [model(folder / "child.keras", np.array([1, 1, 1, 0.2]))],
        "examples": folder / "examples",
        "metrics": [f"tfma:{name}" for name in NAMES],
    }


@pytest.fixture(scope="module")
def report(inputs, tmp_path_factory):
    return evaluate(**inputs, evaluation=tmp_path_factory.mktemp("report") / "evaluation")["evaluation"].read()


def test_the_metrics_match_scikit_learn_and_come_first(report, data):
    values, labels = data
    for row, kernel in zip(report["models"], (np.ones(4), np.array([1, 1, 1, 0.2])), strict=True):
        chance = 1 / (1 + np.exp(-values @ kernel))
        expected = (
            sk.average_precision_score(labels, chance),
            sk.f1_score(labels, chance > 0.5),
            sk.log_loss(labels, chance),
            np.abs(labels - chance).mean(),
        )
        assert list(row["metrics"])[:5] == [*NAMES, "accuracy"]
        for name, value in zip(NAMES, expected, strict=True):
            assert row["metrics"][name]["value"] == pytest.approx(value, rel=2e-3)
            assert row["metrics"][name]["higher_is_better"] == (name in NAMES[:2])
        assert row["metrics"]["F1Score"]["value"] == pytest.approx(row["metrics"]["f1"]["value"], abs=1e-9)


def test_the_intervals_agree_with_those_of_the_bootstrap(report):
    for row in report["models"]:
        for tfma, own in (("F1Score", "f1"), ("BinaryCrossEntropy", "log_loss")):
            for kind in ("metrics", "delta") if row["delta"] else ("metrics",):
                width, expected = (row[kind][name]["high"] - row[kind][name]["low"] for name in (tfma, own))
                assert width == pytest.approx(expected, rel=0.4)
                assert row[kind][tfma]["low"] < row[kind][tfma]["value"] < row[kind][tfma]["high"]
                assert row[kind][tfma]["value"] == pytest.approx(row[kind][own]["value"], abs=1e-5)
    assert report["models"][1]["delta"]["BinaryCrossEntropy"]["low"] > 0, "a candidate that is significantly worse"


def test_more_workers_give_the_same_metrics(inputs, report, tmp_path):
    with beam_runner.runner_arguments(["--direct_num_workers=3"]):
        content = evaluate(**inputs, evaluation=tmp_path / "evaluation")["evaluation"].read()
    for row, expected in zip(content["models"], report["models"], strict=True):
        for kind in ("metrics", "delta"):
            for name, estimate in expected[kind].items():
                assert row[kind][name] == pytest.approx(estimate, rel=1e-6, abs=1e-9)


def test_the_standard_error_is_that_of_the_jackknife():
    generator = np.random.default_rng(0)
    labels, predictions = generator.normal(size=(2, 1000, 1))
    halves = Partition("MeanSquaredError"), Partition("MeanSquaredError")
    halves[0].add(labels[:300], predictions[:300], 0)
    halves[1].add(labels[300:], predictions[300:], 300)
    halves[0].merge(halves[1])
    errors = np.square(labels - predictions)[:, 0]
    assert halves[0].value() == pytest.approx(errors.mean())
    assert len(halves[0].parts) == PARTS
    means = errors.reshape(-1, PARTS).mean(0)
    replicates = halves[0].replicates(errors.mean(), 4000, 0)
    assert replicates.mean() == pytest.approx(errors.mean(), rel=0.01)
    assert replicates.std() == pytest.approx(stats.sem(means), rel=0.05)
    again = halves[0].replicates(errors.mean(), 4000, 0)
    assert (replicates == again).all()


@pytest.mark.parametrize("name", [*HIGHER, *LOWER])
def test_every_metric_is_better_for_a_better_model(name):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, (400, 1))
    values = []
    for noise in (0.45, 1.2):
        predictions = np.clip(0.5 + (labels - 0.5) * 0.5 + generator.normal(0, noise, (400, 1)), 0.01, 0.99)
        partition = Partition(name)
        partition.add(labels, predictions, 0)
        values.append(partition.value())
    better, worse = values
    assert better > worse if name in HIGHER else better < worse


@pytest.mark.parametrize(
    ("metrics", "received", "fix"),
    [
        (["tfma:AUCPrecisonRecall"], "metrics=tfma:AUCPrecisonRecall", "did you mean AUCPrecisionRecall"),
        (["tfma:MeanLabel"], "metrics=tfma:MeanLabel", "known: AUC"),
        (["tfma:AUC", "tfma:AUC"], "the name AUC", "another name"),
    ],
)
def test_a_metric_without_direction_or_with_a_wrong_name_is_refused(inputs, tmp_path, metrics, received, fix):
    with pytest.raises(ComponentError) as refusal:
        evaluate(**inputs | {"metrics": metrics}, evaluation=tmp_path / "evaluation")
    assert refusal.match(f"(?s)received: .*{received}.*expected: .+how to fix: .*({fix})")


def test_it_is_refused_where_tfma_is_not_installed(inputs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_model_analysis", None)
    with pytest.raises(ComponentError, match=r"(?s)tfma:AUCPrecisionRecall: .*the package tensorflow_model_analysis.*"
                                             r"pip install 'tfopt\[tfx\]'"):  # fmt: skip
        evaluate(**inputs, evaluation=tmp_path / "evaluation")


def test_records_that_tfma_refuses_are_refused_with_its_reason():
    with pytest.raises(ComponentError, match=r"(?s)tfma:SquaredPearsonCorrelation: raised with .*\(5, 3\).*fits the"):
        Partition("SquaredPearsonCorrelation").add(np.array([["a"]] * 5), np.ones((5, 3)), 0)
