"""Models in every format, each with its ``model_card.json``."""

import gzip
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tfopt.artifacts.base import CARD, Artifact
from tfopt.errors import ComponentError


class Model(Artifact):
    """A trained model in any format, with its ``model_card.json``."""

    contents = "a model: SavedModel folder, .keras, .h5, .tflite, .onnx, or an artifact folder with Format-Serving/"

    @cached_property
    def saved_model(self) -> Path | None:
        """The folder that holds ``saved_model.pb``."""
        folders = (self.path / "Format-Serving", self.path)
        return next((folder for folder in folders if (folder / "saved_model.pb").is_file()), None)

    @cached_property
    def keras(self) -> Path | None:
        """The Keras form: a ``.keras`` or ``.h5`` file, or a SavedModel that Keras 2 wrote."""
        files = [self.path, *(self.path / "Format-Keras" / f"model.{kind}" for kind in ("keras", "h5"))]
        found = next((file for file in files if file.suffix in (".keras", ".h5") and file.is_file()), None)
        if found is None and self.saved_model and (self.saved_model / "keras_metadata.pb").is_file():
            return self.saved_model
        return found

    @cached_property
    def tflite(self) -> Path | None:
        """The LiteRT flatbuffer."""
        named = self.path / "Format-Serving" / "tflite"
        if named.is_file():
            return named
        return self.path if self.path.suffix == ".tflite" and self.path.is_file() else None

    @cached_property
    def onnx(self) -> Path | None:
        """The ONNX file."""
        named = self.path / "Format-Serving" / "model.onnx"
        if named.is_file():
            return named
        return self.path if self.path.suffix == ".onnx" and self.path.is_file() else None

    @property
    def format(self) -> str:
        """What is served and measured: ``tflite``, ``onnx``, ``saved_model`` or ``keras``.

        Raises:
            ComponentError: When it is none of them.
        """
        for name in ("tflite", "onnx", "saved_model", "keras"):
            if getattr(self, name):
                return name
        raise ComponentError(f"{self.uri}: no model in it", self.contents, "check the path")

    def check(self) -> None:
        """Raise ComponentError unless some format is there."""
        _ = self.format

    def payload(self) -> list[Path]:
        """The files that are deployed, of `format` only."""
        if self.format == "saved_model" and self.saved_model:
            return sorted(
                file
                for file in self.saved_model.rglob("*")
                if file.is_file() and file.name != "tflite" and file.name != CARD
            )
        return [self.tflite or self.onnx or self.keras or self.path]

    def sizes(self) -> dict[str, int]:
        """Bytes of the `payload`, raw and gzipped file by file."""
        files = self.payload()
        return {
            "raw": sum(file.stat().st_size for file in files),
            "gzipped": sum(len(gzip.compress(file.read_bytes(), 6, mtime=0)) for file in files),
        }

    @cached_property
    def card(self) -> dict[str, Any]:
        """The content of ``model_card.json``; empty for a model that never went through tfopt."""
        file = self.path / CARD
        return json.loads(file.read_text()) if file.is_file() else {}

    @property
    def name(self) -> str:
        """What people call it in tables: the card's name, else the file's or folder's."""
        return str(self.card.get("name") or self.path.name)


def unique_names(models: list[Model]) -> list[str]:
    """A name for each model of one table: its own, numbered where two share it."""
    names = [model.name for model in models]
    return [
        name if names.index(name) == index else f"{name} ({names[: index + 1].count(name)})"
        for index, name in enumerate(names)
    ]


class SavedModel(Model):
    """A TensorFlow SavedModel, ``Format-Serving/saved_model.pb``; the Keras form may ride along."""

    contents = "a SavedModel: Format-Serving/saved_model.pb, a bare SavedModel folder, or a .keras or .h5 file"

    def check(self) -> None:
        """Raise ComponentError unless there is a SavedModel, or a Keras file that says as much."""
        if not self.saved_model and not self.keras:
            raise ComponentError(f"{self.uri}: no saved_model.pb", self.contents, "export a SavedModel there")


class KerasModel(SavedModel):
    """A model that has its Keras form, ``Format-Keras/model.keras`` or ``.h5``, beside the SavedModel."""

    contents = "a Keras model: Format-Keras/model.keras or .h5, a bare .keras or .h5 file, or a Keras 2 SavedModel"

    def check(self) -> None:
        """Raise ComponentError unless there is a Keras form."""
        if not self.keras:
            raise ComponentError(
                f"{self.uri}: no Keras form",
                self.contents,
                "save the Keras model as Format-Keras/model.keras beside Format-Serving/",
            )


class TFLiteModel(Model):
    """A LiteRT model, ``Format-Serving/tflite``, beside the ``saved_model.pb`` it came from."""

    contents = "a LiteRT model: Format-Serving/tflite, or a .tflite file"

    def check(self) -> None:
        """Raise ComponentError unless there is a flatbuffer."""
        if not self.tflite:
            raise ComponentError(f"{self.uri}: no tflite file", self.contents, "make one with: tfopt export_tflite")


class OnnxModel(Model):
    """An ONNX model, ``Format-Serving/model.onnx``."""

    contents = "an ONNX model: Format-Serving/model.onnx, or a .onnx file"

    def check(self) -> None:
        """Raise ComponentError unless there is an ONNX file."""
        if not self.onnx:
            raise ComponentError(f"{self.uri}: no model.onnx", self.contents, "make one with: tfopt export_onnx")
