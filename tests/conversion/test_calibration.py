"""Test the selection of records for calibration and for the comparison after it."""

import numpy as np

from tfopt.conversion.activation_ranges import Histogram
from tfopt.conversion.calibration import compare_halves, drop_calibrated, split_halves


def test_the_halves_for_the_stability_of_ranges_have_no_common_batch():
    batches = [{"x": np.array([number])} for number in range(5)]
    first, second = ([int(batch["x"][0]) for batch in half] for half in split_halves(batches))
    assert sorted(first + second) == [0, 1, 2, 3, 4]
    assert abs(len(first) - len(second)) == 1


def test_of_large_inputs_few_are_enough_to_see_how_much_ranges_vary():
    feed = [{"x": np.zeros((1, 224, 224, 3), np.float32)}] * 200
    first, second = split_halves(feed)
    assert (len(first), len(second)) == (32, 32)
    assert list(map(len, split_halves(feed[:9]))) == [5, 4]


def test_the_stability_compares_the_ends_of_every_other_record():
    histogram, single = Histogram("relu"), Histogram("of one record")
    for record in ([0, 7], [1, 10], [0, 8], [2, 5]):
        histogram.add(record)
    single.add([1, 2])
    assert histogram.halves == ((0, 8), (1, 10))
    stability = compare_halves([histogram, single])
    assert stability == {
        **{"activations": 1, "least_stable": "relu"},
        **{"median_difference": 0.3, "largest_difference": 0.3},
    }


def test_records_that_a_model_was_calibrated_on_are_left_out_unless_there_are_no_others():
    batch = {"x": np.array([[1.0], [2.0], [3.0]]), "word": np.array([b"a", b"b", b"c"], object), "scalar": np.array(7)}
    calibrated = {"x": np.array([[3.0], [1.0]]), "word": np.array([b"c", b"other"], object), "scalar": np.array(7)}
    remaining, dropped = drop_calibrated(batch, calibrated)
    assert (remaining["x"].ravel().tolist(), remaining["word"].tolist(), dropped) == ([1.0, 2.0], [b"a", b"b"], 1)
    assert drop_calibrated(batch, None) == (batch, 0)
    unchanged, dropped = drop_calibrated(batch, batch)
    assert unchanged is batch and dropped == 3
