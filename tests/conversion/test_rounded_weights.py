"""Tests of weight rounding with compensation: smaller errors on other records, grids that are found again, refusals."""

import numpy as np
import pytest

from tfopt.conversion import rounded_weights
from tfopt.conversion.rounded_weights import FEWEST, Grid, Moments, round_layers, round_weights

GRID = Grid(-7, 7, lambda matrix: np.abs(matrix).max(axis=0) / np.float32(7), is_found_again=True)


def draw_inputs(count, draw):
    """Return rows of 100 correlated inputs."""
    mixing = np.random.default_rng(0).normal(size=(10, 100))
    return (draw.normal(size=(count, 10)) @ mixing + 0.3 * draw.normal(size=(count, 100))).astype(np.float32)


def measure(rows, floats, weights):
    moments = Moments()
    for part in np.array_split(np.arange(len(rows)), 7):
        moments.add(rows[part], floats[part] @ weights)
    moments.finish()
    return moments


@pytest.fixture(scope="module")
def layer():
    """Weights with an outlier, a channel of zeros and a pruned one, and their inputs: two sets of records."""
    draw = np.random.default_rng(1)
    weights = draw.normal(size=(100, 8)).astype(np.float32)
    weights[3, 2] = 15
    weights[:, 5] = 0
    weights[::2, 6] = 0
    return weights, draw_inputs(600, draw), draw_inputs(300, draw)


def test_outputs_of_other_records_have_a_fraction_of_the_error_of_plain_rounding(layer):
    weights, fitted, judged = layer
    result = round_weights(weights, measure(fitted, fitted, weights), measure(judged, judged, weights), GRID)
    others = draw_inputs(500, np.random.default_rng(2))
    steps = np.where(weights.any(axis=0), np.abs(weights).max(axis=0), 1) / 7
    errors = [
        np.square(others @ (rounded - weights)).sum() for rounded in (result.weights, np.rint(weights / steps) * steps)
    ]
    assert errors[0] < 0.1 * errors[1] and result.changed == 7
    noise = np.sqrt(np.square(judged @ (np.rint(weights / steps) * steps - weights)).sum()
                    - np.square(judged @ (result.weights - weights)).sum())  # fmt: skip
    assert result.removed_noise == pytest.approx(noise / np.linalg.norm(judged @ weights), rel=1e-3)


def test_a_quantizer_finds_the_grid_again_and_zeros_stay(layer):
    weights, fitted, judged = layer
    result = round_weights(weights, measure(fitted, fitted, weights), measure(judged, judged, weights), GRID)
    largest = np.abs(result.weights).max(axis=0)
    steps = np.where(largest > 0, largest, 1) / np.float32(7)
    np.testing.assert_array_equal(np.rint(result.weights / steps), result.integers)
    np.testing.assert_allclose(result.integers * steps, result.weights, rtol=1e-6)
    assert not result.weights[weights == 0].any()


def test_grids_without_a_weight_at_the_end_are_not_used():
    second = np.random.default_rng(5).normal(size=(200, 1))
    rows = np.hstack([3 * second + 0.01, second]).astype(np.float32)
    weights = np.float32([[2.55 / 7], [1]])  # 3 and 7 steps, whose error 3 and 6 steps compensate
    moments = [measure(rows, rows, weights) for _ in range(2)]
    free = round_weights(weights, *moments, Grid(-7, 7, GRID.steps))
    assert free.integers.ravel().tolist() == [3, 6]
    assert np.abs(round_weights(weights, *moments, GRID).integers).max() == 7


def test_errors_of_earlier_layers_are_compensated(layer):
    weights, fitted, judged = layer
    draw = np.random.default_rng(3)
    error = np.eye(100) + 0.05 * draw.normal(size=(100, 100))  # of the model so far
    earlier, later = ((rows @ error).astype(np.float32) for rows in (fitted, judged))
    plain = round_weights(weights, measure(earlier, earlier, weights), measure(later, later, weights), GRID)
    result = round_weights(weights, measure(earlier, fitted, weights), measure(later, judged, weights), GRID)
    errors = [np.square(later @ rounded.weights - judged @ weights).sum() for rounded in (result, plain)]
    assert errors[0] < 0.5 * errors[1]


def test_the_result_is_plain_rounding_where_other_records_do_not_agree(layer):
    weights, fitted, _ = layer
    judged = np.eye(100, dtype=np.float32)  # all errors are independent: plain rounding is best
    steps = np.abs(weights).max(axis=0) / 7
    result = round_weights(weights[:, :2], measure(fitted, fitted, weights[:, :2]),
                           measure(judged, judged, weights[:, :2]), Grid(-7, 7, lambda matrix: steps[:2]))  # fmt: skip
    unclipped = result.steps.max(axis=0) == steps[:2]
    np.testing.assert_array_equal(result.integers[:, unclipped], np.rint(weights[:, :2] / steps[:2])[:, unclipped])


def test_reasons_are_reported_and_layers_are_rounded_in_stages(layer, monkeypatch):
    weights, fitted, _ = layer
    monkeypatch.setattr(rounded_weights, "MOST_INPUTS", 100)
    stages = []

    def read(names, rounded):
        stages.append((list(names), sorted(rounded)))
        for rows in np.array_split(fitted, 60):
            yield {name: (rows * (np.nan if name == "broken" else 1), rows) for name in names}

    matrices = {**{f"layer {number}": weights for number in range(10)}, "broken": weights, "wide": np.ones((101, 2))}
    rounded, facts = round_layers(matrices, GRID, 60, read)
    assert list(rounded) == list(facts["removed_noise"]) == list(matrices)[:10]
    assert facts["stays"] == ["wide: more than 100 inputs", "broken: values that are not finite"]
    assert len(stages) == 8 and stages[0][1] == [] and stages[-1][1] == [f"layer {number}" for number in range(10)]
    assert round_layers(matrices, GRID, FEWEST - 1, read) == ({}, {"stays": ["11 records, fewer than 12"]})
    assert len(stages) == 8
