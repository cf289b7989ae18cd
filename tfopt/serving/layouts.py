"""What a version folder looks like from the inside, for each kind of server."""

import shutil
from pathlib import Path
from typing import Any

from tfopt.artifacts import CARD, Artifact, Examples, Model
from tfopt.artifacts.models import TAG
from tfopt.errors import ComponentError
from tfopt.serving import tflite_metadata as mobile
from tfopt.serving import warm_up
from tfopt.serving.triton_config import BACKENDS

SAVED_MODEL = {"tf_serving": "", "triton": "model.savedmodel/", "plain": "saved_model/"}
# The layout by format; "plain" for the others, which is what programs with ONNX Runtime or OpenVINO open.
SERVERS = {"saved_model": "tf_serving", "tflite": "tf_serving", "tensorrt": "triton"}
# What a server loads at all; the layouts that are not here take any format.
HELD = {"tf_serving": ("saved_model", "tflite"), "triton": tuple(BACKENDS)}


class Version(Artifact):
    """A version folder, whose digest is that of the model: other requests to warm up with make no other version."""

    def files(self) -> Any:
        """Every file but the model card and the warm-up requests."""
        return (file for file in super().files() if file.relative_to(self.path) != warm_up.FILE)


def layout_of(model: Model, layout: str) -> str:
    """The layout that was asked for; for ``auto``, the one in which the usual server of the format looks for it."""
    return SERVERS.get(model.format, "plain") if layout == "auto" else layout


def holds(layout: str, format: str) -> bool:
    """Whether a layout can hold a format."""
    return format in HELD.get(layout, (format,))


def contents(model: Model, layout: str) -> dict[str, Path]:
    """The files of a version by their place in its folder: `Model.payload` and the card.

    Raises:
        ComponentError: When the layout cannot hold the model's format.
    """
    if layout == "tf_serving" and not holds(layout, model.format):
        raise ComponentError(
            f"{model.uri}: format {model.format}, layout='tf_serving'",
            "a SavedModel or a LiteRT model, which is what TensorFlow Serving loads",
            "pass layout='plain' or 'auto', or export the model first",
        )
    if layout == "triton" and not holds(layout, model.format):
        raise ComponentError(
            f"{model.uri}: format {model.format}, layout='triton'",
            "a SavedModel, ONNX, OpenVINO or TensorRT model, for which Triton has backends",
            "pass layout='plain', or export the model first",
        )
    files = {_place(model, file, layout): file for file in model.payload()}
    if model.card:
        # TensorFlow Serving leaves assets.extra alone: the place for what belongs to a model, but not in its graph.
        files[f"assets.extra/{CARD}" if layout == "tf_serving" else CARD] = model.path / CARD
    return files


def copy(model: Model, layout: str, folder: Path) -> None:
    """Copy `contents` into a folder: what is served must not share its content with a run's artifact."""
    for place, source in contents(model, layout).items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def lay_out(model: Model, layout: str, folder: Path, examples: Examples | None, requests: int) -> dict[str, Any]:
    """Copy a model into a version folder, with what its server takes beside it.

    Args:
        model: In a format that the layout can hold (see `contents`).
        layout: ``tf_serving``, ``triton`` or ``plain``.
        folder: Made when it does not exist.
        examples: Where warm-up requests are recorded from, and labels are known from.
        requests: How many are recorded at most.

    Returns:
        What was written beside the model, or why nothing was: ``warm_up``, and ``labels`` for a plain LiteRT file.

    Raises:
        ComponentError: When the examples do not fit the model, or a plain LiteRT file cannot be read.
    """
    copy(model, layout, folder)
    facts = {"warm_up": warm_up.record(model, layout, folder, examples, requests)}
    if layout == "plain" and model.format == "tflite":
        facts["labels"] = mobile.describe(model, folder, examples)
    return facts


def entry(model: Model, layout: str, folder: Path) -> Model:
    """The model in a version folder that `lay_out` wrote, as its server opens it."""
    if model.format == "saved_model":
        return Model(folder / SAVED_MODEL[layout])
    return Model(folder / next(place for place in contents(model, layout) if not place.endswith((".bin", CARD))))


def _place(model: Model, file: Path, layout: str) -> str:
    if model.format == "saved_model" and model.saved_model:
        return SAVED_MODEL[layout] + file.relative_to(model.saved_model).as_posix()
    if model.format == "tensorrt":
        return file.name if file.name == TAG else "model.plan"
    if model.format == "onnx" and model.onnx and file != model.onnx:  # weights, which it knows by their place beside it
        return file.relative_to(model.onnx.parent).as_posix()
    return f"model{file.suffix}" if file.suffix else f"model.{model.format}"
