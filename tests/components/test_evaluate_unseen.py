"""Test what the evaluation states about one unseen record."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tfopt.components.evaluate.metrics.estimates import Sampled, ShareCounts

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import gates


def sampled(low: list[list[float]], high: list[list[float]], share: ShareCounts | None = None) -> Sampled:
    return Sampled(0.0, np.array(low), np.array(high), True, share=share)


def test_a_share_is_moved_by_one_record():
    share = sampled([[0.0]], [[0.0]], ShareCounts(98, 99, 0, 0))
    assert share.unseen_move(share) == 1 / 100


def test_other_metrics_are_moved_by_half_the_distance_of_their_replicates():
    own, baseline = sampled([[0.1, 0.3], [0.0, np.nan]], [[0.2, 0.4], [0.1, 0.1]]), sampled([[0.0, 0.0]], [[0.1, 0.1]])
    low, high = 0.0 - 0.1, 0.3 - 0.0  # the worst kind of record for each end
    assert own.unseen_move(baseline) == pytest.approx((high - low) / 2)


def test_without_finite_replicates_the_record_moves_nothing():
    undefined = sampled([[np.nan]], [[np.nan]])
    assert undefined.unseen_move(undefined) == 0.0


@pytest.mark.parametrize("metric", ["f1", "mean_absolute_error"])
def test_an_equal_candidate_passes_with_twice_the_records_that_the_run_asks_for(metric):
    needed = gates.needed_records(metric, records=100, candidates=1, draws=12)
    assert 200 < needed < 3000
    assert gates.simulate(metric, 2 * needed, 1, 12, loss=0.0, seed=1).mean() >= 0.9
