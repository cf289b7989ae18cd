"""Test the pipeline `shrink` nightly; daily, test_pipelines.py has its wiring, and test_readme.py runs the others."""

import json
import re
from pathlib import Path

import pytest

from tests.components.train_modules import write
from tests.conftest import write_examples
from tfopt.artifacts import Model
from tfopt.cli.engines import ENGINES, load_engine
from tfopt.cli.terminal.summary_table import print_summary
from tfopt.dag.tracing import load
from tfopt.pipelines import shrink

MODULE = """
import keras
from keras import layers

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.Rescaling(1 / 16)(image)
    flow = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(layers.Conv2D(16, 3, use_bias=False)(flow)))
    flow = layers.ReLU()(layers.Conv2D(24, 3)(flow))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(layers.Flatten()(flow)))
    # Eagerly: for the few steps, tracing would take most of the time.
    rate = keras.optimizers.Adam(1e-2)
    model.compile(rate, "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True)
    return model
"""
# The goal causes a second round for nearly every variant.
QUICK = {
    "epochs": 1,
    "recover": 1,
    "sparsity": 0.5,
    "clusters": 8,
    "seconds": 0.1,
    "batch_sizes": ["1"],
    "goals": ["accuracy threshold 1.0"],
}


@pytest.fixture
def trained(tmp_path) -> dict[str, Path]:
    from sklearn.datasets import load_digits

    from tfopt.components.train.component import train

    images, labels = load_digits(return_X_y=True)
    labels[:20] = (labels[:20] + 1) % 10  # two of them are held out: no model reaches the goal of QUICK there
    for split, rows in (("train", slice(320)), ("eval", slice(320, 400))):
        file = tmp_path / "examples" / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"
        write_examples(file, {"image": images[rows], "label": labels[rows]})
    module = write(tmp_path / "module.py", MODULE)
    train(tmp_path / "examples", module, tmp_path / "trained", epochs=4, batch_size=32)
    return {"model": tmp_path / "trained", "examples": tmp_path / "examples", "module": module}


@pytest.mark.nightly
def test_one_model_is_pushed_and_each_variant_is_reported(trained, tmp_path, monkeypatch, capsys):
    exports = dict.fromkeys(("pruned_clustered", "slim", "taught"), ("tflite int8",))
    monkeypatch.setattr(shrink, "EXPORTS", exports)
    decision = run(trained, tmp_path, "process", goals=["accuracy threshold 0.5"], teacher=trained["model"])
    names = [model["name"] for model in decision["models"]]
    assert names[:2] == ["trained", "pruned 50% + clustered 8, tflite int8"]
    assert re.fullmatch(r"pruned (\d+)% of flops, tflite int8", names[2])
    assert names[3:] == [names[2].replace("flops", "flops with a teacher")]
    assert decision["selected"] in names
    assert {path.name for path in (tmp_path / "pushed").iterdir()} == {"1", "history", "versions"}
    assert "pruned 50%" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("name", ENGINES)
def test_all_variants_run_and_their_names_show_their_lineage(trained, tmp_path, name):
    decision = run(trained, tmp_path, name)
    names = [model["name"] for model in decision["models"]]
    assert len(names) == len(set(names)) == 1 + sum(map(len, shrink.EXPORTS.values())) - len(shrink.SLIM)
    assert "pruned 50% + clustered 8 + quantized, tflite int8" in names
    assert not [model for model in decision["models"] if "could not be measured" in " ".join(model["reasons"])]
    assert "second round of 1 epochs" in (decision["folder"] / "report.html").read_text()


def run(trained: dict[str, Path], folder: Path, name: str, **more) -> dict:
    values = {**trained, **QUICK, **more, "destination": str(folder / "pushed")}
    dag = load("shrink")
    dag.steps["validate_serving"].parameters["seconds"] = 0.1
    outcomes = load_engine(name)(dag, values, folder / "root")
    decision = outcomes["select_model"].outputs["decision"]
    print_summary(decision, outcomes["evaluate"].outputs["evaluation"], outcomes["benchmark"].outputs["benchmark"])
    assert Model.open(outcomes["select_model"].outputs["selected"].path)
    return json.loads((decision.path / "decision.json").read_text()) | {"folder": decision.path}
