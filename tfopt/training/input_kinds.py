"""The form in which a feature comes to a model: dense, ragged, or sparse, as the input that takes it is declared."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import SparseSpec, dense
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.training.dataset import Source
from tfopt.training.user_module import UserModule

Form = Literal["dense", "ragged", "sparse"]
TOLERANCE = 1e-4  # of the output's range: sums in another order
FILLING = 3  # columns that no record needs
LOOKED_AT = 64  # records


def forms_of(model: Any) -> dict[str, Form]:
    """The form of each input of a Keras model, by name."""
    return {name: _form(tensor) for name, tensor in zip(keras_models.input_names(model), model.inputs, strict=True)}


def form_as_stored(spec: TensorSpec) -> Form:
    """The form in which no value is made up."""
    if isinstance(spec, SparseSpec):
        return "sparse"
    return "ragged" if spec.shape[1] is None else "dense"


def as_declared(model: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Give each tensor the form of the input that takes it."""
    forms = forms_of(model)
    return {name: _in(forms[name], tensor) if name in forms else tensor for name, tensor in tensors.items()}


def check_filling(model: Any, source: Source, user: UserModule) -> None:
    """Refuse a model that answers otherwise when rows are filled up, as they are where it is served.

    Args:
        model: From raw features to outputs.
        source: What it learns from.
        user: The module, for errors.

    Raises:
        ComponentError: When what was filled in changes an answer.
    """
    uneven = [name for name, spec in source.stored.items() if form_as_stored(spec) != "dense"]
    if not uneven:
        return
    raw = source.raw(LOOKED_AT)
    forms = as_declared(model, raw), {name: _filled(tensor) for name, tensor in raw.items()}
    answers = [keras_models.named(model, model(keras_models.arrange(model, one), training=False)) for one in forms]
    for name, apart in answers[0].items():
        mine, filled = np.asarray(dense(apart)), np.asarray(dense(answers[1][name]))
        if mine.shape != filled.shape or np.abs(mine - filled).max() > TOLERANCE * max(np.ptp(mine), 1e-6):
            named = [key for key in uneven if form_as_stored(source.stored[key]) == "ragged"] or uneven
            raise ComponentError(
                f"module {user.path}: output {name!r} changes when rows of {', '.join(named)} are filled up",
                "answers that do not depend on it: servers take rows of one length",
                "mask what is filled in (0, or no text), as Embedding(mask_zero=True) does for the layers after it",
            )


def _form(tensor: Any) -> Form:
    import tensorflow as tf

    kind = getattr(tensor, "type_spec", None)  # of Keras 2
    if getattr(tensor, "sparse", False) or isinstance(kind, tf.SparseTensorSpec):
        return "sparse"
    return "ragged" if getattr(tensor, "ragged", False) or isinstance(kind, tf.RaggedTensorSpec) else "dense"


def _in(form: Form, tensor: Any) -> Any:
    import tensorflow as tf

    if form == "dense":
        return dense(tensor)
    if form == "sparse":
        if isinstance(tensor, tf.RaggedTensor):
            return tensor.to_sparse()
        return tensor if isinstance(tensor, tf.SparseTensor) else tf.sparse.from_dense(tensor)
    if isinstance(tensor, tf.SparseTensor):
        return tf.RaggedTensor.from_sparse(tensor)
    return tensor if isinstance(tensor, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(tensor)


def _filled(tensor: Any) -> Any:
    """With more columns than any record needs."""
    import tensorflow as tf

    full = dense(tensor)
    if not isinstance(tensor, tf.RaggedTensor):
        return full
    return tf.pad(full, [[0, 0], [0, FILLING]], constant_values="" if full.dtype == tf.string else 0)
