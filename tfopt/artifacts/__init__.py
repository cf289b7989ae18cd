"""Artifact types: the typed files and folders that flow between components, independent of the engine.

A subclass is accepted wherever its base class is: wiring a `TFLiteModel` into an ``Input[KerasModel]`` fails when the
DAG is built, wiring a `KerasModel` into an ``Input[SavedModel]`` does not. Files that tfopt did not write are artifacts
too: a bare SavedModel folder, a ``.keras``, ``.h5``, ``.hdf5``, ``.tflite``, ``.onnx`` or ``.plan`` file, an ``.xml``
file with its ``.bin`` file, a folder of TFRecords.
"""

from tfopt.artifacts.base import CARD, FAILURE, Artifact
from tfopt.artifacts.data import Anomalies, Examples, Files, PythonModule
from tfopt.artifacts.model_card import LineageStep, ModelCard
from tfopt.artifacts.models import (
    KerasModel,
    Model,
    OnnxModel,
    OpenVINOModel,
    SavedModel,
    TensorRTModel,
    TFLiteModel,
    unique_names,
)
from tfopt.artifacts.reports import (
    Benchmark,
    Blessing,
    Comparison,
    Decision,
    Evaluation,
    InfraBlessing,
    Inspection,
    Pushed,
    Recipe,
    Report,
    TrainingPlan,
)

__all__ = [
    "CARD",
    "FAILURE",
    "Anomalies",
    "Artifact",
    "Benchmark",
    "Blessing",
    "Comparison",
    "Decision",
    "Evaluation",
    "Examples",
    "Files",
    "InfraBlessing",
    "Inspection",
    "KerasModel",
    "LineageStep",
    "Model",
    "ModelCard",
    "OnnxModel",
    "OpenVINOModel",
    "Pushed",
    "PythonModule",
    "Recipe",
    "Report",
    "SavedModel",
    "TFLiteModel",
    "TensorRTModel",
    "TrainingPlan",
    "unique_names",
]
