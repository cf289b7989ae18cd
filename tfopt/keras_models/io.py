"""Load and save Keras 3 and Keras 2 models, and call them with named inputs and outputs."""

import contextlib
import functools
import importlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Any

from tfopt.artifacts import CARD, Model
from tfopt.artifacts.reproducible_files import make_archive_reproducible, make_saved_model_reproducible
from tfopt.artifacts.saved_model_proto import keep_served_graph, read_meta_graph
from tfopt.artifacts.tensor_spec import ParsedFeature
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.keras_models.archive import check_archive, check_stored_weights, check_weights_file, read_entry
from tfopt.keras_models.model_code import check_code, is_trusted
from tfopt.keras_models.quantization_aware import registered_layers
from tfopt.storage.staging import link_tree
from tfopt.value_types import Tensors

KerasObject = Any  # keras.Model or tf_keras.Model; they have no common base class
Specs = dict[str, Any]  # tf.TensorSpec by input name
MOST_NAMED = 5  # weights in an error


def load(model: Model) -> KerasObject:
    """Load the Keras form of a model with the Keras version that wrote it.

    Raises:
        ComponentError: If there is no Keras form, or it cannot be read.
    """
    if model.keras is None:
        expected = "Format-Keras/model.keras, .h5 or .hdf5, or such a file"
        raise ComponentError(f"{model.uri}: no Keras form", expected, "save the Keras model next to its SavedModel")
    _check_file(model.keras)
    try:
        keras = importlib.import_module("tf_keras" if _is_keras_2(model.keras) else "keras")
        trusted = is_trusted()
        with registered_layers(model), _safe_mode(keras, not trusted):
            if not trusted:
                check_code(model.keras, keras)
            return keras.models.load_model(model.keras, compile=False, safe_mode=not trusted)
    except ComponentError:
        raise
    except Exception as error:
        received = f"{model.keras}: {_first_line(error)}"
        fix = "save it again; it may be truncated, or use custom objects that are not registered"
        raise ComponentError(received, "a file this version of Keras can load", fix) from error


def _check_file(file: Path) -> None:
    """Refuse archives that are no archives or unpack to too much, weights in other files, and graphs with effects."""
    if file.suffix == ".keras":
        check_archive(file)
        check_stored_weights(file)
    elif file.is_file():
        check_weights_file(file, file)
    else:
        read_meta_graph(file)


def _safe_mode(keras: Any, safe: bool) -> contextlib.AbstractContextManager[Any]:
    """Return the mode for the formats of Keras 2, in which `load_model` does not set it."""
    scope: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if keras.__name__ == "tf_keras":
        scope = importlib.import_module("tf_keras.src.saving.serialization_lib").SafeModeScope(safe)
    return scope


def save(
    model: KerasObject,
    folder: Path,
    output_names: list[str] | None = None,
    records: tuple[str, Mapping[str, ParsedFeature]] | None = None,
) -> None:
    """Save a model as ``Format-Keras/model.keras`` and ``Format-Serving/saved_model.pb`` in an artifact folder.

    The SavedModel's ``serving_default`` has named inputs and outputs, named as by `serving_function`, and any batch
    size, unless `keeps_state`. With ``records``, a name and features, it has a single input instead: serialized
    tf.Example records, which it parses to the model's inputs.

    Raises:
        ComponentError: If a weight is NaN, an input's name is not allowed in a signature, or Keras cannot save the
            model.
    """
    import tensorflow as tf

    serve, specs = serving_function(model, output_names)
    check_input_names(model, specs)
    check_weights(model)
    (folder / "Format-Keras").mkdir(parents=True, exist_ok=True)
    try:
        model.save(folder / "Format-Keras" / "model.keras")
    except (NotImplementedError, TypeError, ValueError) as error:
        fix = "give custom layers a get_config() and register them with keras.saving.register_keras_serializable"
        raise ComponentError(f"model {model.name}: {_first_line(error)}", "a model that Keras can save", fix) from error
    make_archive_reproducible(folder / "Format-Keras" / "model.keras")
    body = serve.python_function  # type: ignore[attr-defined]  # with `serve` itself, the graph would be stored twice
    parse = (lambda inputs: inputs) if records is None else functools.partial(_parse_records, *records, specs)
    arguments = specs if records is None else {records[0]: tf.TensorSpec([None], tf.string, name=records[0])}
    signature = tf.function(lambda **inputs: body(parse(inputs)), autograph=False).get_concrete_function(**arguments)
    module = tf.Module()
    places = {id(tensor): place for place, tensor in enumerate(signature.graph.external_captures)}
    # `variables` comes from a set, whose order would be that of the checkpoint
    module.variables_used = sorted(
        signature.graph.variables, key=lambda variable: places.get(id(variable.handle), len(places))
    )
    kinds = tf.saved_model.experimental.TrackableResource  # lookup tables: a SavedModel must track them
    module.resources = [item for item in tf.train.TrackableView(model).descendants() if isinstance(item, kinds)]
    tf.saved_model.save(module, str(folder / "Format-Serving"), signatures={"serving_default": signature})
    make_saved_model_reproducible(folder / "Format-Serving")


