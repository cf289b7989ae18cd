"""Test the ticks of axes."""

import pytest

from tfopt.charts.axis import Axis


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 10), [0, 2, 4, 6, 8, 10]),  # both ends
        (Axis(1.1, 3.9), [1.5, 2, 2.5, 3, 3.5]),
        (Axis(-31, 31), [-20, 0, 20]),
        (Axis(0.9, 1.1, is_share=True), [0.9, 0.95, 1.0]),  # no more than 100 %
        (Axis(1, 100, is_log=True), [1, 5, 20, 100]),
        (Axis(0.4, 0.9, is_log=True), [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),  # hardly more than linear
    ],
)
def test_ticks_are_round_values_from_end_to_end_of_an_axis(axis, ticks):
    assert axis.ticks(6) == pytest.approx(ticks)
