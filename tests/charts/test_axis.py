"""Test the ticks of axes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(
    low=st.floats(1e-6, 1e6),
    ratio=st.floats(1.001, 1e6),
    most=st.integers(2, 12),
    is_log=st.booleans(),
)
def test_an_axis_has_no_more_ticks_than_asked_for_and_no_tick_outside_of_it(low, ratio, most, is_log):
    axis = Axis(low, low * ratio, is_log=is_log)
    ticks = axis.ticks(most)
    assert 1 <= len(ticks) <= most
    assert ticks == sorted(set(ticks))
    margin = 1e-9 * axis.high
    assert axis.low - margin <= ticks[0] and ticks[-1] <= axis.high + margin


def test_an_axis_from_tick_to_tick_has_as_many_ticks_as_asked_for():
    assert Axis(0, 10).ticks(5) == [0, 5, 10]  # steps of 2 are five, with six ticks
    assert Axis(0, 10).ticks(6) == [0, 2, 4, 6, 8, 10]
