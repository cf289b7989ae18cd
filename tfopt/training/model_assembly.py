"""Putting the user's model and preprocessing together: what is trained, what prepares its inputs, and what is saved."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import SparseSpec, manifest
from tfopt.errors import ComponentError, nearest
from tfopt.keras_models import io as keras_models
from tfopt.training.input_kinds import form_as_stored, forms_of
from tfopt.training.precision import AS_BUILT, layers_compute_in
from tfopt.training.user_module import UserModule

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Assembly:
    """The parts, which share their layers and so their weights.

    Attributes:
        model: The user's compiled model, which is trained.
        preprocessing: From raw features to the model's inputs by name; None without ``preprocess``.
        saved: From raw features to the model's outputs, one flat graph.
    """

    model: Any
    preprocessing: Any
    saved: Any

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """The raw features that the saved model takes."""
        return _specs(self.saved)


def assemble(
    user: UserModule, stored: Mapping[str, TensorSpec], examples: Examples, label: str, precision: str = AS_BUILT
) -> Assembly:
    """Call the user's functions and connect what they return.

    Args:
        user: The module.
        stored: Every feature as it is stored.
        examples: Their ``examples.json``, where there is one, knows the features' shapes.
        label: The feature that neither function may see.
        precision: What the layers of ``build_model`` compute in; ``preprocess`` computes in float32.

    Raises:
        ComponentError: When a function raises, or returns something else than it should.
    """
    with layers_compute_in(precision, user.path):
        model = user.call("build_model")
    _check_model(model, user, label)
    if user.function("preprocess") is None:
        return Assembly(model, None, model)
    keras = keras_models.library(model)
    forms = {name: form_as_stored(spec) for name, spec in stored.items()} | forms_of(model)
    hidden = {label, *(part for spec in stored.values() if isinstance(spec, SparseSpec) for part in spec.parts)}
    features = {
        name: keras.Input(
            spec.shape[1:], dtype=spec.dtype, name=name, sparse=forms[name] == "sparse", ragged=forms[name] == "ragged"
        )
        for name, spec in _raw(stored, _specs(model), _shapes(examples)).items()
        if name not in hidden and re.fullmatch(r"\w+", name)
    }
    prepared = _as_inputs(model, user, user.call("preprocess", dict(features)))
    sources = {id(source) for tensor in prepared.values() for source in keras.utils.get_source_inputs(tensor)}
    used = {name: tensor for name, tensor in features.items() if id(tensor) in sources}
    preprocessing = keras.Model(used, prepared, name="preprocessing")
    if preprocessing.trainable_weights:
        names = ", ".join(weight.name for weight in preprocessing.trainable_weights)
        raise ComponentError(
            f"module {user.path}: preprocess() uses weights that could be trained ({names})",
            "preprocessing that is fixed before training starts",
            "move those layers into build_model()",
        )
    return Assembly(model, preprocessing, _joined(keras, model, used, prepared))


def _check_model(model: Any, user: UserModule, label: str) -> None:
    bases = [f"{base.__module__.split('.')[0]}.{base.__name__}" for base in type(model).__mro__]
    if not {"keras.Model", "tf_keras.Model"} & set(bases):
        raise ComponentError(
            f"module {user.path}: build_model() returned {type(model).__name__}",
            "a compiled Keras model",
            "end it with: return model",
        )
    if not getattr(model, "compiled", getattr(model, "_is_compiled", False)):
        raise ComponentError(
            f"module {user.path}: build_model() returned a model that is not compiled",
            "a compiled Keras model",
            'call model.compile("adam", loss="…", metrics=[…]) before you return it',
        )
    if label in keras_models.input_names(model):
        raise ComponentError(
            f"module {user.path}: the model takes {label!r}, the label, as an input",
            "inputs that are known when the model is served",
            "rename that input, or name another label",
        )


def _raw(
    stored: Mapping[str, TensorSpec], wanted: Mapping[str, TensorSpec], shapes: Mapping[str, tuple[int | None, ...]]
) -> dict[str, TensorSpec]:
    """A feature named as a model's input takes its type and shape where its values allow, else as stored."""
    raw = {}
    for name, spec in stored.items():
        length, dtype, shape = spec.shape[1], spec.dtype, spec.shape[1:]
        if name in shapes and None not in shapes[name] and math.prod(size or 0 for size in shapes[name]) == length:
            shape = shapes[name] or (1,)
        same = wanted.get(name)
        if same and None not in same.shape[1:] and math.prod(size or 0 for size in same.shape[1:]) == length:
            shape = same.shape[1:]
        if same and dtype == "int64" and same.dtype != "string":
            dtype = same.dtype
        raw[name] = TensorSpec(dtype, (None, *shape))
    return raw


def _as_inputs(model: Any, user: UserModule, result: Any) -> Tensors:
    """What ``preprocess`` returned, by input name, in the types and shapes that the model takes."""
    wanted = _specs(model)
    if not isinstance(result, dict):
        result = {next(iter(wanted)): result} if len(wanted) == 1 else {"": result}
    for name in (*wanted, *result):
        if name not in result or name not in wanted:
            raise ComponentError(
                f"module {user.path}: preprocess() returned {', '.join(result) or 'one tensor'}",
                f"a dict with the model's inputs {', '.join(wanted)}",
                nearest(name, wanted),
            )
    is_tensor = keras_models.library(model).backend.is_keras_tensor
    for name, spec in wanted.items():
        got = _spec(result[name]) if is_tensor(result[name]) else type(result[name]).__name__
        if isinstance(got, str) or not _fits(got, spec):
            raise ComponentError(
                f"module {user.path}: preprocess() returned {name}: {got}",
                f"{spec}, as the model's input of that name",
                "convert and reshape it with Keras layers or keras.ops, or change the input",
            )
    return {name: result[name] for name in wanted}


def _joined(keras: Any, model: Any, used: Tensors, prepared: Tensors) -> Any:
    """From raw features to outputs in one flat graph: ``call`` repeats the layers, where the model would nest."""
    outputs = model.call(keras_models.arrange(model, prepared))
    inputs = used if len(used) > 1 else next(iter(used.values()))
    return keras.Model(inputs, outputs, name=model.name)


def _shapes(examples: Examples) -> dict[str, tuple[int | None, ...]]:
    facts = manifest(examples.path).get("features", {})
    return {name: tuple(feature["shape"]) for name, feature in facts.items() if "shape" in feature}


def _specs(model: Any) -> dict[str, TensorSpec]:
    names = keras_models.input_names(model)
    return {name: _spec(tensor) for name, tensor in zip(names, model.inputs, strict=True)}


def _spec(tensor: Any) -> TensorSpec:
    dtype = tensor.dtype if isinstance(tensor.dtype, str) else tensor.dtype.name
    return TensorSpec(dtype, (None, *tensor.shape[1:]))


def _fits(got: TensorSpec, wanted: TensorSpec) -> bool:
    floats = "float" in got.dtype and "float" in wanted.dtype  # layers cast those, under mixed precision
    same_rank = len(got.shape) == len(wanted.shape)
    sizes = same_rank and all(want in (None, have) for have, want in zip(got.shape, wanted.shape, strict=True))
    return sizes and (floats or got.dtype == wanted.dtype)
