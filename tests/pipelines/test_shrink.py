"""The pipeline `shrink`: variants of a trained model, run until one is pushed; a small part here, all of it nightly."""

import json
from pathlib import Path

import pytest

from tests.components.train_modules import write
from tfopt.artifacts import Model
from tfopt.cli.summary_table import print_summary
from tfopt.dag.tracing import load
from tfopt.pipelines import shrink
from tfopt.tfx import runner as engine

MODULE = """
import keras
from keras import layers

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.Rescaling(1 / 16)(image)
    flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(layers.Conv2D(16, 3, use_bias=False)(flow)))
    flow = layers.ReLU()(layers.Conv2D(24, 3)(flow))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(layers.Flatten()(flow)))
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
# A goal that asks for a second round of nearly every variant.
QUICK = {"epochs": 1, "recover": 1, "sparsity": 0.5, "clusters": 8, "seconds": 0.1, "goals": ["accuracy threshold 1.0"]}


@pytest.fixture
def trained(tmp_path, digits_examples) -> dict[str, Path]:
    from tfopt.components.train.component import train

    module = write(tmp_path / "module.py", MODULE)
    train(digits_examples, module, tmp_path / "trained", epochs=6, batch_size=32)
    return {"model": tmp_path / "trained", "examples": digits_examples, "module": module}


def test_it_ends_with_one_pushed_model_and_says_what_became_of_each(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shrink, "EXPORTS", {"pruned": ("tflite int8",), "pruned_clustered": ("tflite int8",)})
    told = run(trained, tmp_path, "local", goals=["accuracy threshold 0.5"])
    names = [model["name"] for model in told["models"]]
    assert names == ["trained", "pruned 50%, tflite int8", "pruned 50% + clustered 8, tflite int8"]
    assert told["selected"] in names
    assert {path.name for path in (tmp_path / "pushed").iterdir()} == {"1", "history"}
    assert "pruned 50%" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["local", "beam"])
def test_all_of_it_runs_and_each_candidate_tells_its_ancestry(trained, tmp_path, name):
    told = run(trained, tmp_path, name)
    names = [model["name"] for model in told["models"]]
    assert len(names) == len(set(names)) == 1 + sum(map(len, shrink.EXPORTS.values()))
    assert "pruned 50% + clustered 8 + quantized, tflite int8" in names
    assert not [model for model in told["models"] if "could not be measured" in " ".join(model["reasons"])]
    assert "second round of 1 epochs" in (told["folder"] / "report.html").read_text()


def run(trained: dict[str, Path], folder: Path, name: str, **given) -> dict:
    values = {**trained, **QUICK, **given, "destination": str(folder / "pushed")}
    left = engine.run(load("shrink"), values, folder / "root", engine=name)
    decision = left["select_model"].outputs["decision"]
    print_summary(decision, left["evaluate"].outputs["evaluation"], left["benchmark"].outputs["benchmark"])
    assert Model.open(left["select_model"].outputs["selected"].path)
    return json.loads((decision.path / "decision.json").read_text()) | {"folder": decision.path}
