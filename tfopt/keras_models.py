"""Keras 3 and Keras 2 models on disk: loaded from any form, saved in both, called as they are served."""

from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.errors import ComponentError

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
        if _is_keras_2(model.keras):
            import tf_keras

            return tf_keras.models.load_model(model.keras, compile=False)
        import keras

        return keras.models.load_model(model.keras, compile=False)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ComponentError(
            f"{model.keras}: {first}",
            "a file this version of Keras can load",
            "save it again; it may be truncated, or use custom objects that are not registered",
        ) from error


def is_keras_2(model: KerasObject) -> bool:
    """Whether the object is a tf_keras (Keras 2) one."""
    return any(base.__module__.startswith("tf_keras.") for base in type(model).__mro__)


def serving_function(model: KerasObject, output_names: list[str] | None = None) -> tuple[Any, Specs]:
    """Return a ``tf.function`` from named inputs to named outputs in inference mode, and its input signature.

    Args:
        model: A built model; inputs and outputs may be one tensor, a list, or a dict.
        output_names: What to call the outputs, in order; the model's own names when None.

    Raises:
        ComponentError: When the model was never built, so that its inputs are unknown.
    """
    import tensorflow as tf

    tensors = getattr(model, "inputs", None)
    if not tensors:
        raise ComponentError(
            f"{model.name}: a model without known inputs",
            "a built model",
            "call it once on data, or define its inputs with keras.Input",
        )
    names = input_names(model)
    specs = {
        name: tf.TensorSpec([None, *tensor.shape[1:]], tf.as_dtype(tensor.dtype), name=name)
        for name, tensor in zip(names, tensors, strict=True)
    }
    named_outputs = output_names or list(getattr(model, "output_names", None) or [])

    @tf.function(input_signature=[specs], autograph=False)  # type: ignore[untyped-decorator]
    def serve(inputs: dict[str, Any]) -> dict[str, Any]:
        nested = tf.nest.pack_sequence_as(_structure(model), [inputs[name] for name in names])
        results = model(nested, training=False)
        if isinstance(results, dict) and not output_names:
            return results
        flat = tf.nest.flatten(results)
        keys = named_outputs if len(named_outputs) == len(flat) else [f"output_{index}" for index in range(len(flat))]
        return dict(zip(keys, flat, strict=True))

    return serve, specs


def input_names(model: KerasObject) -> list[str]:
    """The model's input names, in the order of ``model.inputs``."""
    if is_keras_2(model):
        return list(model.input_names)
    return [tensor.name for tensor in model.inputs]


def save(model: KerasObject, folder: Path, output_names: list[str] | None = None) -> None:
    """Write both forms into an artifact folder: ``Format-Keras/model.keras`` and ``Format-Serving/saved_model.pb``.

    The SavedModel's ``serving_default`` takes the inputs and returns the outputs by name, with a free batch size.
    """
    import tensorflow as tf

    (folder / "Format-Keras").mkdir(parents=True, exist_ok=True)
    model.save(folder / "Format-Keras" / "model.keras")
    serve, specs = serving_function(model, output_names)
    module = tf.Module()
    module.weights = [getattr(weight, "value", weight) if not is_keras_2(model) else weight for weight in model.weights]
    module.serve = serve
    signature = tf.function(lambda **inputs: serve(inputs), autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(module, str(folder / "Format-Serving"), signatures={"serving_default": signature})


def _structure(model: KerasObject) -> Any:
    """How the model wants its inputs nested; both Keras versions keep that in a private name only."""
    functional = getattr(model, "_functional", None) or model
    for name in ("_inputs_struct", "_nested_inputs"):
        if getattr(functional, name, None) is not None:
            return getattr(functional, name)
    return list(model.inputs) if len(model.inputs) > 1 else model.inputs[0]


def _is_keras_2(file: Path) -> bool:
    if file.is_dir():
        return True
    if file.suffix == ".keras":
        import json
        import zipfile

        with zipfile.ZipFile(file) as archive:
            version = json.loads(archive.read("metadata.json")).get("keras_version", "3")
        return str(version).startswith("2.")
    import h5py

    with h5py.File(file) as archive:
        return str(archive.attrs.get("keras_version", "3")).startswith("2.")
