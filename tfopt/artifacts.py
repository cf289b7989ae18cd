"""What flows between components: plain marker classes that know their own folder, and no engine.

A subclass is accepted wherever its base is: wiring a `TFLiteModel` into an ``Input[KerasModel]`` fails when the DAG is
built, wiring a `KerasModel` into an ``Input[SavedModel]`` does not. Whatever people have lying around is an artifact
too: a bare SavedModel folder, a ``.keras``, ``.h5`` or ``.tflite`` file, a folder of TFRecords.
"""

import gzip
import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tfopt.errors import ComponentError

CARD = "model_card.json"


class Artifact:
    """A file or folder somewhere, with what is known about it.

    Attributes:
        uri: Where it is; a local path, or an address such as ``gs://…`` for components that run on Beam.
        metadata: Plain values shown by the engines' interfaces and kept with the artifact.
    """

    contents = "a file or folder"
    page: str | None = None  # the file in it that people look at in an engine's interface

    def __init__(self, uri: str | Path, metadata: dict[str, Any] | None = None) -> None:
        """Point at a place, without looking at it."""
        self.uri = str(uri)
        self.metadata: dict[str, Any] = dict(metadata or {})

    def __fspath__(self) -> str:
        """Let ``open`` and ``Path`` take the artifact itself."""
        return self.uri

    @property
    def path(self) -> Path:
        """The local file or folder."""
        return Path(self.uri)

    @classmethod
    def open(cls, uri: str | Path, metadata: dict[str, Any] | None = None) -> Self:
        """Point at something that exists and holds what this type promises.

        Raises:
            ComponentError: When it does not.
        """
        artifact = cls(uri, metadata)
        if not artifact.path.exists():
            fix = "check the path" if artifact.path.parent.exists() else f"{artifact.path.parent} does not exist either"
            raise ComponentError(f"{uri}: no such file or folder", f"{cls.__name__}: {cls.contents}", fix)
        artifact.check()
        return artifact

    def check(self) -> None:
        """Raise ComponentError unless the content is whole. A step's outputs are checked too."""
        if not any(self.files()):
            raise ComponentError(
                f"{self.uri}: empty", f"{type(self).__name__}: {self.contents}", "give one with content"
            )

    def files(self) -> Iterator[Path]:
        """Every file, sorted, without the model card (which describes them)."""
        if self.path.is_file():
            yield self.path
        else:
            yield from (file for file in sorted(self.path.rglob("*")) if file.is_file() and file.name != CARD)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the names and contents of `files`."""
        total = hashlib.sha256()
        for file in self.files():
            name = file.relative_to(self.path).as_posix()
            with file.open("rb") as stream:
                total.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
        return total.hexdigest()


class Files(Artifact):
    """Raw data as it comes: a CSV, NPZ or TFRecord file, or a folder."""

    contents = "a data file or a folder of them"


class PythonModule(Artifact):
    """The user's Python file."""

    contents = "a Python file"

    def check(self) -> None:
        """Raise ComponentError unless it is a ``.py`` file."""
        if self.path.suffix != ".py" or not self.path.is_file():
            raise ComponentError(self.uri, "a Python file (.py)", "give the path of your module")


class Examples(Artifact):
    """TFX Examples: ``Split-NAME/*`` TFRecords of tf.Example; a bare folder or file of TFRecords is one split."""

    contents = "Split-NAME/ folders of TFRecord files of tf.Example"

    @cached_property
    def splits(self) -> dict[str, list[Path]]:
        """The record files of each split, sorted."""
        if self.path.is_file():
            return {"all": [self.path]}
        found = {
            folder.name.removeprefix("Split-"): sorted(file for file in folder.iterdir() if _is_data(file))
            for folder in sorted(self.path.glob("Split-*"))
        }
        bare = sorted(file for file in self.path.iterdir() if _is_data(file) and "tfrecord" in file.name)
        return found or ({"all": bare} if bare else {})

    def split(self, name: str) -> list[Path]:
        """The record files of one split.

        Raises:
            ComponentError: When there is no such split, or it has no files.
        """
        if not self.splits.get(name):
            have = ", ".join(self.splits) or "none"
            raise ComponentError(
                f"{self.uri}: split {name!r} missing or without files",
                f"one of its splits: {have}",
                "name another split, or prepare the examples again with it",
            )
        return self.splits[name]

    def check(self) -> None:
        """Raise ComponentError unless there is at least one record file."""
        if not any(self.splits.values()):
            raise ComponentError(f"{self.uri}: no records", self.contents, "make them with: tfopt prepare_examples")


class Model(Artifact):
    """A trained model in any format, with its ``model_card.json``."""

    contents = "a model: SavedModel folder, .keras, .h5, .tflite, or an artifact folder with Format-Serving/"

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

    @property
    def format(self) -> str:
        """What is served and measured: ``tflite``, ``saved_model`` or ``keras``.

        Raises:
            ComponentError: When it is none of them.
        """
        for name in ("tflite", "saved_model", "keras"):
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
        return [self.tflite or self.keras or self.path]

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


class Report(Artifact):
    """A folder with one JSON file for machines, and what people look at beside it."""

    file = "report.json"
    contents = "a folder with its JSON report"

    def check(self) -> None:
        """Raise ComponentError unless the JSON is there."""
        if not (self.path / self.file).is_file():
            raise ComponentError(
                f"{self.uri}: no {self.file}", self.contents, "give the output of the step that makes it"
            )

    def read(self) -> dict[str, Any]:
        """Return the JSON."""
        content: dict[str, Any] = json.loads((self.path / self.file).read_text())
        return content

    def write(self, content: dict[str, Any]) -> None:
        """Write the JSON; NaN is refused, since no other reader would take it."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / self.file).write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


class Evaluation(Report):
    """How well each model predicts, ``evaluation.json``: metrics, differences to the baseline, parity, slices."""

    file = "evaluation.json"
    contents = "a folder with evaluation.json"


class Benchmark(Report):
    """How fast and how large each model is, ``benchmark.json`` and the raw samples in ``samples.parquet``."""

    file = "benchmark.json"
    contents = "a folder with benchmark.json"


class Decision(Report):
    """Which model was chosen and why, ``decision.json``, and ``report.html`` for people."""

    file = "decision.json"
    page = "report.html"
    contents = "a folder with decision.json and report.html"


class Blessing(Report):
    """Whether the chosen model may be pushed: TFX's marker file BLESSED or NOT_BLESSED, and the reason."""

    file = "blessing.json"
    contents = "a folder with BLESSED or NOT_BLESSED and blessing.json"


class Pushed(Report):
    """Where the model went, ``pushed.json``."""

    file = "pushed.json"
    contents = "a folder with pushed.json"


def _is_data(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_"))
