"""Test the pipeline `retrain` on real digits over several days: warm start, training plan, skipped training."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import DIGITS
from tfopt.artifacts import KerasModel, TrainingPlan
from tfopt.model_store.warm_start import load_model

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_unchanged_data_skips_training_and_changed_data_trains_from_the_last_model(tmp_path):
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    served, module = tmp_path / "served", tmp_path / "model.py"
    module.write_text(DIGITS)
    TrainingPlan(tmp_path / "plan").write({"settings": {"prefetch": 4}})

    def run(name: str, pixels: np.ndarray, **more: object) -> tuple[KerasModel, dict, str]:
        np.savetxt(tmp_path / f"{name}.csv", np.c_[pixels, labels], "%d", ",")
        values = {"data": tmp_path / f"{name}.csv", "module": module, "pack": "image=8x8x1", "epochs": 4, **more}
        values |= {"seconds": 0.2, "destination": served, "warm_start": True, "min_change": 0.1}
        command = [sys.executable, "-m", "tfopt.run", "run", "retrain", "--json", "--root", str(tmp_path / "root")]
        command += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        outputs = {step: result["outputs"] for step, result in json.loads(done.stdout).items()}
        pushed = json.loads(Path(outputs["push_model"]["pushed"], "pushed.json").read_text())
        return KerasModel.open(outputs["train"]["trained"]), pushed, done.stderr

    first, pushed, log = run("first", images)
    assert "none yet, training starts from scratch" in log
    assert pushed["version"] == 1
    assert load_model(served).digest == first.digest

    again = images.copy()
    again[:5, 0] = 1  # a corner pixel that is always 0: other rows, on which the first model is as good
    same, _, log = run("same", again)
    assert "not trained: nothing changed" in log
    assert same.digest == first.digest

    other, pushed, log = run("other", images // 2, plan=tmp_path / "plan")
    assert "training, because of changes: feature image: mean" in log
    assert "from the plan: prefetch=4" in log
    assert other.card.facts["start"]["digest"] == first.digest
    assert other.card.facts["planned"] == {"prefetch": 4}
    assert load_model(served).digest == (other if pushed["path"] else first).digest
