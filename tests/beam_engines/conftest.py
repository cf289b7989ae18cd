"""The clusters, each started once, and the data and models that run on them."""

from pathlib import Path

import numpy as np
import pytest

from tests.beam_engines import clusters, packages
from tests.conftest import write_examples


@pytest.fixture(scope="session", autouse=True)
def _engines():
    if reason := packages.what_is_missing():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def flink(tmp_path_factory):
    """Flink with a JobManager and two TaskManagers."""
    with clusters.flink(tmp_path_factory.mktemp("flink") / "cluster", 2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Spark with a master and two workers."""
    with clusters.spark(tmp_path_factory.mktemp("spark") / "cluster", 2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def table(tmp_path_factory) -> Path:
    """Five CSV files of 400 rows, each with a row that cannot be used."""
    folder = tmp_path_factory.mktemp("table")
    for part in range(5):
        rows = [f"{part * 400 + index},{index / 7},{'ab'[index % 2]}" for index in range(400)]
        (folder / f"{part}.csv").write_text("\n".join(["x,y,label", *rows, "bad"]))
    return folder


@pytest.fixture(scope="session")
def evaluation(tmp_path_factory):
    """Return the inputs of `evaluate`: 3,000 records in two shards, and two models of a binary label."""
    folder = tmp_path_factory.mktemp("evaluation")
    generator = np.random.default_rng(0)
    values = generator.normal(size=(3000, 4))
    labels = (values.sum(1) + generator.normal(size=3000) > 0).astype(int)
    site = np.array(["north", "south", "süd"])[generator.integers(0, 3, 3000)]
    split = folder / "examples" / "Split-eval"
    for file, rows in (("a_tfrecord.gz", slice(0, 1900)), ("b_tfrecord.gz", slice(1900, None))):
        write_examples(split / file, {"x": values[rows], "label": labels[rows], "site": site[rows]})
    return {
        "baseline": _model(folder / "parent.keras", np.ones(4)),
        "candidates": [_model(folder / "child.keras", np.array([1, 1, 1, 0.2]))],
        "examples": folder / "examples",
        "slices": ["site"],
        "replicates": 100,
    }


def _model(file: Path, kernel: np.ndarray) -> Path:
    import keras

    x = keras.layers.Input((4,), name="x")
    dense = keras.layers.Dense(1, activation="sigmoid", name="chance")
    model = keras.Model(x, dense(x))
    dense.set_weights([kernel[:, None], np.zeros(1)])
    model.save(file)
    return file
