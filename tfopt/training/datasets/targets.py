"""The target of each model output: the label, in the type and shape that the output's loss takes."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfopt import keras_models
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import SparseSpec
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

ANY_SHAPE = ("ctc",)  # built-in losses whose labels do not have the output's shape


@dataclass(frozen=True)
class SplitSummary:
    """The number of records of a split, and its lowest and highest label value."""

    count: int
    lowest: float
    highest: float


@dataclass(frozen=True)
class Target:
    """The label as one output is trained on it."""

    output: str  # the output's name
    shape: tuple[int | None, ...]  # the shape of one label, without the batch
    limits: tuple[float, float] | None  # the lowest and highest value allowed; None if any value is
    loss: str  # the loss in words

    def check(self, split: str, label: str, summary: SplitSummary) -> None:
        """Raise ComponentError if a label of the split is outside the limits."""
        if self.limits and not (self.limits[0] <= summary.lowest and summary.highest <= self.limits[1]):
            low, high = self.limits
            raise ComponentError(
                f"split {split!r}: label {label!r} has values from {summary.lowest:g} to {summary.highest:g}",
                f"values from {low:g} to {high:g}, for the {self.loss} of output {self.output!r}",
                "make the output as wide as there are classes, or prepare the labels again",
            )


def check_label(label: str, features: Mapping[str, TensorSpec], where: str) -> None:
    """Raise ComponentError if there is no such feature, or if it is text, sparse or of variable length."""
    if label not in features:
        received = f"{where}: no feature {label!r} to train on"
        raise ComponentError(received, f"features {', '.join(features)}", nearest(label, features))
    if features[label].dtype == "string":
        fix = "prepare the examples with the classes numbered from 0"
        raise ComponentError(f"{where}: label {label!r} is text", "numbers: int64 for classes, float32 for values", fix)
    if isinstance(features[label], SparseSpec) or features[label].shape[1] is None:
        received = f"{where}: label {label!r} is sparse, or has another number of values in each record"
        fix = "name another feature as the label, or pad this one when preparing the examples"
        raise ComponentError(received, "the same number of values in each record", fix)


def label_targets(model: Any, label: str, stored: TensorSpec) -> list[Target]:
    """Return the target of each output, in the order of ``model.outputs``. All outputs share the label.

    Raises:
        ComponentError: If the label's type or length does not fit an output's loss.
    """
    losses = by_output(model, model.loss)
    return [
        _target(name, losses[name], tuple(tensor.shape[1:]), label, stored)
        for name, tensor in zip(keras_models.served_names(model), model.outputs, strict=True)
    ]


def arrange_like_outputs(model: Any, labels: list[Any]) -> Any:
    """Nest the labels of the outputs as the model nests its outputs."""
    if isinstance(getattr(model, "output", None), dict):  # a Keras 3 Sequential has no `output`
        return dict(zip(keras_models.served_names(model), labels, strict=True))
    return tuple(labels) if len(labels) > 1 else labels[0]


def by_output(model: Any, argument: Any) -> dict[str, Any]:
    """Return an argument of ``compile`` (a dict, a list, or one value for all) by output name; None where missing."""
    names = keras_models.served_names(model)
    if isinstance(argument, dict):
        return {name: argument.get(name) for name in names}
    if isinstance(argument, list | tuple):
        return dict(zip(names, argument, strict=True))
    return dict.fromkeys(names, argument)


def loss_name(loss: Any) -> str:
    """Return the loss's name as Keras spells it in strings: ``sparse_categorical_crossentropy``."""
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def is_built_in(loss: Any) -> bool:
    """Return True if it is a loss of Keras, for which the formats of labels and outputs are known."""
    owner = loss if hasattr(loss, "__name__") else type(loss)
    return isinstance(loss, str) or owner.__module__.split(".")[0] in ("keras", "tf_keras")


def _target(output: str, loss: Any, shape: tuple[int | None, ...], label: str, stored: TensorSpec) -> Target:
    name = loss_name(loss)
    length = stored.shape[1] or 0
    stored_shape = () if length == 1 else (length,)
    if loss is None or not is_built_in(loss) or name in ANY_SHAPE:
        return Target(output, stored_shape, None, name)
    sparse = name.startswith("sparse_")
    if sparse and stored.dtype != "int64":
        received = f"label {label!r} is {stored.dtype}"
        fix = "prepare the label as an integer, or compile with a regression loss such as mean_squared_error"
        raise ComponentError(received, f"int64 class numbers, for the {name} of output {output!r}", fix)
    expected = shape[:-1] if sparse else shape
    if None not in expected and math.prod(size or 0 for size in expected) != length:
        raise ComponentError(
            f"label {label!r} has {length} value{'s' if length > 1 else ''}",
            f"{math.prod(size or 0 for size in expected)}, for the {name} of output {output!r}",
            "compile with sparse_categorical_crossentropy, which takes class numbers"
            if name.startswith("categorical_")
            else "change the output's shape or its loss; every output that has a loss is trained on the same label",
        )
    return Target(output, expected if None not in expected else stored_shape, _limits(loss, name, shape), name)


def _limits(loss: Any, name: str, shape: tuple[int | None, ...]) -> tuple[float, float] | None:
    if name.startswith("binary_"):
        return 0, 1
    every_class = name.startswith("sparse_") and getattr(loss, "ignore_class", None) is None
    return (0, shape[-1] - 1) if every_class and shape and shape[-1] else None
