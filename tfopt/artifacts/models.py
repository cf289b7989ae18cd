"""Model artifacts in every format, each with its ``model_card.json``."""

import contextlib
import gzip
import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tfopt.artifacts.base import CARD, FAILURE, Artifact, check_links, check_within, files_below
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.model_card import ModelCard
from tfopt.artifacts.onnx_external_data import external_data
from tfopt.artifacts.optimizer_state import without_optimizer
from tfopt.errors import ComponentError
from tfopt.reports import report_schema

SERVING_DEFAULT = "serving_default"  # the key of the signature that servers use unless a request names another
PREPROCESSING = "Format-Preprocessing"  # the SavedModel that turns text or records into the inputs of another format
TAG = "compatibility.json"  # next to a TensorRT engine: the machine that it was built for
GZIP_BLOCK = 16 << 20  # bytes; the blocks together differ by less than 0.1 % from one stream
EXTERNAL_BUFFERS = 8  # the field of a LiteRT model; those after it are also of other files
SERVING, TFX_OUTPUTS = "Format-Serving", ("model", "pushed_model")  # of TFX's Trainer and Pusher
EXACT = ("fold_batch_norm", "optimize_graph")  # components that do not change outputs


@dataclass(frozen=True)
class FailedModel:
    """The content of ``failure.json``: parts of the error that prevented the model."""

    schema_version: ClassVar[int] = 1
    received: str
    how_to_fix: str
    # True if a component refused to make it, and would again; False if another attempt may succeed, as after the crash
    # of a process
    is_lasting: bool = False


def _file_of(format: str) -> "cached_property[Path | None]":
    return cached_property(lambda model: FORMATS[format].find(model.path))


