"""What each output of a model learns: the one label, in the type and shape that the output's loss takes."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import SparseSpec
from tfopt.errors import ComponentError, nearest
from tfopt.keras_models import io as keras_models
from tfopt.training.data_check import Survey

ANY_SHAPE = ("ctc",)  # built-in losses whose labels are not shaped like the output


@dataclass(frozen=True)
class Target:
    """The label as one output learns it.

    Attributes:
        output: The output's name.
        shape: Of one label, without the batch.
        limits: The lowest and highest value allowed; None where any is.
        loss: The loss in words.
    """

    output: str
    shape: tuple[int | None, ...]
    limits: tuple[float, float] | None
    loss: str

    def check(self, split: str, label: str, found: Survey) -> None:
        """Raise ComponentError when a label lies outside the limits."""
        if self.limits and not (self.limits[0] <= found.lowest and found.highest <= self.limits[1]):
            low, high = self.limits
            raise ComponentError(
                f"split {split!r}: label {label!r} goes from {found.lowest:g} to {found.highest:g}",
                f"values from {low:g} to {high:g}, for the {self.loss} of output {self.output!r}",
                "make the output as wide as there are classes, or prepare the labels again",
            )


def check_label(label: str, features: Mapping[str, TensorSpec], where: str) -> None:
    """Raise ComponentError when there is no such feature, it is text, or it has no one length."""
    if label not in features:
        raise ComponentError(
            f"{where}: no feature {label!r} to learn", f"features {', '.join(features)}", nearest(label, features)
        )
    if features[label].dtype == "string":
        raise ComponentError(
            f"{where}: label {label!r} is text",
            "numbers: int64 for classes, float32 for values",
            "prepare the examples with the classes numbered from 0",
        )
    if isinstance(features[label], SparseSpec) or features[label].shape[1] is None:
        raise ComponentError(
            f"{where}: label {label!r} is sparse, or has another number of values in each record",
            "as many numbers in each record",
            "name another feature as the label, or pad this one when preparing the examples",
        )


def targets(model: Any, label: str, stored: TensorSpec) -> list[Target]:
    """Return the target of each output, in the order of ``model.outputs``. Outputs share the label.

    Raises:
        ComponentError: When the label's type or length does not fit an output's loss.
    """
    losses = by_output(model, model.loss)
    return [
        _target(name, losses[name], tuple(tensor.shape[1:]), label, stored)
        for name, tensor in zip(keras_models.served_names(model), model.outputs, strict=True)
    ]


def arrange_like_outputs(model: Any, labels: list[Any]) -> Any:
    """Nest the labels of the outputs as the model nests its outputs."""
    if isinstance(getattr(model, "output", None), dict):  # a Keras 3 Sequential has none
        return dict(zip(keras_models.served_names(model), labels, strict=True))
    return tuple(labels) if len(labels) > 1 else labels[0]


def by_output(model: Any, given: Any) -> dict[str, Any]:
    """What was given to ``compile`` (a dict, a list, or one for all) for each output; None where it says nothing."""
    names = keras_models.served_names(model)
    if isinstance(given, dict):
        return {name: given.get(name) for name in names}
    if isinstance(given, list | tuple):
        return dict(zip(names, given, strict=True))
    return dict.fromkeys(names, given)


def words_of(loss: Any) -> str:
    """The loss's name as Keras spells it in strings: ``sparse_categorical_crossentropy``."""
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def built_in(loss: Any) -> bool:
    """Whether it is one of Keras's own, whose labels and outputs are known."""
    owner = loss if hasattr(loss, "__name__") else type(loss)
    return isinstance(loss, str) or owner.__module__.split(".")[0] in ("keras", "tf_keras")


def _target(output: str, loss: Any, shape: tuple[int | None, ...], label: str, stored: TensorSpec) -> Target:
    words = words_of(loss)
    length = stored.shape[1] or 0
    as_stored = () if length == 1 else (length,)
    if loss is None or not built_in(loss) or words in ANY_SHAPE:
        return Target(output, as_stored, None, words)
    sparse = words.startswith("sparse_")
    if sparse and stored.dtype != "int64":
        raise ComponentError(
            f"label {label!r} is {stored.dtype}",
            f"int64 class numbers, for the {words} of output {output!r}",
            "prepare the label as an integer, or compile with a regression loss such as mean_squared_error",
        )
    wanted = shape[:-1] if sparse else shape
    if None not in wanted and math.prod(size or 0 for size in wanted) != length:
        raise ComponentError(
            f"label {label!r} has {length} value{'s' if length > 1 else ''}",
            f"{math.prod(size or 0 for size in wanted)}, for the {words} of output {output!r}",
            "compile with sparse_categorical_crossentropy, which takes class numbers"
            if words.startswith("categorical_")
            else "change the output's shape or its loss; every output that has a loss learns the one label",
        )
    return Target(output, wanted if None not in wanted else as_stored, _limits(loss, words, shape), words)


def _limits(loss: Any, words: str, shape: tuple[int | None, ...]) -> tuple[float, float] | None:
    if words.startswith("binary_"):
        return 0, 1
    every_class = words.startswith("sparse_") and getattr(loss, "ignore_class", None) is None
    return (0, shape[-1] - 1) if every_class and shape and shape[-1] else None
