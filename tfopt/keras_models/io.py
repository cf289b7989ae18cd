"""Keras 3 and Keras 2 models on disk: loaded from any form, saved in both, called as they are served."""

import importlib
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.artifacts.staging import link_tree
from tfopt.errors import ComponentError
from tfopt.keras_models.quantization_aware import known_layers

KerasObject = Any  # keras.Model or tf_keras.Model; the two share the names used here, and no base class
Specs = dict[str, Any]  # tf.TensorSpec by input name


def load(model: Model) -> KerasObject:
    """Load the Keras form with the Keras that wrote it.

    Raises:
        ComponentError: When there is no Keras form, or it cannot be read.
    """
    if model.keras is None:
        raise ComponentError(
            f"{model.uri}: no Keras form",
            "Format-Keras/model.keras or .h5, or such a file",
            "save the Keras model beside its SavedModel",
        )
    try:
        keras = importlib.import_module("tf_keras" if _is_keras_2(model.keras) else "keras")
        with known_layers(model):
            return keras.models.load_model(model.keras, compile=False)
    except Exception as error:
        raise ComponentError(
            f"{model.keras}: {_first_line(error)}",
            "a file this version of Keras can load",
            "save it again; it may be truncated, or use custom objects that are not registered",
        ) from error


def save(model: KerasObject, folder: Path, output_names: list[str] | None = None) -> None:
    """Write both forms into an artifact folder: ``Format-Keras/model.keras`` and ``Format-Serving/saved_model.pb``.

    The SavedModel's ``serving_default`` takes the inputs and returns the outputs by name, with a free batch size.

    Args:
        model: A built model.
        folder: The artifact folder.
        output_names: As for `serving_function`.

    Raises:
        ComponentError: When a weight is NaN, an input's name cannot be a signature's, or Keras cannot write the model.
    """
    import tensorflow as tf

    serve, specs = serving_function(model, output_names)
    _check_names(model, specs)
    check_weights(model)
    (folder / "Format-Keras").mkdir(parents=True, exist_ok=True)
    try:
        model.save(folder / "Format-Keras" / "model.keras")
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ComponentError(
            f"model {model.name}: {_first_line(error)}",
            "a model that Keras can write",
            "give custom layers a get_config() and register them with keras.saving.register_keras_serializable",
        ) from error
    body = serve.python_function  # type: ignore[attr-defined]  # through `serve`, the graph would be stored twice
    signature = tf.function(lambda **inputs: body(inputs), autograph=False).get_concrete_function(**specs)
    module = tf.Module()
    module.variables_used = list(signature.graph.variables)
    kinds = tf.saved_model.experimental.TrackableResource  # lookup tables; a SavedModel refuses what it cannot find
    module.resources = [item for item in tf.train.TrackableView(model).descendants() if isinstance(item, kinds)]
    tf.saved_model.save(module, str(folder / "Format-Serving"), signatures={"serving_default": signature})


def place_saved_model(model: Model, folder: Path) -> None:
    """Link a model's SavedModel into a new folder, or export one there from its Keras form."""
    if model.saved_model:
        link_tree(model.saved_model, folder)
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".keras-") as scratch:
        save(load(model), Path(scratch))
        Path(scratch, "Format-Serving").rename(folder)


def serving_function(model: KerasObject, output_names: list[str] | None = None) -> tuple[Callable[..., Any], Specs]:
    """Return a ``tf.function`` from named inputs to named outputs in inference mode, and its input signature.

    Args:
        model: A built model; inputs and outputs may be one tensor, a list, or a dict.
        output_names: What to call the outputs, in the order of ``model.outputs``; `served_names` when None.

    Raises:
        ComponentError: When the model was never built, so that its inputs are unknown, or the names are not as many
            as the outputs.
    """
    import tensorflow as tf

    names = input_names(model)
    specs = {
        name: tf.TensorSpec([None, *tensor.shape[1:]], tf.as_dtype(tensor.dtype), name=name)
        for name, tensor in zip(names, model.inputs, strict=True)
    }
    own = served_names(model)
    served = output_names or own
    if len(served) != len(own):
        raise ComponentError(
            f"{len(served)} output names: {', '.join(served)}",
            f"one for each of: {', '.join(own)}",
            "name every output",
        )

    @tf.function(input_signature=[specs], autograph=False)  # type: ignore[untyped-decorator]
    def serve(inputs: dict[str, Any]) -> dict[str, Any]:
        results = named(model, model(arrange(model, inputs), training=False))
        return dict(zip(served, results.values(), strict=True))

    return serve, specs


