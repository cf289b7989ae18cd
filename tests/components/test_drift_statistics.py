"""Test the intervals of check_drift, and the columns that it compares, by simulation."""

import numpy as np
import pytest

from tests.components.exporters import write_split
from tfopt.artifacts import Examples, Model
from tfopt.components.check_drift.answers import Answers, compare_answers, disagreement
from tfopt.components.check_drift.columns import compare_columns
from tfopt.components.check_drift.decision import decide
from tfopt.components.check_drift.intervals import distribution_distance, share_change
from tfopt.components.check_drift.parameters import DriftTest
from tfopt.components.check_drift.samples import Sample, Samples
from tfopt.reports.drift_report import ComparedSample, DriftReport


def rows(values) -> list[np.ndarray]:
    return [np.atleast_1d(value) for value in values]


def exceeded(reference, served, kind: str, error: float = 0.001) -> list[tuple[float, str]]:
    """Return the lowest change, and the note, of each comparison of a kind."""
    comparisons = [one for one in compare_columns("x", rows(reference), rows(served)) if one.kind == kind]
    return [(share_change(one.reference, one.served, error)[1], one.note) for one in comparisons]


@pytest.mark.parametrize("shape", ["zero or one", "few large shares"])
def test_intervals_of_shares_hold(shape):
    draw, missed, trials = np.random.default_rng(0), 0, 300

    def sample(share: float, count: int) -> np.ndarray:
        hits = draw.random(count) < share
        return hits * 1.0 if shape == "zero or one" else hits * draw.random(count)

    factor = 1 if shape == "zero or one" else 0.5
    for _ in range(trials):
        _, low, high = share_change(sample(0.03, 300), sample(0.08, 200), 0.05)
        missed += not low <= 0.05 * factor <= high
    assert missed <= 0.05 * trials + 3 * np.sqrt(0.05 * trials)


def test_intervals_of_distances_hold():
    draw = np.random.default_rng(1)
    true = 0.2  # of uniform distributions on [0, 1] and [0.2, 1.2]
    ends = [distribution_distance(draw.random(300), draw.random(200) + 0.2, 0.05)[1:] for _ in range(300)]
    assert sum(not low <= true <= high for low, high in ends) <= 15


def test_a_sensor_at_the_end_of_its_range_is_found_and_a_scale_is_not():
    draw = np.random.default_rng(2)
    values = draw.normal(size=2000).astype(np.float32)
    cut = np.minimum(values, 0.5)
    assert max(exceeded(values[:1000], cut[1000:], "repeated"))[0] > 0.2
    assert max(exceeded(cut[:1000], 3 * cut[1000:], "repeated"))[0] < 0.05
    counts = draw.poisson(1.0, 2000).astype(np.float32)  # the largest one is missing by chance
    assert max(exceeded(counts[:1000], np.minimum(counts[1000:], 4), "repeated"))[0] < 0.05


def test_new_words_are_found_and_free_texts_are_not():
    draw = np.random.default_rng(3)
    words = np.array([b"a", b"b", b"c"], object)[draw.integers(3, size=1000)]
    new = np.where(draw.random(1000) < 0.05, b"d", words)
    low, note = exceeded(words, new, "unknown")[0]
    assert low > 0.01 and note == "such as d"
    texts = np.array([b"%d" % number for number in range(2000)], object)
    assert exceeded(texts[:1000], texts[1000:], "unknown")[0][0] < 0.01
    empty = np.where(draw.random(1000) < 0.05, b"", words)
    assert exceeded(words, empty, "missing")[0][0] > 0.01
    assert exceeded(words, empty, "unknown")[0][0] < 0.01


def test_missing_numbers_are_found():
    values = np.random.default_rng(4).normal(size=1000).astype(np.float32)
    gaps = np.where(np.arange(1000) % 10 == 0, np.nan, values).astype(np.float32)
    assert exceeded(values, gaps, "missing")[0][0] > 0.05


def judge(folder, reference: dict, served: dict, **levels) -> DriftReport:
    """Return the report on columns of both samples, and shares at the ends of an activation."""
    (folder / "model.tflite").write_bytes(b"content")
    samples = [
        Sample(ComparedSample("", *[len(columns["x"])] * 2), {name: rows(values) for name, values in columns.items()})
        for columns in (reference, served)
    ]
    for sample, shares in zip(samples, levels.values(), strict=False):
        sample.levels = {"relu": shares}
    write_split(folder / "examples", {"x": np.zeros((2, 1))})
    examples, model = Examples(folder / "examples"), Model(folder / "model.tflite")
    return decide(Samples(samples[0], samples[1], has_levels=True), model, examples, None, DriftTest())


def test_a_change_within_its_interval_is_none(tmp_path):
    words = np.array([b"a", b"b"] * 60, object)
    gaps = np.where(np.arange(120) < 3, b"", words)  # 2.5 % of them, and the limit is 1 %
    report = judge(tmp_path, {"x": words}, {"x": gaps})
    (change,) = [change for change in report.changes if change.kind == "missing"]
    assert change.change > change.limit > change.low and report.decision == "nothing"


def test_pixels_are_compared_by_value():
    """The largest of independent probabilities is no class: a mask can differ, or agree, wherever it is."""
    pixels = np.random.default_rng(3).uniform(0, 0.6, (200, 30))
    pixels[:, 0] = 0.9  # the largest one of each record
    other = pixels.copy()
    other[:50, 1:] = 1 - other[:50, 1:]
    before, now = (Answers({"mask": each.astype(np.float32)}) for each in (pixels, other))
    assert before.classes("mask") is None
    np.testing.assert_array_equal(disagreement(now, before, before), np.arange(200) < 50)
    (compared,) = compare_answers(before, now)
    assert compared.kind == "answers"
    np.testing.assert_allclose(compared.served, other.mean(1), rtol=1e-6)


def test_what_was_not_learned_comes_before_ranges(tmp_path):
    words = np.array([b"a", b"b"] * 200, object)
    new = np.where(np.arange(400) % 4 == 0, b"c", words)
    shares = {"before": np.linspace(0, 0.01, 400), "now": np.linspace(0.2, 0.3, 400)}
    assert judge(tmp_path, {"x": words}, {"x": words}, **shares).decision == "recalibrate"
    report = judge(tmp_path, {"x": words}, {"x": new}, **shares)
    assert report.decision == "retrain"
    assert report.reasons == ["x: values that the reference does not have (such as c), 25.00% instead of 0.00%"]


def test_samples_of_the_same_source_need_nothing(tmp_path):
    draw = np.random.default_rng(5)

    def sample() -> dict:
        words = np.array([b"a", b"b", b"rare", b""], object)[draw.choice(4, 150, p=[0.5, 0.46, 0.01, 0.03])]
        return {"x": words, "n": draw.exponential(size=150).astype(np.float32), "day": draw.integers(7, size=150)}

    decisions = [judge(tmp_path, sample(), sample()).decision for _ in range(40)]
    assert decisions.count("nothing") >= 39
