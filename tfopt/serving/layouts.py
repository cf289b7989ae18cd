"""The files of a version folder, for each kind of model server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from tfopt.artifacts import CARD, Artifact, Examples, Model
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.models import PREPROCESSING, TAG
from tfopt.data.feature_schema import read_manifest
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_isolated
from tfopt.runtimes.tflite import stored_tensors
from tfopt.serving import warm_up
from tfopt.storage.staging import copy_tree

METADATA, LABELS = "metadata.json", "labels.txt"  # next to a plain LiteRT file
SAVED_MODEL = {"tf_serving": "", "triton": "model.savedmodel/", "plain": "saved_model/"}
# The formats that a layout can hold, in words too; a layout that is not here can hold every format.
SUPPORTED_FORMATS = {
    "tf_serving": (
        [name for name, format in FORMATS.items() if format.tf_serving],
        "a SavedModel, or a LiteRT model in one file, which is what TensorFlow Serving loads",
    ),
    "triton": (
        [name for name, format in FORMATS.items() if format.triton],
        "a SavedModel, or an ONNX, OpenVINO or TensorRT model in one file, for which Triton has backends",
    ),
}


class Version(Artifact):
    """A version folder; its digest is that of the model, so other warm-up requests do not make another version."""

    def files(self) -> Iterator[Path]:
        """Yield every file except the model card and the warm-up requests."""
        return (file for file in super().files() if file.relative_to(self.path) != warm_up.FILE)


def resolve_layout(model: Model, layout: str) -> str:
    """Return the layout itself, or for ``auto`` that of the usual server of the model's format."""
    if layout != "auto":
        return layout
    if model.preprocessing:  # no server runs both parts
        return "plain"
    return FORMATS[model.format].layout if model.format in FORMATS else "plain"  # a failed model has no format


def supports_format(layout: str, format: str) -> bool:
    """Return True if a layout can hold a format."""
    return layout not in SUPPORTED_FORMATS or format in SUPPORTED_FORMATS[layout][0]


def find_misfit(model: Model, layout: str) -> str | None:
    """Return what the server of a layout does not load in a model: its format, or a second part; None if it fits.

    `select_model` selects no such model, and `validate_serving` and `push_model` refuse it.
    """
    if not supports_format(layout, model.format):
        return model.format
    if layout in SUPPORTED_FORMATS and model.preprocessing:  # a server loads one model file
        return f"{model.format} after a preprocessing SavedModel"
    return None


def find_pusher_misfit(model: Model, layout: str) -> str | None:
    """Return why a copy of ``Format-Serving``, as TFX's Pusher makes it, is not what a server loads; None if it is."""
    if model.preprocessing:
        return "TFX's Pusher does not copy the saved_model.pb of a subfolder, here of the preprocessing"
    if layout not in SUPPORTED_FORMATS:  # a server of the user's own
        return None
    files = {file_name(model, file, layout): file for file in model.payload()}
    renamed = [name for name, file in files.items() if file != model.path / "Format-Serving" / name]
    if renamed:
        return f"TFX's Pusher does not rename files, and the server of layout={layout} loads {renamed[0]}"
    return None


def version_files(model: Model, layout: str) -> dict[str, Path]:
    """Return the files of a version by their path in its folder: `Model.payload` and the model card.

    Raises:
        ComponentError: If the layout cannot hold the model.
    """
    if misfit := find_misfit(model, layout):
        fix = (
            f"pass layout={layout!r} to select_model, too, which selects another model; "
            "or layout='plain', and run the files in your own server"
        )
        raise ComponentError(f"{model.uri}: {misfit}, layout={layout!r}", SUPPORTED_FORMATS[layout][1], fix)
    files = {file_name(model, file, layout): file for file in model.payload()}
    if (model.path / CARD).is_file():
        # TensorFlow Serving ignores unknown files in assets.extra.
        files[f"assets.extra/{CARD}" if layout == "tf_serving" else CARD] = model.path / CARD
    return files


def copy_model(model: Model, layout: str, folder: Path) -> None:
    """Copy `version_files` into a folder, without hard links: a served file must not change with a run's artifact."""
    for name, source in version_files(model, layout).items():
        copy_tree(source, folder / name)


class VersionFacts(TypedDict, total=False):
    """Descriptions of files next to a model, or why there are none; ``labels`` only for a plain LiteRT file."""

    warm_up: str
    labels: str


def write_version(model: Model, layout: str, folder: Path, examples: Examples | None, requests: int) -> VersionFacts:
    """Copy a model into a version folder, and write warm-up requests and class names of the examples for its server.

    Raises:
        ComponentError: If the layout cannot hold the format, the examples do not fit the model, or a plain LiteRT file
            cannot be read.
    """
    copy_model(model, layout, folder)
    arguments = model, layout, folder, examples, requests
    recorded = run_isolated(warm_up.record_requests, *arguments, doing="recording requests", writes=[folder])
    facts: VersionFacts = {"warm_up": recorded}
    if layout == "plain" and model.format == "tflite":
        facts["labels"] = _write_tflite_metadata(model, folder, examples)
    return facts


def _write_tflite_metadata(model: Model, folder: Path, examples: Examples | None) -> str:
    """Write metadata for apps, and the class names if they are known; return their source, or why there are none.

    LiteRT could hold such metadata inside the file, but tflite-support, the library for it, is no longer maintained.
    With separate files the pushed model is identical, bit by bit, to the measured one. They depend on the LiteRT file
    and the class names only, so that one model is one version under every name.
    """
    signature, inputs, outputs = stored_tensors(model)
    classes = read_manifest(examples.path).classes or [] if examples else []
    labelled = [name for name, facts in outputs.items() if classes and facts["shape"][-1:] == [len(classes)]]
    if labelled:
        (folder / LABELS).write_text("".join(f"{name}\n" for name in classes))
    metadata = {
        "signature": signature,
        "inputs": inputs,
        "outputs": {name: facts | {"labels": LABELS if name in labelled else None} for name, facts in outputs.items()},
    }
    (folder / METADATA).write_text(json.dumps(metadata, indent=1, ensure_ascii=False) + "\n")
    if labelled:
        return f"{len(classes)} classes of the examples, for {', '.join(labelled)}"
    return f"none: no output has {len(classes)} values" if classes else "none: no examples that name their classes"


def open_version(model: Model, layout: str, folder: Path) -> Model:
    """Open the model in a version folder that `write_version` wrote, at the path that its server opens."""
    if model.format == "saved_model":
        return Model(folder / SAVED_MODEL[layout])
    if model.preprocessing:  # next to the file
        return Model(folder)
    return Model(folder / next(name for name in version_files(model, layout) if not name.endswith((".bin", CARD))))


def file_name(model: Model, file: Path, layout: str) -> str:
    """Return the path in a version folder of one of the files that are deployed."""
    if model.preprocessing and file.is_relative_to(model.preprocessing):
        return f"{PREPROCESSING}/{file.relative_to(model.preprocessing).as_posix()}"
    if model.format == "saved_model" and model.saved_model:
        return SAVED_MODEL[layout] + file.relative_to(model.saved_model).as_posix()
    if model.format == "tensorrt":
        return file.name if file.name == TAG else "model.plan"
    if model.format == "onnx" and model.onnx and file != model.onnx:  # weights: the model refers to them by this path
        return file.relative_to(model.onnx.parent).as_posix()
    return f"model{file.suffix}" if file.suffix else f"model.{model.format}"