def _parse_records(
    name: str, features: Mapping[str, ParsedFeature], specs: Specs, inputs: Mapping[str, Any]
) -> Tensors:
    import tensorflow as tf

    parsed = tf.io.parse_example(inputs[name], {key: feature.parser() for key, feature in features.items()})
    return {
        key: tf.reshape(parsed[key], [-1 if size is None else size for size in spec.shape])
        for key, spec in specs.items()
    }


def place_saved_model(model: Model, folder: Path) -> None:
    """Link a model's SavedModel into a new folder, without its model card, or export its Keras form there.

    Of several graphs, as TensorFlow 1 wrote them for training or for devices, only the one that is served is placed.
    """
    if model.saved_model:
        link_tree(model.saved_model, folder)
        (folder / CARD).unlink(missing_ok=True)
        keep_served_graph(folder)
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".keras-") as scratch:
        save(load(model), Path(scratch))
        Path(scratch, "Format-Serving").rename(folder)


def serving_function(model: KerasObject, output_names: list[str] | None = None) -> tuple[Callable[..., Any], Specs]:
    """Return a ``tf.function`` from named inputs to named outputs in inference mode, and its input signature.

    The model's inputs and outputs may be one tensor, a list, or a dict. The names of the outputs are in the order of
    ``model.outputs``; when None, they are the `served_names`.

    Raises:
        ComponentError: If the model was never built, so that its inputs are unknown, or the number of names is not
            the number of outputs.
    """
    import tensorflow as tf

    names = input_names(model)
    own_batch = keeps_state(model)
    specs = {
        name: tf.TensorSpec(
            [tensor.shape[0] if own_batch else None, *tensor.shape[1:]], tf.as_dtype(tensor.dtype), name=name
        )
        for name, tensor in zip(names, model.inputs, strict=True)
    }
    own = served_names(model)
    served = output_names or own
    if len(served) != len(own):
        received = f"{len(served)} output names: {', '.join(served)}"
        raise ComponentError(received, f"one for each of: {', '.join(own)}", "name every output")

    @tf.function(input_signature=[specs], autograph=False)  # type: ignore[untyped-decorator]
    def serve(inputs: Tensors) -> Tensors:
        results = outputs_by_name(model, model(pack_inputs(model, inputs), training=False))
        return dict(zip(served, results.values(), strict=True))

    return serve, specs


def keeps_state(model: KerasObject) -> bool:
    """Return whether a layer keeps state from call to call (``stateful=True``), which fixes the batch size."""
    return any(getattr(layer, "stateful", False) for layer in model._flatten_layers())


def is_keras_2(model: KerasObject) -> bool:
    """Return True if the object is from tf_keras (Keras 2)."""
    return any(base.__module__.startswith("tf_keras.") for base in type(model).__mro__)


def library(model: KerasObject) -> Any:
    """Return the package that the model was built with: ``keras`` or ``tf_keras``."""
    return importlib.import_module("tf_keras" if is_keras_2(model) else "keras")


def input_names(model: KerasObject) -> list[str]:
    """Return the input names, in the order of ``model.inputs``.

    Raises:
        ComponentError: If the model was never built, so that its inputs are unknown.
    """
    if not getattr(model, "inputs", None):
        fix = "define its inputs with keras.Input (a subclassed model can be called on them in a keras.Model)"
        raise ComponentError(f"{model.name}: a model without known inputs", "a Functional or Sequential model", fix)
    if is_keras_2(model):
        return list(model.input_names)
    return list(map(_input_name, model.inputs))


