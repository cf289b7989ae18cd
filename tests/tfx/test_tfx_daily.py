"""Test docs/tfx/daily.py over several days: TFX's statistics, schema and validators before `train`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODULE = """
import keras
from keras import layers

NAMES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]

def build_model():
    inputs = [layers.Input((1,), name=name) for name in NAMES]
    flow = layers.Dense(16, "relu")(layers.Concatenate()(inputs))
    model = keras.Model(inputs, layers.Dense(3, "softmax", name="species")(flow))
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
NAMES = ["sepal_length", "sepal_width", "petal_length", "petal_width", "species"]


def write_iris(file: Path, change=lambda rows: rows) -> Path:
    from sklearn.datasets import load_iris

    features, labels = load_iris(return_X_y=True)
    rows = [
        [f"{value:.3f}" for value in change(row)] + [str(label)] for row, label in zip(features, labels, strict=True)
    ]
    file.write_text("\n".join(",".join(row) for row in [NAMES, *rows]) + "\n")
    return file


@pytest.mark.nightly
def test_unchanged_data_skips_training_drifted_data_trains_and_anomalies_stop_the_run(tmp_path):
    folder, module = tmp_path / "daily", tmp_path / "model.py"
    module.write_text(MODULE)

    def run(data: Path) -> subprocess.CompletedProcess:
        command = [sys.executable, "docs/tfx/daily.py", data, module, folder, "species"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    def trained() -> dict:
        cards = (folder / "artifacts" / "train" / "trained").glob("*/model_card.json")
        return json.loads(max(cards, key=lambda card: int(card.parent.name)).read_text())

    first = run(write_iris(tmp_path / "first.csv"))
    assert first.returncode == 0, first.stderr[-3000:]
    assert "schema.pbtxt, and copy it to" in first.stdout
    inferred = max((folder / "artifacts" / "SchemaGen" / "schema").glob("*/schema.pbtxt"))
    shutil.copy(inferred, folder / "schema.pbtxt")
    before = trained()

    same = run(write_iris(tmp_path / "same.csv", lambda row: row + 0.1 * (row[0] == 5.0)))
    assert same.returncode == 0, same.stderr[-3000:]
    assert "not trained: nothing changed" in same.stderr and "drifted" not in same.stdout
    assert trained() == before

    later = run(write_iris(tmp_path / "later.csv", lambda row: row + np.array([1.5, 0, 0, 0])))
    assert later.returncode == 0, later.stderr[-3000:]
    assert "drifted: SplitPair-train_train sepal_length" in later.stdout
    assert "training, because of changes: feature sepal_length: mean" in later.stderr
    assert trained()["start"]["digest"] == before["digest"] != trained()["digest"]

    file = write_iris(tmp_path / "broken.csv")
    file.write_text(file.read_text().replace("petal_width", "petal_breadth"))
    broken = run(file)
    assert broken.returncode
    assert "examples with anomalies" in broken.stderr and "petal_breadth" in broken.stderr
