"""Test confidence bounds against exact distributions and by simulation."""

import numpy as np
import pytest
from scipy import stats

from tfopt.measurement.confidence_bounds import (
    records_needed,
    replicate_interval,
    share_difference_interval,
    share_interval,
    simultaneous_error,
    smallest_visible_loss,
    spread_of_record,
)

COUNTS = [(0, 0, 10), (0, 3, 10), (3, 0, 10), (2, 8, 10), (1, 1, 62), (4, 9, 300), (40, 60, 1000)]


@pytest.mark.parametrize(("rising", "falling", "records"), COUNTS)
@pytest.mark.parametrize("error", [0.05, 0.05 / 20])
def test_the_interval_of_a_difference_has_the_quantiles_of_dirichlet_weights(rising, falling, records, error):
    generator = np.random.default_rng(0)
    rest = records - rising - falling
    kinds = [kind for kind in (falling + 1, rising, rest) if kind]
    weights = generator.dirichlet(kinds, 400_000)
    columns = dict(
        zip([index for index, kind in enumerate((falling + 1, rising, rest)) if kind], weights.T, strict=True)
    )
    loss = columns[0] - columns.get(1, 0)
    low, _ = share_difference_interval(rising, falling, records, error)
    assert (loss > -low).mean() == pytest.approx(error / 2, rel=0.12)


def test_the_interval_of_a_difference_mirrors_if_the_models_change_places():
    low, high = share_difference_interval(4, 9, 300, 0.05)
    assert share_difference_interval(9, 4, 300, 0.05) == pytest.approx((-high, -low))
    assert low < (4 - 9) / 300 < high


def test_without_a_difference_the_bound_is_that_of_the_unseen_record():
    for records in (1, 10, 62, 1000, 10_000):
        low, high = share_difference_interval(0, 0, records, 0.05)
        assert -low == high == pytest.approx(smallest_visible_loss(records, 1))
        assert high == pytest.approx(1 - 0.025 ** (1 / records))


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson():
    for hits, records in ((0, 10), (7, 10), (10, 10), (61, 62), (999, 1000)):
        theirs = stats.binomtest(hits, records).proportion_ci(method="exact")
        assert share_interval(hits, records, 0.05) == pytest.approx(tuple(theirs))


@pytest.mark.parametrize("records", [10, 30, 62, pytest.param(300, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("lost", "gained"), [(0.02, 0.0), (0.03, 0.01), (0.3, 0.28)])
@pytest.mark.parametrize("error", [0.05, pytest.param(0.005, marks=pytest.mark.nightly)])
def test_the_bound_misses_the_true_loss_at_most_at_its_level(records, lost, gained, error):
    generator = np.random.default_rng(records)
    draws = generator.multinomial(records, [gained, lost, 1 - gained - lost], 40_000)
    missed = 0
    for (rising, falling), count in zip(*np.unique(draws[:, :2], axis=0, return_counts=True), strict=True):
        low, _ = share_difference_interval(int(rising), int(falling), records, error)
        missed += count * (low > gained - lost)
    assert missed / 40_000 <= error / 2 + 3 * np.sqrt(error / 2 / 40_000)


@pytest.mark.parametrize("skewed", [False, True])
def test_the_tail_of_replicates_is_that_of_their_distribution(skewed):
    generator = np.random.default_rng(0)
    law = stats.gamma(1.5) if skewed else stats.norm(3, 2)
    replicates = law.rvs(20_000, random_state=generator)[None]
    for error in (0.05, 0.0025):
        ends = replicate_interval(replicates, replicates, error)
        assert ends == pytest.approx(law.ppf([error / 2, 1 - error / 2]), abs=0.09 * law.std())


def test_the_worst_kind_of_unseen_record_decides():
    replicates, shift = np.random.default_rng(0).normal(size=(2, 400)), np.array([[0.0], [5.0]])
    low, high = replicate_interval(replicates - shift, replicates + shift, 0.05)
    assert low < -6 < 6 < high
    assert replicate_interval(np.full((1, 400), np.nan), replicates, 0.05) is None


def test_more_candidates_and_smaller_losses_need_more_records():
    assert simultaneous_error(20) == pytest.approx(0.0025)
    assert records_needed(0.01, 1) == 368 < records_needed(0.01, 9) < records_needed(0.005, 9)
    assert (
        smallest_visible_loss(records_needed(0.01, 9), 9)
        <= 0.01
        < smallest_visible_loss(records_needed(0.01, 9) - 1, 9)
    )
    assert smallest_visible_loss(0, 1) == 1
    assert records_needed(0.01, 9) < records_needed(0.01, 9, spread=0.1)
    assert records_needed(0.01, 9, reach=2.0) == records_needed(0.005, 9)


def test_an_equal_model_is_proven_with_twice_the_records_that_it_needs():
    generator = np.random.default_rng(0)
    for candidates, disagreement in ((1, 0.01), (9, 0.01), (20, 0.04), (9, 0.0)):
        records = 2 * records_needed(0.02, candidates, np.sqrt(disagreement))
        shares = [disagreement / 2, disagreement / 2, 1 - disagreement]
        proven = 0
        for rising, falling, _ in generator.multinomial(records, shares, 300):
            low, _ = share_difference_interval(int(rising), int(falling), records, simultaneous_error(candidates))
            proven += low >= -0.02
        assert proven >= 0.9 * 300


def test_the_spread_of_a_record_is_that_of_the_counts_behind_an_interval():
    for rising, falling, records, candidates in ((0, 0, 62, 1), (1, 1, 300, 9), (20, 20, 1000, 1), (90, 80, 9000, 20)):
        low, _ = share_difference_interval(rising, falling, records, simultaneous_error(candidates))
        distance = (rising - falling) / records - low
        spread = spread_of_record(distance, 1 / (records + 1), records, candidates)
        assert spread == pytest.approx(np.sqrt((rising + falling + 1) / records), rel=0.25)


def test_without_a_stated_unseen_record_the_whole_distance_shrinks_like_a_sample():
    spread = spread_of_record(0.02, 0.0, 100, 1)
    assert spread == pytest.approx(0.02 * 10 / 1.96, rel=1e-3)
    assert records_needed(0.02, 1, spread, 0.0) == pytest.approx(100 * ((1.96 + 0.8416) / 1.96) ** 2, abs=3)
