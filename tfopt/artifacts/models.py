"""Models in every format, each with its ``model_card.json``."""

import gzip
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from tfopt.artifacts.base import CARD, FAILURE, Artifact, below
from tfopt.artifacts.onnx_external_data import external_data
from tfopt.errors import ComponentError

TAG = "compatibility.json"  # beside a TensorRT engine: the machine it was built for
EXACT = ("fold_batch_norm", "optimize_graph")  # steps whose child answers as its parent does


class Model(Artifact):
    """A trained model in any format, with its ``model_card.json``."""

    contents = (
        "a model: SavedModel folder, .keras, .h5, .tflite, .onnx, .plan, .xml with .bin, or an artifact folder with "
        "Format-Serving/"
    )

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

    @cached_property
    def openvino(self) -> Path | None:
        """OpenVINO's ``.xml``, with its weights in the ``.bin`` of the same name beside it."""
        files = [self.path / "Format-Serving" / "model.xml", self.path / "model.xml", self.path]
        return next((file for file in files if file.suffix == ".xml" and file.with_suffix(".bin").is_file()), None)

    @cached_property
    def tensorrt(self) -> Path | None:
        """TensorRT's serialized engine; `tfopt.tensorrt.tag` says what lies beside it."""
        files = [self.path / "Format-Serving" / "model.plan", self.path / "model.plan", self.path]
        return next((file for file in files if file.suffix in (".plan", ".engine") and file.is_file()), None)

    @property
    def failure(self) -> str | None:
        """Why it could not be made, in a line; None for a model that is there."""
        file = self.path / FAILURE
        if not file.is_file():
            return None
        said = json.loads(file.read_text())
        return f"{said['received'].strip().splitlines()[0]} (how to fix: {said['how_to_fix']})"

    @property
    def format(self) -> str:
        """What is served and measured: ``tflite``, ``onnx``, ``openvino``, ``tensorrt``, ``saved_model`` or ``keras``.

        In place of a model that could not be made (`failure`) it is ``not_made``.

        Raises:
            ComponentError: When it is none of them.
        """
        if self.failure:
            return "not_made"
        for name in ("tflite", "onnx", "openvino", "tensorrt", "saved_model", "keras"):
            if getattr(self, name):
                return name
        raise ComponentError(f"{self.uri}: no model in it", self.contents, "check the path")

    def check(self) -> None:
        """Raise ComponentError unless some format is there."""
        _ = self.format

    def payload(self) -> list[Path]:
        """The files that are deployed, of `format` only.

        Raises:
            ComponentError: When weights of an ONNX file are not where it says.
        """
        if self.failure:
            return []
        if self.format == "saved_model" and self.saved_model:
            return [file for file in below(self.saved_model) if file.name not in ("tflite", CARD)]
        if self.format == "openvino" and self.openvino:
            return [self.openvino.with_suffix(".bin"), self.openvino]
        if self.format == "tensorrt" and self.tensorrt:
            tag = self.tensorrt.with_name(TAG)
            return [self.tensorrt, *([tag] if tag.is_file() else [])]
        if self.format == "onnx" and self.onnx:
            return [self.onnx, *external_data(self.onnx)]
        return [self.tflite or self.keras or self.path]

    def files(self) -> Iterator[Path]:
        """Every file, sorted; with a bare file goes what belongs to it: a ``.bin``, a tag, an ONNX file's weights."""
        if self.path.is_file() and (self.tensorrt or self.onnx):
            yield from self.payload()
            return
        yield from super().files()
        if self.path.is_file() and self.openvino:
            yield self.openvino.with_suffix(".bin")

    def sizes(self) -> dict[str, int]:
        """Bytes of the `payload`, raw and gzipped file by file; nothing for a model that was not made."""
        if self.failure:
            return {}
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
    """A name for each model of one table, the parent first: its own.

    Where two share one, as exports of several models do, each but the parent tells what was done to the parent:
    "pruned 80% + clustered 32, tflite int8". What is the same even then is numbered.
    """
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        made = [_ancestors(model, models[0]) for model in models[1:]]
        if any(steps != made[0] for steps in made):
            told = zip(map(" + ".join, made), names[1:], strict=True)
            names[1:] = [f"{steps}, {name}" if steps else name for steps, name in told]
    return [
        name if names.index(name) == index else f"{name} ({names[: index + 1].count(name)})"
        for index, name in enumerate(names)
    ]


def _ancestors(model: Model, parent: Model) -> list[str]:
    """The names of the steps between a parent and a model; those that keep the answers are not told."""
    made = [step for step in model.card.get("lineage") or [] if step]
    after = next((place + 1 for place, step in enumerate(made) if step.get("digest") == parent.digest), 0)
    return [str(step["name"]) for step in made[after:] if step.get("component") not in EXACT]


class SavedModel(Model):
    """A TensorFlow SavedModel, ``Format-Serving/saved_model.pb``; the Keras form may ride along."""

    contents = "a SavedModel: Format-Serving/saved_model.pb, a bare SavedModel folder, or a .keras or .h5 file"

    @cached_property
    def frozen_graph(self) -> Path | None:
        """A serialized GraphDef, ``.pb``, which says nothing of its inputs and outputs; `optimize_graph` reads it."""
        return self.path if self.path.suffix == ".pb" and self.path.is_file() else None

    def check(self) -> None:
        """Raise ComponentError unless there is a SavedModel, or a Keras file or a frozen graph that says as much."""
        if not self.saved_model and not self.keras and not self.frozen_graph:
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


class OpenVINOModel(Model):
    """An OpenVINO model, ``Format-Serving/model.xml`` with its weights in ``model.bin``."""

    contents = "an OpenVINO model: Format-Serving/model.xml with model.bin, or an .xml file with its .bin beside it"

    def check(self) -> None:
        """Raise ComponentError unless both files are there."""
        if not self.openvino:
            raise ComponentError(
                f"{self.uri}: no model.xml with a model.bin beside it",
                self.contents,
                "make one with: tfopt export_openvino",
            )


class TensorRTModel(Model):
    """A TensorRT engine, ``Format-Serving/model.plan``, with the machine it was built for in ``compatibility.json``."""

    contents = "a TensorRT engine: Format-Serving/model.plan, a .plan or .engine file, or TF-TRT's SavedModel"

    def check(self) -> None:
        """Raise ComponentError unless there is an engine, or a SavedModel that has engines in it."""
        if not self.tensorrt and not self.saved_model:
            raise ComponentError(f"{self.uri}: no model.plan", self.contents, "make one with: tfopt convert_tensorrt")
