"""What flows between components: plain marker classes that know their own folder, and no engine.

A subclass is accepted wherever its base is: wiring a `TFLiteModel` into an ``Input[KerasModel]`` fails when the DAG is
built, wiring a `KerasModel` into an ``Input[SavedModel]`` does not. Whatever people have lying around is an artifact
too: a bare SavedModel folder, a ``.keras``, ``.h5``, ``.tflite`` or ``.onnx`` file, a folder of TFRecords.
"""

from tfopt.artifacts.base import CARD, Artifact
from tfopt.artifacts.data import Examples, Files, PythonModule
from tfopt.artifacts.models import KerasModel, Model, OnnxModel, SavedModel, TFLiteModel, unique_names
from tfopt.artifacts.reports import Benchmark, Blessing, Decision, Evaluation, Inspection, Pushed, Report

__all__ = [
    "CARD",
    "Artifact",
    "Benchmark",
    "Blessing",
    "Decision",
    "Evaluation",
    "Examples",
    "Files",
    "Inspection",
    "KerasModel",
    "Model",
    "OnnxModel",
    "Pushed",
    "PythonModule",
    "Report",
    "SavedModel",
    "TFLiteModel",
    "unique_names",
]
