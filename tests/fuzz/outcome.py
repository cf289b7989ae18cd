"""Compare what a component made of a damaged input with what it makes of the intact one."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

VOLATILE = ("digest", "time", "uri", "model", "file", "seconds", "name", "received", "data", "path")


def same_outcome(one: Path, other: Path) -> bool:
    """Return True if two outputs have the same content: reports, records, and outputs of models."""
    return _content(one) == _content(other)


def reports_failure(output: Path) -> bool:
    """Return True if a report names the damage: a failed model or skipped records in `evaluate`, or no blessing."""
    evaluation, blessing = output / "evaluation.json", output / "infra_blessing.json"
    if evaluation.is_file():
        content = json.loads(evaluation.read_text())
        return bool(content["counts"]["skipped"]) or any(model["error"] for model in content["models"])
    return blessing.is_file() and not json.loads(blessing.read_text())["blessed"]


def keras_is_whole(path: Path) -> bool:
    """Return True if one of the releases of Keras loads a model."""
    for library in ("keras", "tf_keras"):
        try:
            importlib.import_module(library).models.load_model(path, compile=False)
        except Exception:
            continue
        return True
    return False


def _content(path: Path) -> Any:
    from tfopt.artifacts import Examples, Model
    from tfopt.data.tfrecords import read_records

    if (path / "saved_model.pb").is_file() or (path / "Format-Serving").is_dir() or (path / "Format-Keras").is_dir():
        return _outputs(Model(path))
    if any(path.glob("Split-*")):
        return {name: list(read_records(files)) for name, files in Examples(path).splits.items()}
    reports = sorted(file for file in path.glob("*.json") if file.name != "model_card.json")
    return {file.name: _steady(json.loads(file.read_text())) for file in reports}


def _outputs(model: Any) -> Any:
    from tfopt import runtimes
    from tfopt.data.sample_inputs import random_batch

    if model.format == "tflite" and model.tflite.stat().st_size < 100:  # of `tests.reports`: not a real model
        return model.digest
    with runtimes.load(model) as runtime:
        results = runtime.run(random_batch(runtime.inputs, records=4, seed=0))
        return {name: np.asarray(array).tolist() for name, array in results.items()}


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _steady(item) for key, item in value.items() if not any(word in key for word in VOLATILE)}
    return [_steady(item) for item in value] if isinstance(value, list) else value
