"""Test metrics of TensorFlow Model Analysis by name against scikit-learn, sharded as unsharded, and what is refused."""

import sys

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from tests.components.test_evaluate_runners import model
from tests.conftest import write_examples
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.tfma_metrics import ERRORS, HIGHER, LOWER, PARTS, UNBOUNDED, Partition
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


@pytest.mark.nightly  # daily: test_evaluate_runners.py
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


def binary_partition(name: str, records: int = 60) -> Partition:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, (records, 1))
    partition = Partition(name)
    partition.add(labels, np.clip(0.3 + 0.4 * labels + generator.normal(0, 0.3, labels.shape), 0.01, 0.99), 0)
    return partition


@pytest.mark.parametrize("name", sorted({*HIGHER, *LOWER} - {*UNBOUNDED}))
def test_one_more_record_moves_a_metric_as_far_as_the_worst_record_does(name):
    partition = binary_partition(name)
    value = partition.value()
    lowers, raises = partition.unseen_moves(value, partition)
    assert lowers <= 0 <= raises
    if name not in ERRORS:
        assert 1e-4 < max(-lowers, raises) < 10 / 60, "about one record of 60"
    else:
        labels, predictions = (np.array([[number]]) for number in partition.worst[1])
        one = Partition(name)
        one.add(labels, predictions, 0)
        assert raises == pytest.approx((one.value() - value) / 61, rel=1e-3, abs=1e-9)
        assert lowers == pytest.approx(-value / 61, rel=1e-3)


def test_a_hundred_equal_records_do_not_prove_a_metric_of_tfma():
    partition = Partition("Recall")
    partition.add(np.ones((100, 1)), np.full((100, 1), 0.9), 0)
    assert partition.replicates(1.0, 400, 0).std() == 0, "the jackknife has no spread"
    lowers, raises = partition.unseen_moves(1.0, partition)
    assert (lowers, raises) == (pytest.approx(-1 / 101), 0.0)


def test_the_worst_record_of_the_baseline_counts_too():
    near, far = Partition("MeanAbsoluteError"), Partition("MeanAbsoluteError")
    near.add(np.zeros((9, 1)), np.ones((9, 1)), 0)
    far.add(np.zeros((9, 1)), np.full((9, 1), 11.0), 0)
    assert near.unseen_moves(1.0, far)[1] == pytest.approx(1.0)
    assert near.unseen_moves(1.0, near)[1] == 0


def test_without_a_known_worst_record_there_is_no_bound():
    for name in UNBOUNDED:
        partition = binary_partition(name)
        assert partition.unseen_moves(partition.value(), partition) is None
    numbers = Partition("SquaredPearsonCorrelation")
    labels = np.arange(40.0)[:, None]
    numbers.add(labels, labels**1.1, 0)
    assert numbers.unseen_moves(0.9, numbers) is None


def test_a_merged_partition_knows_the_worst_record_of_both():
    first, second = Partition("MeanSquaredError"), Partition("MeanSquaredError")
    first.add(np.array([[0], [1]]), np.array([[0.3], [0.9]]), 0)
    second.add(np.array([[1]]), np.array([[0.1]]), 2)
    second.merge(first)
    assert second.worst == (pytest.approx(0.9), (1.0, 0.1))
    assert second.is_binary
    first.add(np.array([[3]]), np.array([[0.5]]), 3)
    second.merge(first)
    assert not second.is_binary


def test_the_report_names_the_method_and_a_metric_without_a_bound(inputs, tmp_path):
    metrics = ["tfma:Recall", "tfma:DiagnosticOddsRatio"]
    content = evaluate(**inputs | {"metrics": metrics}, evaluation=tmp_path / "evaluation")["evaluation"].read()
    assert content["interval"]["method"].endswith(", TFMA: jackknife with an unseen record")
    for kind in ("metrics", "delta"):
        recall, odds = (content["models"][1][kind][name] for name in ("Recall", "DiagnosticOddsRatio"))
        assert odds["no_bound"] == "TFMA's DiagnosticOddsRatio has no known worst value of an unseen record"
        assert "no_bound" not in recall
    assert content["models"][1]["delta"]["Recall"]["unseen"] > 1 / 900
