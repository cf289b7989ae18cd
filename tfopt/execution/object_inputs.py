"""Save the Python objects that a component is called with: models and data of a notebook become artifacts."""

import contextlib
import hashlib
import io
import logging
import os
import re
import sys
import tempfile
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tfopt import runtimes
from tfopt.artifacts import Examples, Files, Model
from tfopt.artifacts.base import is_location
from tfopt.artifacts.reproducible_files import make_saved_model_reproducible
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data import object_records
from tfopt.data.feature_schema import required_features
from tfopt.data.object_columns import Naming, type_name
from tfopt.data.object_records import ObjectRecords
from tfopt.declaration.component import SIGNATURE, Component
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.storage import staging
from tfopt.storage.owned_files import is_own
from tfopt.storage.remote_files import local_copy

log = logging.getLogger(__name__)

LABEL = "label"  # the name of labels, if none is given
SHARES = {"train": 8, "eval": 2}  # as prepare_examples divides rows
KERAS = ("keras", "tf_keras")
ACCEPTED = "a Keras model, a tf.Module, or the path of a model"


class ModelObject(Protocol):
    """A model in memory: of Keras 3 or tf_keras, a ``tf.Module``, or what ``tf.saved_model.load`` returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""


class Array(Protocol):
    """An array, a tensor, or a column of a DataFrame."""

    def __array__(self) -> Any:
        """Return a numpy array."""


class Dataset(Protocol):
    """A ``tf.data.Dataset`` of (x, y), or of a mapping, batched or not."""

    @property
    def element_spec(self) -> Any:
        """The types and shapes of an element."""


Location: TypeAlias = str | PathLike[str]  # a path, or an artifact
Data: TypeAlias = Array | tuple[Any, Any] | Mapping[str, Any] | Dataset  # a DataFrame is an Array


def save_objects(component: Component, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call, with artifacts instead of the objects among its inputs.

    They are saved in the temporary folder of this process, each once.

    Raises:
        ComponentError: If an object is neither a model nor data, or cannot be saved.
    """
    saved = dict(arguments)
    folder = Path(tempfile.gettempdir(), "objects")
    ports = component.inputs.items()
    objects = {name: port for name, port in ports if not is_location(arguments.get(name), port.many)}
    for name, port in objects.items():
        if issubclass(port.type, Model):
            is_list = port.many and isinstance(saved[name], list | tuple)
            models = [save_model(item, folder) for item in (saved[name] if is_list else [saved[name]])]
            saved[name] = models if port.many else models[0]
    signature = str(arguments.get(SIGNATURE.name, SIGNATURE.default))
    for name, port in objects.items():
        if issubclass(port.type, Examples | Files):
            naming = _naming(component, arguments, saved, signature)
            if naming.needs_label:
                saved.setdefault("label", naming.label)
            shares = SHARES if issubclass(port.type, Examples) else {"all": 1}
            data = save_data(arguments[name], folder, naming, shares)
            saved[name] = data if issubclass(port.type, Examples) else data.split("all")[0]
        elif not issubclass(port.type, Model):
            received = f"{component.name}: {name}, {type_name(arguments[name])}"
            raise ComponentError(received, f"{port.type.__name__}: {port.type.contents}", f"pass {name}=PATH")
    return saved


