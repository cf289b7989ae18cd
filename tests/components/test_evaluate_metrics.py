"""Test weights, intervals and metrics of `evaluate` against SciPy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from tfopt.components.evaluate.metrics.accumulators import BINS, Sums, Totals, grain_of
from tfopt.components.evaluate.metrics.bootstrap import UNIT, bootstrap_weights
from tfopt.components.evaluate.metrics.task_metrics import Scoring, auc, looks_like_logits
from tfopt.components.evaluate.summary import check_counts
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import replicate_interval


def resample(values, *, seed=0, replicates=400, batch=256):
    """Return the replicates of the mean of ``[records, models, metrics]``, added up batch by batch."""
    grain = grain_of(values[:batch].mean((0, 1)))
    sums = Sums.empty(values.shape[1], values.shape[2], replicates, 0)
    for number, start in enumerate(range(0, len(values), batch)):
        rows = values[start : start + batch]
        sums.add(bootstrap_weights(seed, "file", number, len(rows), replicates), rows, grain)
    return sums.resampled / sums.weight


def test_weights_are_exponential_with_mean_one():
    drawn = bootstrap_weights(0, "data_tfrecord-00000-of-00001.gz", 3, 2000, 500)
    assert (drawn == drawn.astype(int)).all()
    assert drawn.min() >= 1, "no record disappears"
    assert drawn.max() * 256 < 2**16, "sums of a batch fit 16 bits"
    edges = np.array([1.5, 8.5, 16.5, 32.5, 64.5])
    assert np.searchsorted(np.sort(drawn.ravel()), edges) / drawn.size == pytest.approx(
        stats.expon.cdf(edges / UNIT), abs=3e-3
    )
    assert drawn.mean() / UNIT == pytest.approx(1, abs=5e-3)
    assert np.abs(np.corrcoef(drawn[:, :5].T) - np.eye(5)).max() < 0.1, "replicates are independent"


def test_weights_depend_only_on_seed_file_and_batch():
    first = bootstrap_weights(1, "a", 0, 8, 100)
    assert (first == bootstrap_weights(1, "a", 0, 8, 100)).all()
    for other in (
        bootstrap_weights(2, "a", 0, 8, 100),
        bootstrap_weights(1, "b", 0, 8, 100),
        bootstrap_weights(1, "a", 1, 8, 100),
    ):
        assert (first != other).any()
    assert (bootstrap_weights(1, "a", 0, 5, 100) == first[:5]).all(), "a record has the same weights in a shorter batch"


def test_the_interval_matches_scipys_bootstrap_but_for_the_unseen_record():
    values = np.random.default_rng(0).gamma(1.5, size=800)
    replicates = resample(values[:, None, None], replicates=4000)[0]
    ours = replicate_interval(replicates, replicates, 0.05)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=1).confidence_interval
    assert ours == pytest.approx(tuple(theirs), rel=0.01)


def test_the_paired_interval_matches_that_of_the_differences_and_is_narrower_than_an_unpaired_one():
    generator = np.random.default_rng(0)
    parent = generator.gamma(2.0, size=1000)
    child = parent + generator.normal(0.02, 0.1, size=1000)
    replicates = resample(np.stack([parent, child], 1)[:, :, None], replicates=4000)
    gap = replicates[1] - replicates[0]
    low, high = replicate_interval(gap, gap, 0.05)
    theirs = stats.bootstrap((child - parent,), np.mean, n_resamples=4000, method="percentile", rng=1)
    assert (low, high) == pytest.approx(tuple(theirs.confidence_interval), abs=1e-3)
    assert high - low < 0.2 * np.subtract(*replicate_interval(replicates[1], replicates[1], 0.05)[::-1])


def test_sums_are_the_same_to_the_last_bit_in_any_order():
    generator = np.random.default_rng(0)
    values = generator.gamma(0.3, size=(40, 256, 2, 1)) * 1e-3
    grain = grain_of(values[0].mean((0, 1)))

    def total(order):
        sums = Sums.empty(2, 1, 100, 0)
        for number in order:
            part = Sums.empty(2, 1, 100, 0)
            part.add(bootstrap_weights(0, "file", number, 256, 100), values[number], grain)
            sums.merge(part)
        return sums

    first, other = total(range(40)), total(generator.permutation(40))
    assert (first.total == other.total).all()
    assert (first.resampled == other.resampled).all()
    whole = sum(bootstrap_weights(0, "file", number, 256, 100).sum(0) for number in range(40))
    assert (first.weight == whole).all()
    assert first.records == 10240
    assert first.total[:, 0] / 10240 == pytest.approx(values.mean((0, 1))[:, 0], rel=1e-8)


def columns(scoring: Scoring, predictions: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the metrics of each record by name."""
    return dict(zip(scoring.metrics, scoring.values(predictions, labels).T, strict=True))