class Model(Artifact):
    """A trained model in any format, with its ``model_card.json``."""

    signature: str = SERVING_DEFAULT  # key of the signature that is run or converted, for formats with several
    contents = (
        "a model: SavedModel folder, .keras, .h5, .hdf5, .tflite, .onnx, .plan, .xml with .bin, .mlirbc with .json, or "
        "an artifact folder with Format-Serving/"
    )
    required: tuple[str, ...] = ()  # one of these properties must return a path; empty: any format
    missing = ""  # what the error says is missing, if it is not any format
    fix = ""

    @cached_property
    def saved_model(self) -> Path | None:
        """Return the folder that holds ``saved_model.pb``, if there is one."""
        file = FORMATS["saved_model"].find(self.path)
        return file.parent if file else None

    @cached_property
    def keras(self) -> Path | None:
        """Return the Keras model: a ``.keras``, ``.h5`` or ``.hdf5`` file, or a SavedModel that Keras 2 wrote."""
        file = FORMATS["keras"].find(self.path)
        if file is None and self.saved_model and (self.saved_model / "keras_metadata.pb").is_file():
            return self.saved_model
        return file

    tflite = _file_of("tflite")
    onnx = _file_of("onnx")
    openvino = _file_of("openvino")  # the ``.xml`` file, which has its weights in the ``.bin`` file of the same name
    stablehlo = _file_of("stablehlo")  # the ``.mlirbc`` file, with its signature in the ``.json`` file of the same name
    tensorrt = _file_of("tensorrt")  # the serialized engine; `tfopt.tensorrt.tag` describes the tag next to it

    @cached_property
    def preprocessing(self) -> Path | None:
        """Return the folder of the SavedModel that runs before a model in another format, if there is one."""
        folders = (self.path / "Format-Serving" / PREPROCESSING, self.path / PREPROCESSING)
        return next((folder for folder in folders if (folder / "saved_model.pb").is_file()), None)

    @property
    def is_worth_another_attempt(self) -> bool:
        """Return True if the model could not be made, and another attempt may succeed."""
        error = self._failed_model
        return error is not None and not error.is_lasting

    @property
    def _failed_model(self) -> FailedModel | None:
        file = self.path / FAILURE
        return report_schema.load(FailedModel, file) if file.is_file() else None

    @property
    def failure(self) -> str | None:
        """Return why the model could not be made, in one line; None if the artifact holds a model."""
        if not (error := self._failed_model):
            return None
        return f"{(error.received.strip().splitlines() or [''])[0]} (how to fix: {error.how_to_fix})"

    @property
    def format(self) -> str:
        """Return the format that is served and measured: the first of `FORMATS` in the artifact.

        For a model that could not be made (`failure`) it is ``not_made``.

        Raises:
            ComponentError: If the artifact holds no model.
        """
        if self.failure:
            return "not_made"
        for name in FORMATS:
            if getattr(self, name):
                return name
        raise ComponentError(f"{self.uri}: no model in it", self.contents, "check the path")

    def check(self) -> None:
        """Raise ComponentError unless there is a model, for subclasses one of the `required` formats."""
        if self.path.is_dir():
            check_links(self.path)
        else:
            check_within(self.path.parent, (file for file in self.files() if file != self.path))
        self._check_weights()
        if self.saved_model and (metadata := self.saved_model / "keras_metadata.pb").is_dir():
            received, expected = f"{metadata}: a folder", "the file of the layers that Keras 2 writes, or none"
            raise ComponentError(received, expected, "restore it from where the model was saved")
        if not any(getattr(self, name) for name in self.required or ["format"]):
            raise ComponentError(f"{self.uri}: no {self.missing}", self.contents, self.fix)

    def _check_weights(self) -> None:
        """Raise ComponentError if a runtime would read weights from files that `payload` does not contain."""
        if self.onnx:
            external_data(self.onnx)
        if self.openvino and not _is_xml(self.openvino):
            expected = "an OpenVINO model; OpenVINO would read another format from this file, with other weights"
            raise ComponentError(f"{self.openvino}: no XML", expected, "name the file by its format, such as .onnx")
        if self.tflite and has_external_buffers(self.tflite):
            received = f"{self.tflite}: weights in other files"
            expected = "a LiteRT model with all of its weights"
            raise ComponentError(received, expected, "convert it again as a single file")

    def payload(self) -> list[Path]:
        """Return the files that are deployed: those of `format`, and of its `preprocessing`.

        Raises:
            ComponentError: If external weights of an ONNX file are missing.
        """
        if self.failure:
            return []
        return [*self._format_files(), *(files_below(self.preprocessing) if self.preprocessing else ())]

    def _format_files(self) -> list[Path]:
        if self.format == "saved_model" and self.saved_model:
            return [file for file in files_below(self.saved_model) if file.name != CARD]
        if self.format == "openvino" and self.openvino:
            return [self.openvino.with_suffix(".bin"), self.openvino]
        if self.format == "stablehlo" and self.stablehlo:
            return [self.stablehlo.with_suffix(".json"), self.stablehlo]
        if self.format == "tensorrt" and self.tensorrt:
            tag = self.tensorrt.with_name(TAG)
            return [self.tensorrt, *([tag] if tag.is_file() else [])]
        if self.format == "onnx" and self.onnx:
            return [self.onnx, *external_data(self.onnx)]
        return [getattr(self, self.format, None) or self.path]

    def files(self) -> Iterator[Path]:
        """Yield all files, sorted; for a bare file also its ``.bin`` or ``.json`` file, tag or ONNX weights."""
        if self.path.is_file() and (self.tensorrt or self.onnx or self.stablehlo):
            yield from self.payload()
            return
        yield from super().files()
        if self.path.is_file() and self.openvino:
            yield self.openvino.with_suffix(".bin")

    def sizes(self) -> dict[str, int]:
        """Return the size of the `payload` in bytes, raw and gzipped file by file; empty for a failed model.

        A Keras model or SavedModel counts without an optimizer's state, which prediction does not need. The gzipped
        size is that of the model card, if it is of these files: compressing a gigabyte takes half a minute.
        """
        if self.failure:
            return {}
        card = ModelCard.read(self.path)  # `card` would stay empty if it is written later
        gzipped = card.sizes.get("gzipped") if card.digest == self.digest else None
        with contextlib.ExitStack() as copies:
            files = [copies.enter_context(without_optimizer(file)) for file in self.payload()]
            if gzipped is None:
                gzipped = sum(map(_gzipped_size, files))
            return {"raw": sum(file.stat().st_size for file in files), "gzipped": gzipped}

    @cached_property
    def card(self) -> ModelCard:
        """Return the model card; an empty one if tfopt did not make the model."""
        return ModelCard.read(self.path)

    @property
    def name(self) -> str:
        """Return the name in tables: that of the model card, else that of the file or folder.

        A number is no name: the version ``mobilenet/1`` is ``mobilenet``, and TFX's folder ``Trainer/model/6`` is
        ``Trainer``.
        """
        return str(self.card.name or _folder_name(self.path.absolute()))


def _folder_name(path: Path) -> str:
    while path.name.isdecimal() or path.name == SERVING:
        path = path.parent
        # TFX's folders are COMPONENT/OUTPUT/NUMBER; the components begin with a capital letter, as their classes do
        if path.name in TFX_OUTPUTS and path.parent.name[:1].isupper():
            path = path.parent
    return path.name or "model"


