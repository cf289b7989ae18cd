"""Test docs/flights/data.py: one row per flight that arrived, without facts that are known only after departure."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

FILE = Path(__file__).parents[2] / "docs" / "flights" / "data.py"


@pytest.fixture(scope="module")
def data():
    spec = importlib.util.spec_from_file_location("flights_data", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_has_the_weather_of_its_hour_and_the_delay_label(data):
    flights = pd.DataFrame(
        {
            **{
                "year": 2013,
                "month": 3,
                "day": [4, 4, 5],
                "carrier": ["B6", "AA", "AA"],
                "origin": ["JFK", "JFK", "EWR"],
            },
            **{"dest": ["BOS", "ACK", "BOS"], "hour": [7, 23, 9], "minute": [30, 0, 0], "distance": [187, 199, 200]},
            **{"sched_arr_time": [845, 20, 1010], "arr_delay": [16.0, 15.0, None]},
            "time_hour": ["2013-03-04T12:00:00Z", "2013-03-05T04:00:00Z", "2013-03-05T14:00:00Z"],
        }
    )
    weather = pd.DataFrame(
        {
            "origin": ["JFK", "JFK", "EWR"],
            "time_hour": ["2013-03-04T12:00:00Z", "2013-03-04T13:00:00Z", "2013-03-04T12:00:00Z"],
            **{name: [1.0, None, 100.0] for name in data.WEATHER},
            "temp": [55.0, 73.0, 100.0],
        }
    )
    rows = data.rows(flights, weather)
    assert rows["label"].tolist() == [1, 0]
    assert rows["temp"].tolist() == [0, 1]  # in eighteenths of a degree above 55; for the second flight from 13:00
    assert rows["visib"].tolist() == pytest.approx([-0.8, -0.8])  # a missing value is that of the hour before
    assert rows["scheduled"].tolist() == pytest.approx([75 / 300, 80 / 300])  # also if it arrives after midnight
    assert rows["hour"].tolist() == [7, 23]
    assert not rows.isna().any().any()
    assert not {"arr_delay", "dep_delay", "arr_time"} & set(rows)
