"""Test that plain pip, without the lock and without TFX, installs all that ``tfopt run retrain`` needs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import DIGITS, write

ROOT = Path(__file__).parents[2]
INSTALLED = "from importlib.metadata import distributions; print(*(d.name.lower() for d in distributions()))"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel from a copy, because setuptools writes into the source folder."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("tfopt", "components", "pipelines"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", target, source], check=True)
    return next(target.glob("*.whl"))


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_plain_pip_installs_all_that_retrain_needs(version, wheel, tmp_path):
    from sklearn.datasets import load_digits

    python = shutil.which(f"python{version}")
    if not python or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no python{version} on this machine")
    binaries = tmp_path / "venv" / "bin"
    subprocess.run([python, "-m", "venv", binaries.parent], check=True)
    subprocess.run([binaries / "pip", "install", "--quiet", f"{wheel}[tf,onnx,openvino]"], check=True)
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
