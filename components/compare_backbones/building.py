"""Making what is measured: a backbone with untrained weights, counted, and written for each runtime.

Each step is done in a process of its own: what crashes there is a row with its reason.
"""

import json
import math
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, Inspection
from tfopt.child import run_component, run_in_child
from tfopt.component import find
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.question import Question

EXPORTERS = {
    "tflite": ("export_tflite", "exported"),
    "onnx": ("export_onnx", "exported"),
    "openvino": ("export_openvino", "exported"),
    "tensorrt": ("convert_tensorrt", "converted"),
}


def build(module: Path, asked: Question, place: Path, budget: Budget) -> dict[str, Any]:
    """Save the module's model, untrained, into ``place/saved_model``, and return what `inspect_model` counted.

    Raises:
        ComponentError: When it cannot be built, or the budget is used up.
    """
    settled = asked.image, asked.label, asked.stored, asked.seed
    return run_in_child(
        _build, str(module), str(place), *settled, doing=f"building {module.stem}", limit_s=budget.left()
    )


def export(place: Path, kind: str, budget: Budget) -> Path:
    """Write the saved model for a runtime, below ``place`` too; return where it is.

    Raises:
        ComponentError: When it cannot be written, or the budget is used up.
    """
    saved = place / "saved_model"
    if kind == "saved_model":
        return saved
    step, output = EXPORTERS[kind]
    given = {"model": str(saved), output: str(place / kind)}
    run_component(step, given, doing=f"{step} of {place.name}", limit_s=budget.left())
    return place / kind


def _build(module: str, place: str, image: str, label: str, stored: tuple[int, int, int], seed: int) -> dict[str, Any]:
    """Be the process that builds."""
    from tfopt import keras_models
    from tfopt.components.compare_backbones.settling import settle
    from tfopt.runtimes import TensorSpec
    from tfopt.training.assembly import assemble
    from tfopt.training.reproducible import draw_from
    from tfopt.training.user_module import UserModule

    folder = Path(place)
    imagined = folder / "examples"  # such as `train` would get: their shape is all that matters here
    imagined.mkdir(parents=True)
    (imagined / "examples.json").write_text(json.dumps({"features": {image: {"shape": list(stored)}}}))
    draw_from(seed)
    features = {image: TensorSpec("float32", (None, math.prod(stored)))}
    parts = assemble(UserModule(Path(module)), features, Examples(imagined), label)
    settle(parts.saved, stored, seed)
    keras_models.save(parts.saved, folder / "saved_model")
    find("inspect_model")(model=folder / "saved_model", inspection=folder / "inspection")
    return Inspection(folder / "inspection").read()
