"""Recognize models with quantization-aware training from their files, and register the layers that they need.

Their ranges are stored in TensorFlow's fake-quantization ops, in the SavedModel and in the Keras form.
"""

import contextlib
import importlib
import zipfile
from pathlib import Path

from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.keras_models.archive import read_entry

OP = b"FakeQuantWithMinMaxVars"
OURS, TOOLKIT = b"tfopt>FakeQuantize", b"QuantizeWrapper"  # in the configuration of a Keras 3 and a Keras 2 model


def has_trained_ranges(model: Model) -> bool:
    """Return True if the model has ranges from quantization-aware training with any tool."""
    if model.saved_model and OP in (model.saved_model / "saved_model.pb").read_bytes():
        return True
    configuration = _configuration(model.keras)
    return OURS in configuration or TOOLKIT in configuration


def check_not_quantized(model: Model) -> None:
    """Raise ComponentError if the model was quantized before, even if it has no model card."""
    if has_trained_ranges(model):
        received = f"{model.name}: a model that was quantized already"
        expected = "a model in floats: quantizing twice adds a second rounding error"
        raise ComponentError(received, expected, "give the model from before it was quantized")


def registered_layers(model: Model) -> contextlib.AbstractContextManager[None]:
    """Register the layers that quantization-aware training added to the model, so that Keras can load it."""
    configuration = _configuration(model.keras)
    if OURS in configuration:
        importlib.import_module("tfopt.keras_models.fake_quantization")  # registers them
    if TOOLKIT in configuration:
        toolkit = importlib.import_module("tensorflow_model_optimization")
        scope: contextlib.AbstractContextManager[None] = toolkit.quantization.keras.quantize_scope()
        return scope
    return contextlib.nullcontext()


def _configuration(file: Path | None) -> bytes:
    """Return the configuration of the layers in a Keras file, or in a Keras 2 SavedModel."""
    if file is None:
        return b""
    if file.is_dir():
        return (file / "keras_metadata.pb").read_bytes()
    return read_entry(file, "config.json") if zipfile.is_zipfile(file) else file.read_bytes()
