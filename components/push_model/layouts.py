"""What a version folder looks like from the inside."""

from pathlib import Path

from tfopt.artifacts import CARD, Model
from tfopt.components.push_model.triton import BACKENDS
from tfopt.errors import ComponentError

SAVED_MODEL = {"tf_serving": "", "triton": "model.savedmodel/", "plain": "saved_model/"}


def contents(model: Model, layout: str) -> dict[str, Path]:
    """The files of a version by their place in its folder: `Model.payload` and the card.

    Raises:
        ComponentError: When the layout cannot hold the model's format.
    """
    if layout == "tf_serving" and model.format not in ("saved_model", "tflite"):
        raise ComponentError(
            f"{model.uri}: format {model.format}, layout='tf_serving'",
            "a SavedModel or a LiteRT model, which is what TensorFlow Serving loads",
            "pass layout='plain', or export the model first",
        )
    if layout == "triton" and model.format not in BACKENDS:
        raise ComponentError(
            f"{model.uri}: format {model.format}, layout='triton'",
            "a SavedModel or an ONNX model, for which Triton has backends",
            "pass layout='plain', or export the model first",
        )
    files = {_place(model, file, layout): file for file in model.payload()}
    if model.card:
        # TensorFlow Serving leaves assets.extra alone: the place for what belongs to a model, but not in its graph.
        files[f"assets.extra/{CARD}" if layout == "tf_serving" else CARD] = model.path / CARD
    return files


def _place(model: Model, file: Path, layout: str) -> str:
    if model.format == "saved_model" and model.saved_model:
        return SAVED_MODEL[layout] + file.relative_to(model.saved_model).as_posix()
    return f"model{file.suffix}" if file.suffix else f"model.{model.format}"
