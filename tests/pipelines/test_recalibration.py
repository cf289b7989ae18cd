"""Test the recalibration of a drifted int8 model nightly: check_drift, `optimize` with new records, and the push."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.components.exporters import TFLITE, write_split
from tests.components.test_check_drift import EVAL, digits, record
from tfopt.cli.main import main

__all__ = ["digits"]  # a fixture


def check(served: Path, parent: Path, reference: Path, folder: Path, name: str) -> int:
    words = ["--model", served, "--parent", parent, "--reference", reference, "--recording", folder / "requests.jsonl"]
    return main(["check_drift", *map(str, words), "--drift", str(folder / name), "--detailed-exitcode"])


@pytest.mark.nightly
def test_a_drifted_int8_model_is_recalibrated_without_a_training(
    digits_model, digits_examples, digits, tmp_path, capsys
):
    images, labels = digits
    record(2 * images[:EVAL], tmp_path)
    served = tmp_path / "int8"
    TFLITE.export(digits_model, digits_examples, served, "int8")
    assert check(served, digits_model, digits_examples, tmp_path, "before") == 6
    recent = tmp_path / "recent"
    parts = np.split(np.arange(len(images)), [EVAL, 1000])
    for split, rows in (("train", parts[1]), ("eval", parts[2])):
        write_split(recent, {"image": 2 * images[rows].reshape(-1, 64), "label": labels[rows]}, split)
    values = {"model": digits_model, "examples": recent, "destination": tmp_path / "served", "objective": "size"}
    values |= {"seconds": 0.2, "goals": json.dumps(["quality max_degradation 3%"])}
    words = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    root = str(tmp_path / "run")
    assert main(["run", "optimize", *words, "--engine", "process", "--root", root, "--require-blessing"]) == 0
    pushed = tmp_path / "served" / "1"
    assert check(pushed, digits_model, recent, tmp_path, "after") == 0, capsys.readouterr()