def served_names(model: KerasObject) -> list[str]:
    """Return the names of the outputs in a SavedModel, in the order of ``model.outputs``, without duplicates.

    Outputs in a dict are named by their keys, others by their layers; two outputs of layer ``d`` are ``d`` and ``d_1``.
    """
    if isinstance(model, library(model).Sequential):
        return [model.layers[-1].name]
    if isinstance(model.output, dict) and len(model.output) == len(model.outputs):
        positions = {id(tensor): position for position, tensor in enumerate(model.outputs)}
        return sorted(model.output, key=lambda key: (positions[id(model.output[key])], key))
    names: list[str] = []
    for name in model.output_names:
        same = (f"{name}_{number}" for number in range(1, len(model.output_names)))
        names.append(name if name not in names else next(new for new in same if new not in names))
    return names


def outputs_by_name(model: KerasObject, results: Any) -> Tensors:
    """Return the outputs of a call as a dict with the names and the order of `served_names`."""
    import tensorflow as tf

    own = served_names(model)
    by_key = isinstance(results, dict) and set(results) == set(own)
    return dict(zip(own, [results[name] for name in own] if by_key else tf.nest.flatten(results), strict=True))


def pack_inputs(model: KerasObject, tensors: Mapping[str, Any]) -> Any:
    """Pack named tensors into the structure of the model's inputs: one tensor, a list, or a dict."""
    if isinstance(model, library(model).Sequential):
        return tensors[input_names(model)[0]]
    if is_keras_2(model):
        import tensorflow as tf

        return tf.nest.pack_sequence_as(model.input, [tensors[name] for name in input_names(model)])
    return library(model).tree.map_structure(lambda tensor: tensors[_input_name(tensor)], model.input)


def _input_name(tensor: Any) -> str:
    """Return the name of an input's layer, which a file keeps; that of the tensor may be `keras_tensor` until then."""
    name: str = tensor._keras_history.operation.name
    return name


def check_weights(model: KerasObject) -> None:
    """Raise ComponentError if a weight contains NaN."""
    import tensorflow as tf

    broken = []
    for weight in model.weights:
        values = tf.convert_to_tensor(weight.numpy())
        if values.dtype.is_floating and (count := int(tf.math.count_nonzero(tf.math.is_nan(values)))):
            broken.append(f"{count} NaN in weight {getattr(weight, 'path', weight.name)}")
    if broken:
        more = f", and in {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
        fix = "train it again with a lower learning rate; further training does not remove a NaN"
        raise ComponentError(f"model {model.name}: {', '.join(broken[:MOST_NAMED])}{more}", "finite weights", fix)


def check_input_names(model: KerasObject, names: Iterable[str]) -> None:
    """Raise ComponentError for a name that a SavedModel would change, or cannot have.

    It serves ``my-image`` as ``my_image``, which is not the feature. TensorFlow makes a parameter of a function of each
    input, whose name is no keyword of Python.
    """
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or iskeyword(name):
            expected = (
                "a name of ASCII letters, digits and underscores that is no keyword of Python, as TensorFlow "
                "signatures have"
            )
            raise ComponentError(f"model {model.name}: input {name!r}", expected, "rename the input and the feature")


def _is_keras_2(file: Path) -> bool:
    if file.is_dir():
        return True
    if file.suffix == ".keras":
        try:
            version = json.loads(read_entry(file, "metadata.json"))["keras_version"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            received = f"{file}: no version in metadata.json ({first_line(error)})"
            raise ComponentError(received, "a .keras file", "save it again: it is damaged") from error
    else:
        import h5py

        with h5py.File(file) as archive:
            version = archive.attrs.get("keras_version", "3")
    return (version.decode() if isinstance(version, bytes) else str(version)).startswith("2.")


def _first_line(error: Exception) -> str:
    """Return the first line of the cause, without the configuration that Keras adds."""
    cause = str(error).rpartition("Exception encountered: ")[2].strip()
    return (cause.splitlines() or [type(error).__name__])[0].partition(" Full object config:")[0]
