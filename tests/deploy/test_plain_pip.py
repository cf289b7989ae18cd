"""Test that plain pip, without the lock and without TFX, installs all that ``tfopt run retrain`` needs."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import DIGITS, write
from tests.deploy.distributions import distribution

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
