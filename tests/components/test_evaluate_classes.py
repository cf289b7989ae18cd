"""Test precision, recall, F1, PR-AUC and multi-label metrics of `evaluate` against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as sk

from tests.conftest import write_examples
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.accumulators import BINS, Sums
from tfopt.components.evaluate.metrics.bootstrap import bootstrap_weights
from tfopt.components.evaluate.metrics.task_metrics import Scoring, average_precision, class_metrics, looks_like_logits
from tfopt.data import beam_runner
from tfopt.errors import ComponentError

SCORES = {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score}


def sums_of(scoring, predictions, labels, weights):
    sums = Sums.empty(1, 0, weights.shape[1], BINS if scoring.has_auc else 0, scoring.counted_classes)
    predicted, actual = scoring.members(scoring.classes(predictions)), scoring.members(labels)
    sums.add_actual(weights, actual)
    sums.add_predicted(0, weights, predicted, actual)
    if scoring.has_auc:
        sums.add_ranks(0, weights, labels[:, 0], scoring.bins(predictions, BINS))
    return sums


@pytest.mark.parametrize(
    ("scoring", "constant"),
    [
        (Scoring("classification", False, 4, 5), [0.1, 0.2, 0.6, 0.1]),
        (Scoring("multi_label", False, 3, 5), [0.9, 0.1, 0.8]),
        (Scoring("binary", False, 1, 5), [0.7]),
    ],
)
def test_the_counts_of_a_constant_model_are_those_of_its_predictions(scoring, constant):
    generator = np.random.default_rng(0)
    shape = (200, 3) if scoring.task == "multi_label" else (200, 1)
    labels = generator.integers(0, 4 if scoring.task == "classification" else 2, shape)
    predicted = scoring.members(scoring.classes(np.tile(constant, (200, 1))))
    sums = Sums.empty(2, 1, 50, classes=scoring.counted_classes)
    for number, rows in enumerate((slice(0, 120), slice(120, 200))):
        weights = bootstrap_weights(0, "file", number, len(labels[rows]), 50)
        actual = scoring.members(labels[rows])
        sums.add(weights, np.zeros((len(actual), 2, 1)), np.ones(1))
        sums.add_actual(weights, actual)
        sums.add_predicted(0, weights, predicted[rows], actual)
        sums.set_constant(1, predicted[0])
    for one, other in zip(sums.classes.values_of(0), sums.classes.values_of(1), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("task", ["binary", "classification"])
def test_two_classes_have_precision_recall_f1_and_the_area_under_their_curve(task):
    generator = np.random.default_rng(0)
    labels = (generator.random(3000) < 0.2).astype(int)
    score = generator.normal(labels * 2.0 - 1.5, 1.2)
    chance = 1 / (1 + np.exp(-score))
    predictions = score[:, None] if task == "binary" else np.stack([1 - chance, chance], 1)
    scoring = Scoring(task, task == "binary", predictions.shape[1], 5)
    weights = bootstrap_weights(0, "file", 0, 3000, 100)
    sums = sums_of(scoring, predictions, labels[:, None], weights)
    counts, resampled = sums.classes.values_of(0)
    values, replicates = class_metrics(counts), class_metrics(resampled)
    for name, score_of in SCORES.items():
        assert values[name] == pytest.approx(score_of(labels, score > 0), abs=1e-12)
        weighted = [score_of(labels, score > 0, sample_weight=weights[:, column]) for column in range(100)]
        assert replicates[name] == pytest.approx(np.array(weighted), abs=1e-6)
    ranks, resampled = sums.ranks.values_of(0)
    area, error = average_precision(ranks)
    assert error < 0.03
    assert area == pytest.approx(sk.average_precision_score(labels, score), abs=error)
    weighted = [sk.average_precision_score(labels, score, sample_weight=weights[:, column]) for column in range(100)]
    assert average_precision(resampled)[0] == pytest.approx(np.array(weighted), abs=2 * error)


def test_equal_scores_are_one_threshold_so_that_the_area_of_a_coarse_output_matches_scikit_learn():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 2000)
    score = np.round(np.clip(0.3 + 0.3 * labels + generator.normal(0, 0.2, 2000), 0, 1) * 8) / 8
    histogram = np.zeros((2, BINS))
    np.add.at(histogram, (labels, Scoring("binary", False, 1, 5).bins(score[:, None], BINS)), 1)
    area, error = average_precision(histogram)
    assert area == pytest.approx(sk.average_precision_score(labels, score), abs=1e-12)
    assert error > 0.02, "the histogram cannot know that these ties are real"
    best, worst = score + 1e-6 * labels, score - 1e-6 * labels - 1e-12 * np.arange(2000)
    differences = [abs(sk.average_precision_score(labels, broken) - area) for broken in (best, worst)]
    assert max(differences) == pytest.approx(error, rel=1e-2)


def test_several_classes_have_the_means_over_those_that_occur_or_are_predicted():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 5, (900, 1))
    predictions = generator.normal(size=(900, 7)) + 2 * np.eye(7)[labels[:, 0]]
    predictions[:, 6] = -9
    scoring = Scoring("classification", True, 7, 3)
    weights = bootstrap_weights(0, "file", 0, 900, 100)
    classes = predictions.argmax(1)
    assert set(classes) == {0, 1, 2, 3, 4, 5}, "5 is only predicted, 6 is absent"
    counts, resampled = sums_of(scoring, predictions, labels, weights).classes.values_of(0)
    values, replicates = class_metrics(counts), class_metrics(resampled)
    for name, score_of in SCORES.items():
        options = {"average": "macro", "zero_division": 0}
        assert values[f"macro_{name}"] == pytest.approx(score_of(labels[:, 0], classes, **options), abs=1e-12)
        weighted = score_of(labels[:, 0], classes, sample_weight=weights[:, 3], **options)
        assert replicates[f"macro_{name}"][3] == pytest.approx(weighted, abs=1e-6)
    assert Scoring("classification", True, 101, 3).counted_classes == 0
    assert "macro_f1" not in Scoring("classification", True, 101, 3).names
    assert np.isnan(class_metrics(np.zeros((3, 1), int))["f1"]), "no such record, and none predicted"


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """Examples with three labels in each record, and two models with a sigmoid for each label."""
    import keras

    folder = tmp_path_factory.mktemp("tagged")
    generator = np.random.default_rng(0)
    values = generator.normal(size=(900, 4))
    kernel = generator.normal(size=(4, 3))
    labels = (values @ kernel + generator.normal(0, 0.7, (900, 3)) > 0.8).astype(int)
    for file, rows in (("a_tfrecord.gz", slice(0, 700)), ("b_tfrecord", slice(700, None))):
        write_examples(folder / "examples" / "Split-eval" / file, {"x": values[rows], "tags": labels[rows]})
    chances = []
    for name, factor in (("parent", 1.0), ("child", 0.2)):
        x = keras.Input((4,), name="x")
        model = keras.Model(x, keras.layers.Dense(3, activation="sigmoid")(x))
        model.layers[-1].set_weights([kernel * [1, 1, factor], np.full(3, -0.8)])
        model.save(folder / f"{name}.keras")
        chances.append(model.predict(values, verbose=0))
    return folder, labels, chances


def run(folder, target, **changes):
    arguments = {"baseline": folder / "parent.keras", "candidates": [folder / "child.keras"], "label": "tags"}
    arguments |= {"examples": folder / "examples", "evaluation": target, "replicates": 100}
    return evaluate(**arguments | changes)["evaluation"].read()


def test_labels_of_several_integers_are_recognized_and_match_scikit_learn(tagged, tmp_path):
    folder, labels, chances = tagged
    content = run(folder, tmp_path / "evaluation")
    assert (content["task"], content["output_kind"]) == ("multi_label", "probabilities")
    for row, chance in zip(content["models"], chances, strict=True):
        metrics = {name: metric["value"] for name, metric in row["metrics"].items()}
        decided = chance > 0.5
        assert metrics.pop("label_accuracy") == pytest.approx((decided == labels).mean(), abs=1e-9)
        assert metrics.pop("exact_match_accuracy") == pytest.approx(sk.accuracy_score(labels, decided), abs=1e-9)
        losses = [sk.log_loss(labels[:, column], chance[:, column]) for column in range(3)]
        assert metrics.pop("log_loss") == pytest.approx(np.mean(losses), rel=1e-5)
        for name, score_of in SCORES.items():
            assert metrics.pop(f"macro_{name}") == pytest.approx(score_of(labels, decided, average="macro"), abs=1e-9)
        assert not metrics
        assert row["confusion"] == row["roc"] == []
    parent, child = (chance > 0.5 for chance in chances)
    assert content["models"][1]["parity"]["agreement"] == pytest.approx((parent == child).all(1).mean())
    delta = content["models"][1]["delta"]["macro_f1"]
    assert delta["low"] < delta["value"] < delta["high"] < 0
    assert content["models"][1]["metrics"]["macro_f1"]["higher_is_better"]


def test_more_workers_give_the_same_metrics_of_labels(tagged, tmp_path):
    expected = run(tagged[0], tmp_path / "one")
    with beam_runner.runner_arguments(["--direct_num_workers=3"]):
        assert run(tagged[0], tmp_path / "three") == expected


def test_a_label_other_than_0_and_1_is_refused(tagged, tmp_path):
    folder, labels, _ = tagged
    split = tmp_path / "examples" / "Split-eval" / "a_tfrecord"
    write_examples(split, {"x": np.ones((600, 4)), "tags": np.r_[labels[:599], [[0, 1, 2]]]})
    with pytest.raises(ComponentError, match=r"(?s)has the value 2.*0 or 1 for each output.*store 1 for each label"):
        run(folder, tmp_path / "evaluation", examples=tmp_path / "examples")


def test_one_hot_labels_are_evaluated_and_other_integers_are_a_regression(tagged, tmp_path):
    folder, labels, chances = tagged
    split = tmp_path / "examples" / "Split-eval" / "a_tfrecord"
    write_examples(split, {"x": np.ones((20, 4)), "tags": labels[:20] * 5})
    assert run(folder, tmp_path / "evaluation", examples=tmp_path / "examples")["task"] == "regression"
    assert looks_like_logits(chances[0] * 3 - 1, "multi_label")
    assert not looks_like_logits(chances[0], "multi_label")
    logits = np.log(chances[0]) - np.log1p(-chances[0])
    from_logits = Scoring("multi_label", True, 3, 5).values(logits, labels)
    assert from_logits == pytest.approx(Scoring("multi_label", False, 3, 5).values(chances[0], labels), rel=1e-4)


def test_float_labels_need_the_task(tagged, tmp_path):
    folder, labels, _ = tagged
    split = tmp_path / "examples" / "Split-eval" / "a_tfrecord"
    write_examples(split, {"x": np.ones((20, 4)), "tags": labels[:20].astype(float)})
    examples = tmp_path / "examples"
    assert run(folder, tmp_path / "numbers", examples=examples)["task"] == "regression"
    content = run(folder, tmp_path / "labels", examples=examples, task="multi_label")
    assert content["task"] == "multi_label"
    assert content["models"][0]["metrics"]["label_accuracy"]["value"] <= 1
