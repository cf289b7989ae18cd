"""The table of model formats: names, files, runtimes, packages, exporters and model servers."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path


@dataclass(frozen=True)
class TritonBackend:
    """The names under which Triton runs a format."""

    platform: str  # value of ``platform`` in ``config.pbtxt``
    backend: str  # value of ``backend``, the newer field
    field: str  # the field that tfopt writes

    @property
    def config_line(self) -> str:
        """Return the line of ``config.pbtxt``."""
        return f'{self.field}: "{self.platform if self.field == "platform" else self.backend}"'


@dataclass(frozen=True, kw_only=True)
class Format:
    """A model format. Its runtime is the module ``tfopt.runtimes.NAME``."""

    name: str
    title: str  # the name in prose, with its article
    runtime: str  # the name of the software that runs it
    import_name: str  # the Python package of that software
    module: str  # the module to import before the load time is measured
    # paths in an artifact folder, the one that tfopt writes first, and in the folder of a pushed version
    files: tuple[str, ...]
    suffixes: tuple[str, ...] = ()  # suffixes of a bare file of this format
    companions: tuple[str, ...] = ()  # suffixes of files that must be next to the model file
    packages: tuple[str, ...] = ()  # distributions whose versions affect results
    converters: tuple[str, ...] = ()  # distributions whose versions affect the conversion
    exporter: str | None = None
    exported: str = "exported"  # that component's output
    layout: str = "plain"  # the serving layout that ``auto`` selects
    tf_serving: bool = False
    triton: TritonBackend | None = None  # the backend of Triton; None if there is none
    concurrent: bool = False  # True if several threads may call one loaded model at once

    def find(self, path: Path) -> Path | None:
        """Return the model file at a path, an artifact folder or the file itself; None if there is none."""
        files = [*(path / file for file in self.files), *([path] if path.suffix in self.suffixes else [])]
        return next((file for file in files if self._is_whole(file)), None)

    def _is_whole(self, file: Path) -> bool:
        return file.is_file() and all(file.with_suffix(suffix).is_file() for suffix in self.companions)


TENSORFLOW = ("tensorflow", "tensorflow-cpu")
KERAS = (*TENSORFLOW, "keras", "tf-keras")
KERAS_FILES = (".keras", ".h5", ".hdf5")

# In the order of detection: an artifact folder may hold the SavedModel or Keras model that an export came from.
FORMATS = {
    format.name: format
    for format in (
        Format(
            name="tflite",
            title="a LiteRT model",
            runtime="LiteRT",
            import_name="ai_edge_litert",
            module="ai_edge_litert.interpreter",
            files=("Format-Serving/tflite", "model.tflite", "tflite"),
            suffixes=(".tflite",),
            packages=("ai-edge-litert",),
            exporter="export_tflite",
            layout="tf_serving",
            tf_serving=True,
        ),
        Format(
            name="onnx",
            title="an ONNX model",
            runtime="ONNX Runtime",
            import_name="onnxruntime",
            module="onnxruntime",
            files=("Format-Serving/model.onnx", "model.onnx"),
            suffixes=(".onnx",),
            packages=("onnxruntime",),
            converters=("tf2onnx",),
            exporter="export_onnx",
            triton=TritonBackend("onnxruntime_onnx", "onnxruntime", "backend"),
            concurrent=True,
        ),
        Format(
            name="openvino",
            title="an OpenVINO model",
            runtime="OpenVINO",
            import_name="openvino",
            module="tfopt.runtimes.openvino_import",
            files=("Format-Serving/model.xml", "model.xml"),
            suffixes=(".xml",),
            companions=(".bin",),
            packages=("openvino",),
            converters=("nncf",),
            exporter="export_openvino",
            triton=TritonBackend("openvino", "openvino", "backend"),
        ),
        Format(
            name="stablehlo",
            title="a StableHLO model",
            runtime="XLA",
            import_name="tensorflow",
            module="tensorflow",
            files=("Format-Serving/model.mlirbc", "model.mlirbc"),
            suffixes=(".mlirbc",),
            companions=(".json",),
            packages=TENSORFLOW,
            exporter="export_stablehlo",
        ),
        Format(
            name="tensorrt",
            title="a TensorRT engine",
            runtime="TensorRT",
            import_name="tensorrt",
            module="tensorrt",
            files=("Format-Serving/model.plan", "model.plan"),
            suffixes=(".plan", ".engine"),
            exporter="convert_tensorrt",
            exported="converted",
            layout="triton",
            triton=TritonBackend("tensorrt_plan", "tensorrt", "platform"),
        ),
        Format(
            name="saved_model",
            title="a SavedModel",
            runtime="TensorFlow",
            import_name="tensorflow",
            module="tensorflow",
            files=(
                "Format-Serving/saved_model.pb",
                "saved_model.pb",
                "model.savedmodel/saved_model.pb",
                "saved_model/saved_model.pb",
            ),
            packages=TENSORFLOW,
            layout="tf_serving",
            tf_serving=True,
            triton=TritonBackend("tensorflow_savedmodel", "tensorflow", "platform"),
            concurrent=True,
        ),
        Format(
            name="keras",
            title="a Keras model",
            runtime="Keras",
            import_name="tensorflow",
            module="tensorflow",
            files=tuple(
                f"{place}model{end}" for place in ("Format-Keras/", "Format-Serving/", "") for end in KERAS_FILES
            ),
            suffixes=KERAS_FILES,
            packages=KERAS,
            concurrent=True,
        ),
    )
}
RUNTIME_PACKAGES = (*dict.fromkeys(name for format in reversed(FORMATS.values()) for name in format.packages), "numpy")
CONVERTERS = tuple(name for format in FORMATS.values() for name in format.converters)


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    versions = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