def is_keras_2(model: KerasObject) -> bool:
    """Whether the object is a tf_keras (Keras 2) one."""
    return any(base.__module__.startswith("tf_keras.") for base in type(model).__mro__)


def library(model: KerasObject) -> Any:
    """The package the model was made with, ``keras`` or ``tf_keras``."""
    return importlib.import_module("tf_keras" if is_keras_2(model) else "keras")


def input_names(model: KerasObject) -> list[str]:
    """The model's input names, in the order of ``model.inputs``.

    Raises:
        ComponentError: When the model was never built, so that its inputs are unknown.
    """
    if not getattr(model, "inputs", None):
        raise ComponentError(
            f"{model.name}: a model without known inputs",
            "a Functional or Sequential model",
            "define its inputs with keras.Input (a subclassed model can be called on them in a keras.Model)",
        )
    return list(model.input_names) if is_keras_2(model) else [tensor.name for tensor in model.inputs]


def served_names(model: KerasObject) -> list[str]:
    """What its outputs are called when served, in the order of ``model.outputs``, each name once.

    Outputs in a dict have their keys; others the name of their layer, and two of one layer become ``d`` and ``d_1``.
    """
    if isinstance(model, library(model).Sequential):
        return [model.layers[-1].name]
    if isinstance(model.output, dict) and len(model.output) == len(model.outputs):
        places = {id(tensor): place for place, tensor in enumerate(model.outputs)}
        return sorted(model.output, key=lambda key: (places[id(model.output[key])], key))
    names: list[str] = []
    for name in model.output_names:
        same = (f"{name}_{number}" for number in range(1, len(model.output_names)))
        names.append(name if name not in names else next(new for new in same if new not in names))
    return names


def named(model: KerasObject, results: Any) -> dict[str, Any]:
    """What a model returned, by the names in `served_names`, in their order."""
    import tensorflow as tf

    own = served_names(model)
    by_key = isinstance(results, dict) and set(results) == set(own)
    return dict(zip(own, [results[name] for name in own] if by_key else tf.nest.flatten(results), strict=True))


def arrange(model: KerasObject, tensors: Mapping[str, Any]) -> Any:
    """Nest named tensors as the model takes them: alone, in a list, or in a dict."""
    if isinstance(model, library(model).Sequential):
        return tensors[input_names(model)[0]]
    if is_keras_2(model):
        import tensorflow as tf

        return tf.nest.pack_sequence_as(model.input, [tensors[name] for name in input_names(model)])
    return library(model).tree.map_structure(lambda tensor: tensors[tensor.name], model.input)


def check_weights(model: KerasObject) -> None:
    """Raise ComponentError when a weight holds a NaN."""
    import tensorflow as tf

    for weight in model.weights:
        values = tf.convert_to_tensor(weight.numpy())
        broken = int(tf.math.count_nonzero(tf.math.is_nan(values))) if values.dtype.is_floating else 0
        if broken:
            raise ComponentError(
                f"model {model.name}: {broken} NaN in weight {getattr(weight, 'path', weight.name)}",
                "finite weights",
                "train it again with a lower learning rate; a NaN never goes away by itself",
            )


def _check_names(model: KerasObject, names: Iterable[str]) -> None:
    """A SavedModel would silently serve ``my-image`` as ``my_image``, and the features would not be found."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ComponentError(
                f"model {model.name}: input {name!r}",
                "a name of ASCII letters, digits and underscores, as TensorFlow signatures have",
                "rename the input and the feature",
            )


def _is_keras_2(file: Path) -> bool:
    if file.is_dir():
        return True
    if file.suffix == ".keras":
        with zipfile.ZipFile(file) as archive:
            version = json.loads(archive.read("metadata.json")).get("keras_version", "3")
    else:
        import h5py

        with h5py.File(file) as archive:
            version = archive.attrs.get("keras_version", "3")
    return (version.decode() if isinstance(version, bytes) else str(version)).startswith("2.")


def _first_line(error: Exception) -> str:
    """What went wrong, without the configuration that Keras quotes around it."""
    cause = str(error).rpartition("Exception encountered: ")[2].strip()
    return (cause.splitlines() or [type(error).__name__])[0].partition(" Full object config:")[0]
