"""Test that plain pip, without the lock and without TFX, installs all that ``tfopt run retrain`` needs."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.chromium import measure
from tests.components.train_modules import DIGITS, write
from tests.deploy.distributions import distribution
from tests.kfp_server.server import KfpServer

INSTALLED = "from importlib.metadata import distributions; print(*(d.name.lower() for d in distributions()))"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    wheel, source = distribution().build(tmp_path_factory.mktemp("dist"))
    return wheel, source


def create_environment(version: str, folder: Path) -> Path:
    """Create an empty environment and return the folder of its programs."""
    python = shutil.which(f"python{version}")
    if not python or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no python{version} on this machine")
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin"


@pytest.mark.parametrize("version", ["3.11", "3.13"])
@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_plain_pip_installs_each_distribution_without_extras(kind, version, files, tmp_path):
    binaries = create_environment(version, tmp_path / "venv")
    subprocess.run([binaries / "pip", "install", "--quiet", files[kind == "source"]], check=True)
    subprocess.run([binaries / "pip", "check"], check=True)
    for words in (["list"], ["describe", "retrain"], ["train", "--help"]):
        subprocess.run([binaries / "tfopt", *words], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_plain_pip_installs_all_that_retrain_needs(version, files, tmp_path):
    from sklearn.datasets import load_digits

    binaries = create_environment(version, tmp_path / "venv")
    subprocess.run([binaries / "pip", "install", "--quiet", f"{files[0]}[tf,onnx,openvino]"], check=True)
    names = subprocess.run([binaries / "python", "-c", INSTALLED], capture_output=True, text=True, check=True).stdout
    assert {"tensorflow", "apache-beam"} <= set(names.split())
    assert not {"tfx", "ml-metadata", "kfp"} & set(names.split())

    folder = tmp_path / "empty folder"
    folder.mkdir()
    images, labels = load_digits(return_X_y=True)
    np.savetxt(tmp_path / "rows.csv", np.c_[images, labels], "%d", ",")
    values = {"data": tmp_path / "rows.csv", "module": write(tmp_path / "model.py", DIGITS), "pack": "image=8x8x1"}
    values |= {"epochs": 2, "seconds": 0.2, "destination": "pushed"}
    command = [binaries / "tfopt", "run", "retrain", "--json"]
    command += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    for is_reused in (False, True):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        steps = json.loads(done.stdout)
        assert {step: result["reused"] for step, result in steps.items()} == {
            step: is_reused and step != "push_model" for step in steps
        }
    decision = json.loads(Path(steps["select_model"]["outputs"]["decision"], "decision.json").read_text())
    assert {model["format"] for model in decision["models"]} >= {"saved_model", "tflite", "onnx", "openvino"}
    assert not any("could not be made" in " ".join(model["reasons"]) for model in decision["models"])
    assert (folder / "pushed" / "1").is_dir()
    assert not (folder / "runs" / "retrain" / "metadata.sqlite").exists()


CLUSTER = """
values: {data: "s3://bucket/wine.csv", module: "s3://bucket/model.py", destination: "s3://bucket/served"}
images: "registry.example/tfopt-{kind}:1"
server: {endpoint: "URL"}
schedule: {cron: "0 0 3 * * 1"}
"""
OWN_MODEL = """
import keras
from keras import layers

NUMBERS = [NAMES]

def build_model():
    inputs = [layers.Input((1,), name=name) for name in NUMBERS]
    flow = layers.BatchNormalization()(layers.Concatenate()(inputs))
    flow = layers.Dense(32, activation="relu")(flow)
    model = keras.Model(inputs, layers.Dense(3, activation="softmax", name="label")(flow))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def test_the_first_ten_minutes_of_a_new_user(files, tmp_path):
    """From an empty environment to a page, compiled YAML and a schedule, with a table and a network of the user."""
    from sklearn.datasets import load_wine

    seconds: dict[str, float] = {}

    def run(name: str, *words: str | Path, **options: str) -> str:
        start = time.monotonic()
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **options})
        seconds[name] = time.monotonic() - start
        assert done.returncode == 0, (name, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    binaries = create_environment("3.11", tmp_path / "venv")
    tfopt = binaries / "tfopt"
    run("pip install", binaries / "pip", "install", "--quiet", f"{files[0]}[tf,onnx,openvino,kfp]")
    table, labels = load_wine(return_X_y=True, as_frame=True)
    table.columns = [name.replace("/", "_").replace(" ", "_") for name in table.columns]
    table.assign(label=labels).sample(frac=4, replace=True, random_state=0).to_csv(tmp_path / "wine.csv", index=False)
    run("init", tfopt, "init", "wine", "--data", "wine.csv", "--label", "label")
    (tmp_path / "wine" / "model.py").write_text(OWN_MODEL.replace("NAMES", ", ".join(map(repr, table.columns))))
    assert "selected" in run("run", tfopt, "run", "-f", "wine/retrain.yaml")
    page = Path(run("open", tfopt, "open", "--print", "wine/run").strip().splitlines()[-1].removeprefix("file://"))
    shown = measure(tmp_path / page, {"rows": "page => page.querySelectorAll('tbody tr').length"})
    assert shown["rows"] >= 10 and not shown["console"]
    with KfpServer() as server:
        (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("URL", server.url))
        run("compile", tfopt, "compile", "-f", "wine/retrain.yaml", "-f", "cluster.yaml", "-o", "wine.yaml")
        run("schedule", tfopt, "schedule", "-f", "wine/retrain.yaml", "-f", "cluster.yaml")
        (schedule,) = server.kinds["recurringruns"].values()
    assert schedule["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * 1"}}
    print("; ".join(f"{name} {spent:.0f} s" for name, spent in seconds.items()))
    assert sum(seconds.values()) < 600