def save_model(model: Any, folder: Path) -> Model:
    """Return a model as an artifact; an object is saved in a folder, once for each content.

    Raises:
        ComponentError: If it is no model of TensorFlow, was never built, or cannot be saved.
    """
    if is_location(model):
        return Model(os.fspath(model))
    library = _library(model)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(getattr(model, "name", "model") or "model"))
    target = folder / _model_digest(model)[:16] / name
    if not _is_saved(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with staging.staged_folder(target.parent) as stage:
            _write_model(model, library, stage / name)
            (stage / name).rename(target)
        log.info("model %s: saved in %s", name, target)
    return Model(target)


def save_data(data: Any, folder: Path, naming: Naming, shares: Mapping[str, int]) -> Examples:
    """Return data as an artifact; an object is saved in a folder, once for each content.

    Raises:
        ComponentError: If it is no data, has NaN or no label, or its arrays do not belong together.
    """
    if is_location(data):
        return Examples(os.fspath(data))
    records = ObjectRecords(data, naming, shares)
    target = folder / records.digest[:16] / "examples"
    if not _is_saved(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with staging.staged_folder(target.parent) as stage:
            counts = records.write(stage / "examples")
            (stage / "examples").rename(target)
        log.info("examples: %s in %s", ", ".join(f"{name} {count:,}" for name, count in counts.items()), target)
    return Examples(target)


def _is_saved(target: Path) -> bool:
    """Return True if an object was saved at a path; refuse a link or one of another user: it may be another object."""
    if os.path.lexists(target) and not is_own(target):
        received = f"{target}: a link, or a file or folder of another user"
        raise ComponentError(received, "what this user's runs saved", "pass another folder as path")
    return target.exists()


def model_naming(model: Any, saved: Model, label: str, signature: str, *, needs_label: bool) -> Naming:
    """Return the names of a model's inputs and outputs: those of an object in the order of Keras."""
    if _is_keras(model) and getattr(model, "inputs", None):
        from tfopt import keras_models  # for a Keras model only

        shapes = zip(keras_models.input_names(model), model.inputs, strict=True)
        inputs = {name: TensorSpec("", (None, *tensor.shape[1:])) for name, tensor in shapes}
        return Naming(label, inputs, tuple(keras_models.served_names(model)), True, needs_label)
    with runtimes.load(Model(local_copy(saved.uri)), signature=signature) as runtime:
        return Naming(label, required_features(runtime.inputs), tuple(runtime.outputs), False, needs_label)


def label_of(values: Mapping[str, Any], data: Any) -> str:
    """Return the name of the label: that of the evaluated output, if there are labels of several outputs."""
    output = values.get("output") if isinstance(_labels(data), Mapping | list | tuple) else None
    return str(values.get("label") or output or LABEL)


def label_names(data: Any, naming: Naming) -> Collection[str]:
    """Return the names of the outputs that have labels: those of a mapping, or all for a list of as many labels."""
    labels = _labels(data)
    if isinstance(labels, list | tuple) and naming.has_order and len(labels) == len(naming.outputs):
        return naming.outputs
    return list(labels) if isinstance(labels, Mapping) else ()


def _labels(data: Any) -> Any:
    """Return y of the first (x, y) in data, or of a dataset its types; None if there is none."""
    for part in data.values() if isinstance(data, Mapping) else [data]:
        pair = part.element_spec if object_records.is_dataset(part) else part
        if isinstance(pair, tuple) and len(pair) > 1:
            return pair[1]
    return None


def _naming(component: Component, arguments: Mapping[str, Any], saved: Mapping[str, Any], signature: str) -> Naming:
    """Return the names for the data of a call: those of its first model, if it has one."""
    data = next(arguments[name] for name, port in component.inputs.items() if issubclass(port.type, Examples | Files))
    label, needs_label = label_of(arguments, data), "label" in component.parameters
    for port in component.inputs.values():
        if issubclass(port.type, Model) and saved.get(port.name):
            model, artifact = _first(arguments[port.name]), Model(os.fspath(_first(saved[port.name])))
            if not artifact.failure:
                return model_naming(model, artifact, label, signature, needs_label=needs_label)
    return Naming(label, needs_label=needs_label)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) else value


def _library(model: Any) -> str:
    """Return what the object is from, keras or tensorflow; raise ComponentError for another one."""
    if _is_keras(model):
        if not model.built:
            received = f"model {model.name}: never built, so that its inputs are unknown"
            fix = "add keras.Input as its first layer, call fit, or call it once on data"
            raise ComponentError(received, "a model with inputs and weights", fix)
        return "keras"
    if "tensorflow" in sys.modules:
        tensorflow = sys.modules["tensorflow"]
        if isinstance(model, tensorflow.Module | tensorflow.__internal__.tracking.AutoTrackable):
            return "tensorflow"
    modules = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    fix = "pass the trained model, such as keras.Sequential or keras.Model, or the path where it is saved"
    if "torch" in modules:
        fix = "make a Keras model of the network, with its weights; benchmark and evaluate also compare an .onnx file"
    elif "sklearn" in modules:
        fix = "train a Keras model on the same data: tfopt init NAME --data TABLE --label COLUMN"
    elif (callable(model) and isinstance(model, type)) or type(model).__name__ == "function":
        fix = "call it, and pass the model that it returns"
    raise ComponentError(type_name(model), ACCEPTED, fix)


def _is_keras(model: object) -> bool:
    return any(base.__name__ == "Model" and base.__module__.partition(".")[0] in KERAS for base in type(model).__mro__)


def _model_digest(model: Any) -> str:
    """Return a digest of the layers and weights; of the object, instead of layers, if it has code of the user."""
    total = hashlib.sha256()
    if _is_keras(model) and not any(map(_is_own_code, [model, *model._flatten_layers()])):
        total.update(f"{type(model).__module__} {model.to_json()}".encode())
    else:
        total.update(object_records.object_token(model).encode())
    for weight in getattr(model, "weights", None) or getattr(model, "variables", None) or ():
        values = weight.numpy()
        total.update(f"{weight.name} {values.dtype} {values.shape}\0".encode() + values.tobytes())
    return total.hexdigest()


def _is_own_code(layer: object) -> bool:
    return type(layer).__module__.partition(".")[0] not in KERAS or type(layer).__name__ == "Lambda"


def _write_model(model: Any, library: str, folder: Path) -> None:
    """Write a Keras model with known inputs in both forms, and others as a SavedModel."""
    from tfopt import keras_models  # imports a library of models, which is imported already

    if library == "keras" and getattr(model, "inputs", None):
        keras_models.save(model, folder)
        return
    import tensorflow as tf

    target = folder / "Format-Serving"
    try:
        if library == "keras":  # a subclassed one
            with contextlib.redirect_stdout(io.StringIO()):  # Keras 2 prints endpoints
                model.export(str(target), **({} if keras_models.is_keras_2(model) else {"verbose": False}))
        else:
            tf.saved_model.save(model, str(target), signatures=dict(getattr(model, "signatures", {})) or None)
        make_saved_model_reproducible(target)
    except Exception as error:  # of TensorFlow's tracing, which runs code of the user
        received = f"{type_name(model)}: {first_line(error)}"
        fix = "save it with tf.saved_model.save and pass the path, or pass the path that it was loaded from"
        raise ComponentError(received, "a model that TensorFlow can save", fix) from error
    if not tf.saved_model.load(str(target)).signatures:
        fix = "decorate one method, such as __call__, with @tf.function(input_signature=[tf.TensorSpec(…)])"
        raise ComponentError(f"{type_name(model)}: no signature", "a function with known inputs", fix)
