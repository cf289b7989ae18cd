"""The chosen model as an artifact of its own, in the layout that TFX and `push_model` know."""

import json
import shutil
from pathlib import Path

from tfopt.artifacts import CARD, Model
from tfopt.artifacts.staging import link_tree


def hand_on(model: Model, name: str, selected: Model) -> None:
    """Put a model's files into ``selected``.

    An artifact folder is linked as it is, card and all: it never changes. What people have lying around (a file, a bare
    SavedModel) may change, so it is copied, into the artifact layout, with a card that says no more than is known.
    """
    serving = selected.path / "Format-Serving"
    if model.path.is_dir() and model.saved_model != model.path:
        link_tree(model.path, selected.path)
    elif model.saved_model:
        shutil.copytree(model.saved_model, serving)
    elif model.tflite:
        _copy(model.tflite, serving / "tflite")
    elif model.onnx:
        for file in model.payload():
            beside = file.relative_to(model.onnx.parent)  # where the file looks for its weights
            _copy(file, serving / ("model.onnx" if file == model.onnx else beside))
    elif model.openvino:
        for file in model.payload():
            _copy(file, serving / f"model{file.suffix}")
    elif model.keras:
        _copy(model.keras, selected.path / "Format-Keras" / f"model{model.keras.suffix}")
    if not (selected.path / CARD).exists():
        _write_card(model, name, selected.path)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _write_card(model: Model, name: str, folder: Path) -> None:
    handed = Model(folder)
    facts = {
        "name": name,
        "format": handed.format,
        "digest": handed.digest,
        "sizes": handed.sizes(),
        "came_as": model.uri,
    }
    (folder / CARD).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
