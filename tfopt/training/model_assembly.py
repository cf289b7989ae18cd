"""Connect the user's model and preprocessing: the model that is trained, its input preparation, and the saved model."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfopt import keras_models
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import SparseSpec, read_manifest
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.training.compute.fused_batch_norm import fuse_batch_norms
from tfopt.training.compute.precision import AS_BUILT, layer_precision
from tfopt.training.datasets.input_kinds import input_kinds, stored_kind
from tfopt.training.user_module import UserModule
from tfopt.value_types import Tensors


@dataclass(frozen=True)
class Assembly:
    """Models that share their layers, and so their weights."""

    model: Any  # the user's compiled model, which is trained
    preprocessing: Any  # from raw features to the model's inputs by name; None if there is no ``preprocess``
    saved: Any  # from raw features to the model's outputs, one flat graph

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """The raw features that the saved model takes."""
        return _specs(self.saved)


def assemble(
    user: UserModule, stored: Mapping[str, TensorSpec], examples: Examples, label: str, precision: str = AS_BUILT
) -> Assembly:
    """Call the user's functions and connect what they return. The label is hidden from both functions.

    The features have the shapes in ``examples.json``, if there is one. The layers of ``build_model`` have the precision
    as their mixed-precision policy; ``preprocess`` computes in float32.

    Raises:
        ComponentError: If a function raises, or returns the wrong thing.
    """
    with layer_precision(precision, user.path):
        model = user.call("build_model")
    _check_model(model, user, label)
    fuse_batch_norms(model)
    if user.function("preprocess") is None:
        return Assembly(model, None, model)
    keras = keras_models.library(model)
    kinds = {name: stored_kind(spec) for name, spec in stored.items()} | input_kinds(model)
    sparse = [spec for spec in stored.values() if isinstance(spec, SparseSpec)]
    hidden = {label, *(part for spec in sparse for part in (spec.positions, spec.values))}
    manifest = read_manifest(examples.path).features or {}
    shapes = {name: tuple(feature.shape) for name, feature in manifest.items() if feature.shape is not None}
    features = {
        name: keras.Input(
            spec.shape[1:], dtype=spec.dtype, name=name, sparse=kinds[name] == "sparse", ragged=kinds[name] == "ragged"
        )
        for name, spec in _raw_specs(stored, _specs(model), shapes).items()
        if name not in hidden and re.fullmatch(r"\w+", name)
    }
    prepared = _check_prepared(model, user, user.call("preprocess", dict(features)))
    sources = {id(source) for tensor in prepared.values() for source in keras.utils.get_source_inputs(tensor)}
    used = {name: tensor for name, tensor in features.items() if id(tensor) in sources}
    preprocessing = keras.Model(used, prepared, name="preprocessing")
    if preprocessing.trainable_weights:
        names = ", ".join(weight.name for weight in preprocessing.trainable_weights)
        received = f"module {user.path}: preprocess() uses weights that could be trained ({names})"
        expected = "preprocessing that is fixed before training starts"
        raise ComponentError(received, expected, "move those layers into build_model()")
    outputs = model.call(keras_models.pack_inputs(model, prepared))  # a flat graph; calling the model would nest it
    inputs = used if len(used) > 1 else next(iter(used.values()))
    return Assembly(model, preprocessing, keras.Model(inputs, outputs, name=model.name))


def _check_model(model: Any, user: UserModule, label: str) -> None:
    bases = [f"{base.__module__.split('.')[0]}.{base.__name__}" for base in type(model).__mro__]
    if not {"keras.Model", "tf_keras.Model"} & set(bases):
        received = f"module {user.path}: build_model() returned {type(model).__name__}"
        raise ComponentError(received, "a compiled Keras model", "end it with: return model")
    check_compiled(model, user)
    if label in keras_models.input_names(model):
        received = f"module {user.path}: the model takes {label!r}, the label, as an input"
        expected = "inputs that are known when the model is served"
        raise ComponentError(received, expected, "rename that input, or name another label")


def check_compiled(model: Any, user: UserModule) -> None:
    """Raise ComponentError if a model that the module built is not compiled."""
    if not getattr(model, "compiled", getattr(model, "_is_compiled", False)):
        received = f"module {user.path}: build_model() returned a model that is not compiled"
        fix = 'call model.compile("adam", loss="…", metrics=[…]) before you return it'
        raise ComponentError(received, "a compiled Keras model", fix)


def check_same_keras(name: str, model: Any, other: Any, expected: str, fix: str) -> None:
    """Raise ComponentError if one of two models is a Keras 2 model and the other a Keras 3 model."""
    versions = ["Keras 2" if keras_models.is_keras_2(each) else "Keras 3" for each in (model, other)]
    if versions[0] != versions[1]:
        raise ComponentError(f"{name}: a {versions[0]} model", f"{versions[1]}, {expected}", fix)


def _raw_specs(
    stored: Mapping[str, TensorSpec], inputs: Mapping[str, TensorSpec], shapes: Mapping[str, tuple[int | None, ...]]
) -> dict[str, TensorSpec]:
    """Return the type and shape of each raw feature: those of the model input of its name if the values allow it."""
    raw = {}
    for name, spec in stored.items():
        length, dtype, shape = spec.shape[1], spec.dtype, spec.shape[1:]
        if name in shapes and None not in shapes[name] and math.prod(size or 0 for size in shapes[name]) == length:
            shape = shapes[name] or (1,)
        same = inputs.get(name)
        if same and None not in same.shape[1:] and math.prod(size or 0 for size in same.shape[1:]) == length:
            shape = same.shape[1:]
        if same and dtype == "int64" and same.dtype != "string":
            dtype = same.dtype
        raw[name] = TensorSpec(dtype, (None, *shape))
    return raw


def _check_prepared(model: Any, user: UserModule, result: Any) -> Tensors:
    """Return the result of ``preprocess`` by input name; raise if names, types or shapes are not the model's."""
    inputs = _specs(model)
    if not isinstance(result, dict):
        result = {next(iter(inputs)): result} if len(inputs) == 1 else {"": result}
    for name in (*inputs, *result):
        if name not in result or name not in inputs:
            received = f"module {user.path}: preprocess() returned {', '.join(result) or 'one tensor'}"
            raise ComponentError(received, f"a dict with the model's inputs {', '.join(inputs)}", nearest(name, inputs))
    is_tensor = keras_models.library(model).backend.is_keras_tensor
    for name, spec in inputs.items():
        returned = _spec(result[name]) if is_tensor(result[name]) else type(result[name]).__name__
        if isinstance(returned, str) or not _fits(returned, spec):
            received = f"module {user.path}: preprocess() returned {name}: {returned}"
            fix = "convert and reshape it with Keras layers or keras.ops, or change the input"
            raise ComponentError(received, f"{spec}, as the model's input of that name", fix)
    return {name: result[name] for name in inputs}


def _specs(model: Any) -> dict[str, TensorSpec]:
    names = keras_models.input_names(model)
    return {name: _spec(tensor) for name, tensor in zip(names, model.inputs, strict=True)}


def _spec(tensor: Any) -> TensorSpec:
    dtype = tensor.dtype if isinstance(tensor.dtype, str) else tensor.dtype.name
    return TensorSpec(dtype, (None, *tensor.shape[1:]))


def _fits(returned: TensorSpec, expected: TensorSpec) -> bool:
    floats = "float" in returned.dtype and "float" in expected.dtype  # under mixed precision, layers cast floats
    if len(returned.shape) != len(expected.shape) or not (floats or returned.dtype == expected.dtype):
        return False
    return all(size in (None, other) for other, size in zip(returned.shape, expected.shape, strict=True))