def _is_xml(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def has_external_buffers(file: Path) -> bool:
    """Return True if a LiteRT file names other files for its weights; False for a damaged file.

    Source: LiteRT's schema.fbs; the first field of these, the ninth of a Model, is ``external_buffer_groups``.
    """
    with file.open("rb") as stream:
        try:
            (root,) = struct.unpack("<I", stream.read(4))
            stream.seek(root)
            (back,) = struct.unpack("<i", stream.read(4))
            stream.seek(root - back)
            fields = stream.read(struct.unpack("<H", stream.read(2))[0] - 2)[2:]
        except (struct.error, ValueError, OSError):
            return False
    return any(fields[2 * EXTERNAL_BUFFERS :])


def _gzipped_size(file: Path) -> int:
    """Return the size of a file in bytes after gzip; blocks of large files are compressed side by side, as by pigz."""

    def compress(start: int) -> int:
        return len(gzip.compress(os.pread(stream.fileno(), GZIP_BLOCK, start), 6, mtime=0))

    with file.open("rb") as stream, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return sum(threads.map(compress, range(0, file.stat().st_size or 1, GZIP_BLOCK)))


def unique_names(models: list[Model]) -> list[str]:
    """Return a unique name for each model of a table; the baseline comes first and has its own name.

    If two names are equal, as for exports of several models, the steps since the baseline are prepended:
    "pruned 80% + clustered 32, tflite int8". Names that are still equal are numbered.
    """
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        lineages = [_steps_between(models[0], model) for model in models[1:]]
        if any(steps != lineages[0] for steps in lineages):
            pairs = zip(map(" + ".join, lineages), names[1:], strict=True)
            names[1:] = [f"{steps}, {name}" if steps else name for steps, name in pairs]
    return [
        name if names.index(name) == index else f"{name} ({names[: index + 1].count(name)})"
        for index, name in enumerate(names)
    ]


def _steps_between(baseline: Model, model: Model) -> list[str]:
    """Return the names of the steps from a baseline to a model, without those that do not change outputs."""
    lineage = model.card.lineage
    start = next((index + 1 for index, step in enumerate(lineage) if step.digest == baseline.digest), 0)
    return [str(step.name) for step in lineage[start:] if step.component not in EXACT]


class SavedModel(Model):
    """A TensorFlow SavedModel, ``Format-Serving/saved_model.pb``, optionally with its Keras model."""

    contents = "a SavedModel: Format-Serving/saved_model.pb, a bare SavedModel folder, or a .keras, .h5 or .hdf5 file"
    required: tuple[str, ...] = ("saved_model", "keras", "frozen_graph")
    missing = "saved_model.pb"
    fix = "export a SavedModel there"

    @cached_property
    def frozen_graph(self) -> Path | None:
        """Return the path of a serialized GraphDef, ``.pb``, which has no signature; `optimize_graph` reads it."""
        return self.path if self.path.suffix == ".pb" and self.path.is_file() else None


class KerasModel(SavedModel):
    """A Keras model, ``Format-Keras/model.keras``, ``.h5`` or ``.hdf5``, next to its SavedModel."""

    contents = "a Keras model: Format-Keras/model.keras, .h5 or .hdf5, such a bare file, or a Keras 2 SavedModel"
    required: tuple[str, ...] = ("keras",)
    missing = "Keras form"
    fix = "save the Keras model as Format-Keras/model.keras next to Format-Serving/"


class TFLiteModel(Model):
    """A LiteRT model, ``Format-Serving/tflite``."""

    contents = "a LiteRT model: Format-Serving/tflite, or a .tflite file"
    required: tuple[str, ...] = ("tflite",)
    missing = "tflite file"
    fix = "make one with: tfopt export_tflite"


class OnnxModel(Model):
    """An ONNX model, ``Format-Serving/model.onnx``."""

    contents = "an ONNX model: Format-Serving/model.onnx, or a .onnx file"
    required: tuple[str, ...] = ("onnx",)
    missing = "model.onnx"
    fix = "make one with: tfopt export_onnx"


class OpenVINOModel(Model):
    """An OpenVINO model, ``Format-Serving/model.xml`` with its weights in ``model.bin``."""

    contents = "an OpenVINO model: Format-Serving/model.xml with model.bin, or an .xml file with its .bin"
    required: tuple[str, ...] = ("openvino",)
    missing = "model.xml with a model.bin"
    fix = "make one with: tfopt export_openvino"


class StableHLOModel(Model):
    """A portable StableHLO artifact, ``Format-Serving/model.mlirbc`` with its signature in ``model.json``."""

    contents = "a StableHLO model: Format-Serving/model.mlirbc with model.json, or an .mlirbc file with its .json"
    required: tuple[str, ...] = ("stablehlo",)
    missing = "model.mlirbc with a model.json"
    fix = "make one with: tfopt export_stablehlo"


class TensorRTModel(Model):
    """A TensorRT engine, ``Format-Serving/model.plan``, with its machine in ``compatibility.json``."""

    contents = "a TensorRT engine: Format-Serving/model.plan, a .plan or .engine file, or TF-TRT's SavedModel"
    required: tuple[str, ...] = ("tensorrt", "saved_model")  # TF-TRT writes engines into a SavedModel
    missing = "model.plan"
    fix = "make one with: tfopt convert_tensorrt"
