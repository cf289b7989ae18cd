"""Artifact types: the typed files and folders that flow between components, independent of the engine.

A subclass is accepted wherever its base class is: wiring a `TFLiteModel` into an ``Input[KerasModel]`` fails when the
DAG is built, wiring a `KerasModel` into an ``Input[SavedModel]`` does not. Files that tfopt did not write are artifacts
too: a bare SavedModel folder, a ``.keras``, ``.h5``, ``.hdf5``, ``.tflite``, ``.onnx`` or ``.plan`` file, an ``.xml``
file with its ``.bin`` file, a folder of TFRecords.
"""

from tfopt.artifacts.base import CARD as CARD
from tfopt.artifacts.base import FAILURE as FAILURE
from tfopt.artifacts.base import Artifact as Artifact
from tfopt.artifacts.data import Anomalies as Anomalies
from tfopt.artifacts.data import Examples as Examples
from tfopt.artifacts.data import Files as Files
from tfopt.artifacts.data import PythonModule as PythonModule
from tfopt.artifacts.model_card import LineageStep as LineageStep
from tfopt.artifacts.model_card import ModelCard as ModelCard
from tfopt.artifacts.models import KerasModel as KerasModel
from tfopt.artifacts.models import Model as Model
from tfopt.artifacts.models import OnnxModel as OnnxModel
from tfopt.artifacts.models import OpenVINOModel as OpenVINOModel
from tfopt.artifacts.models import SavedModel as SavedModel
from tfopt.artifacts.models import StableHLOModel as StableHLOModel
from tfopt.artifacts.models import TensorRTModel as TensorRTModel
from tfopt.artifacts.models import TFLiteModel as TFLiteModel
from tfopt.artifacts.models import unique_names as unique_names
from tfopt.artifacts.reports import Benchmark as Benchmark
from tfopt.artifacts.reports import Blessing as Blessing
from tfopt.artifacts.reports import Comparison as Comparison
from tfopt.artifacts.reports import Decision as Decision
from tfopt.artifacts.reports import Drift as Drift
from tfopt.artifacts.reports import Evaluation as Evaluation
from tfopt.artifacts.reports import InfraBlessing as InfraBlessing
from tfopt.artifacts.reports import Inspection as Inspection
from tfopt.artifacts.reports import Pushed as Pushed
from tfopt.artifacts.reports import Recipe as Recipe
from tfopt.artifacts.reports import Replay as Replay
from tfopt.artifacts.reports import Report as Report
from tfopt.artifacts.reports import Sensitivities as Sensitivities
from tfopt.artifacts.reports import TrainingPlan as TrainingPlan
