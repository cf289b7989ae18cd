"""The kind of tensor that each model input takes: dense, ragged, or sparse, as the input is declared."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfopt import keras_models
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import SparseSpec, densify
from tfopt.errors import ComponentError
from tfopt.measurement.parity import without_tensor_float_32
from tfopt.training.datasets.dataset import Source
from tfopt.training.user_module import UserModule
from tfopt.value_types import Tensors

InputKind = Literal["dense", "ragged", "sparse"]
TOLERANCE = 1e-4  # of the output's range: sums are added in another order
PADDING = 3  # columns more than any record needs
CHECKED_RECORDS = 64


def input_kinds(model: Any) -> dict[str, InputKind]:
    """Return the kind of each input of a Keras model, by name."""
    return {name: _kind(tensor) for name, tensor in zip(keras_models.input_names(model), model.inputs, strict=True)}


def stored_kind(spec: TensorSpec) -> InputKind:
    """Return the kind in which a stored feature needs no padding."""
    if isinstance(spec, SparseSpec):
        return "sparse"
    return "ragged" if spec.shape[1] is None else "dense"


def convert_inputs(model: Any, tensors: Mapping[str, Any]) -> Tensors:
    """Convert each tensor to the kind of the model input of its name."""
    kinds = input_kinds(model)
    return {name: _convert(kinds[name], tensor) if name in kinds else tensor for name, tensor in tensors.items()}


@without_tensor_float_32()
def check_padding(model: Any, source: Source, user: UserModule) -> None:
    """Raise ComponentError if the outputs of a model of raw features change when rows are padded, as in serving."""
    variable = [name for name, spec in source.stored.items() if stored_kind(spec) != "dense"]
    if not variable:
        return
    inputs = source.first_inputs(CHECKED_RECORDS)
    versions = convert_inputs(model, inputs), {name: _pad(tensor) for name, tensor in inputs.items()}
    outputs, padded_outputs = (
        keras_models.outputs_by_name(model, model(keras_models.pack_inputs(model, version), training=False))
        for version in versions
    )
    for name, output in outputs.items():
        plain, padded = np.asarray(densify(output)), np.asarray(densify(padded_outputs[name]))
        if plain.shape != padded.shape or np.abs(plain - padded).max() > TOLERANCE * max(np.ptp(plain), 1e-6):
            features = [key for key in variable if stored_kind(source.stored[key]) == "ragged"] or variable
            raise ComponentError(
                f"module {user.path}: output {name!r} changes when rows of {', '.join(features)} are padded",
                "outputs that do not depend on padding: servers take rows of one length",
                "mask the padding (0, or empty text), as Embedding(mask_zero=True) does for the layers after it",
            )


def _kind(tensor: Any) -> InputKind:
    type_spec = getattr(tensor, "type_spec", None)  # only in Keras 2
    if getattr(tensor, "sparse", False) or isinstance(type_spec, tf.SparseTensorSpec):
        return "sparse"
    return "ragged" if getattr(tensor, "ragged", False) or isinstance(type_spec, tf.RaggedTensorSpec) else "dense"


def _convert(kind: InputKind, tensor: Any) -> Any:
    if kind == "dense":
        return densify(tensor)
    if kind == "sparse":
        if isinstance(tensor, tf.RaggedTensor):
            return tensor.to_sparse()
        return tensor if isinstance(tensor, tf.SparseTensor) else tf.sparse.from_densify(tensor)
    if isinstance(tensor, tf.SparseTensor):
        return tf.RaggedTensor.from_sparse(tensor)
    return tensor if isinstance(tensor, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(tensor)


def _pad(tensor: Any) -> Any:
    """Return a dense tensor; a ragged one gets more columns than any record needs."""
    padded = densify(tensor)
    if not isinstance(tensor, tf.RaggedTensor):
        return padded
    return tf.pad(padded, [[0, 0], [0, PADDING]], constant_values="" if padded.dtype == tf.string else 0)
