"""Models that went through quantization-aware training: known by their files, loaded with the layers they need.

Their ranges are TensorFlow's fake-quantization ops, in the SavedModel and in the Keras form.
"""

import contextlib
import importlib
import zipfile
from pathlib import Path

from tfopt.artifacts import Model
from tfopt.errors import ComponentError

OP = b"FakeQuantWithMinMaxVars"
OURS, TOOLKIT = b"tfopt>FakeQuantize", b"QuantizeWrapper"  # in the configuration of a Keras 3 and a Keras 2 model


def has_trained_ranges(model: Model) -> bool:
    """Whether quantization-aware training left its ranges in the model, by whatever tool."""
    if model.saved_model and OP in (model.saved_model / "saved_model.pb").read_bytes():
        return True
    found = _configuration(model.keras) if model.keras else b""
    return OURS in found or TOOLKIT in found


def check_none(model: Model) -> None:
    """Raise ComponentError when the model was quantized before, whether or not it has a card that says so."""
    if has_trained_ranges(model):
        raise ComponentError(
            f"{model.name}: a model that was quantized already",
            "a model in floats: quantizing twice only adds up two roundings",
            "give the model from before it was quantized",
        )


def known_layers(model: Model) -> contextlib.AbstractContextManager[None]:
    """Let Keras find the layers of the model that quantization-aware training put there."""
    found = _configuration(model.keras) if model.keras else b""
    if OURS in found:
        importlib.import_module("tfopt.keras_models.fake_quantization")  # registers them
    if TOOLKIT in found:
        toolkit = importlib.import_module("tensorflow_model_optimization")
        scope: contextlib.AbstractContextManager[None] = toolkit.quantization.keras.quantize_scope()
        return scope
    return contextlib.nullcontext()


def _configuration(file: Path) -> bytes:
    """What a Keras file says of its layers; a Keras 2 SavedModel says it beside its graph."""
    if file.is_dir():
        return (file / "keras_metadata.pb").read_bytes()
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            return archive.read("config.json") if "config.json" in archive.namelist() else b""
    return file.read_bytes()