@pytest.mark.parametrize("task", ["binary", "classification"])
@pytest.mark.parametrize("logits", [True, False])
def test_binary_metrics_match_scikit_learn_and_the_auc_is_within_its_resolution(task, logits):
    generator = np.random.default_rng(0)
    labels = (generator.random(3000) < 0.3).astype(int)
    score = generator.normal(labels * 2.0 - 1, 1.5)
    chance = 1 / (1 + np.exp(-score))
    output = score if logits else chance
    both = np.stack([-score / 2, score / 2] if logits else [1 - chance, chance], 1)
    predictions = output[:, None] if task == "binary" else both
    assert looks_like_logits(predictions, task) is logits
    scoring = Scoring(task, logits, predictions.shape[1], 5)
    metrics = columns(scoring, predictions, labels[:, None])
    assert metrics["accuracy"].mean() == pytest.approx(sk.accuracy_score(labels, score > 0))
    assert metrics["log_loss"].mean() == pytest.approx(sk.log_loss(labels, chance), rel=1e-6)
    sums = Sums.empty(1, 2, 100, BINS)
    drawn = bootstrap_weights(0, "file", 0, 3000, 100)
    sums.add_ranks(0, drawn, labels, scoring.bins(predictions, BINS))
    area, resolution = auc(sums.ranks.counts[0])
    assert resolution < 0.005
    assert area == pytest.approx(sk.roc_auc_score(labels, score), abs=resolution)
    replicates = auc(sums.ranks.values_of(0)[1])[0]
    weighted = [sk.roc_auc_score(labels, score, sample_weight=drawn[:, column]) for column in range(100)]
    assert replicates == pytest.approx(np.array(weighted), abs=2 * resolution)


def test_equal_scores_count_half_so_that_the_auc_of_a_coarse_output_matches_scikit_learn():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 2000)
    score = np.round(np.clip(0.3 + 0.3 * labels + generator.normal(0, 0.2, 2000), 0, 1) * 8) / 8
    histogram = np.zeros((2, BINS))
    np.add.at(histogram, (labels, Scoring("binary", False, 1, 5).bins(score[:, None], BINS)), 1)
    area, resolution = auc(histogram)
    assert area == pytest.approx(sk.roc_auc_score(labels, score), abs=1e-12)
    assert resolution > 0.02, "the histogram cannot know that these ties are real"


def test_logits_and_their_probabilities_have_equal_metrics():
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(500, 10)) * 1.5, generator.integers(0, 10, (500, 1))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert looks_like_logits(logits, "classification")
    assert not looks_like_logits(probabilities, "classification")
    from_logits = columns(Scoring("classification", True, 10, 3), logits, labels)
    from_probabilities = columns(Scoring("classification", False, 10, 3), probabilities, labels)
    for name, column in from_logits.items():
        assert column == pytest.approx(from_probabilities[name], rel=1e-9)
    assert from_logits["log_loss"].mean() == pytest.approx(sk.log_loss(labels, probabilities), rel=1e-9)
    assert from_logits["top_3_accuracy"].mean() == pytest.approx(sk.top_k_accuracy_score(labels, logits, k=3))


def test_equal_outputs_for_all_classes_do_not_count_as_correct():
    predictions, labels = np.full((10, 10), 0.1), np.arange(10)[:, None]
    metrics = columns(Scoring("classification", False, 10, 3), predictions, labels)
    for name, correct in (("accuracy", 1), ("top_3_accuracy", 3)):  # the first classes
        assert metrics[name].tolist() == [1] * correct + [0] * (10 - correct)


def test_regression_errors_match_scikit_learn():
    generator = np.random.default_rng(0)
    labels, predictions = generator.normal(size=(2, 300, 3))
    metrics = columns(Scoring("regression", False, 3, 5), predictions, labels)
    assert metrics["mean_absolute_error"].mean() == pytest.approx(sk.mean_absolute_error(labels, predictions))
    assert metrics["mean_squared_error"].mean() == pytest.approx(sk.mean_squared_error(labels, predictions))


PARTS = [("a", 0, 2), ("a", 1, 2)]


@pytest.mark.parametrize("scored", [PARTS[:1], [*PARTS, PARTS[1]], []])
def test_a_part_that_a_runner_loses_or_repeats_is_an_error(scored):
    totals = Totals.empty(1)
    totals.parts.update(scored)
    with pytest.raises(ComponentError, match=r"(?s)parts of files scored.*each of the 2 parts once.*another runner"):
        check_counts(PARTS, None, totals, ["a"])


@pytest.mark.parametrize(
    ("read", "skipped", "answered", "message"),
    [
        (273, 0, 273, "(?s)273 records read.*the 400 that the split holds.*another runner"),
        (800, 0, 800, "(?s)800 records read.*the 400 that the split holds"),
        (400, 3, 396, "(?s)b: 396 records evaluated and 3 skipped.*together the 400 that were read"),
        (400, 400, 0, "(?s)all 400 records skipped: 400 x no label.*prepare the examples again"),
    ],
)
def test_records_that_do_not_add_up_are_an_error(read, skipped, answered, message):
    totals = Totals.empty(2)
    totals.parts.update(PARTS)
    totals.read, totals.answered = read, np.array([read - skipped, answered])
    totals.skipped["no label"] = skipped
    with pytest.raises(ComponentError, match=message):
        check_counts(PARTS, 400, totals, ["a", "b"])


def test_records_that_add_up_pass_even_if_a_failed_model_predicted_none():
    totals = Totals.empty(2)
    totals.parts.update(PARTS)
    totals.read, totals.answered = 400, np.array([398, 0])
    totals.skipped["no label"] = 2
    totals.failures[1] = (("file", 0), "cannot be loaded")
    check_counts(PARTS, 400, totals, ["a", "b"])
