"""Class weights of the loss."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.train.parameters import read_class_weights
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError


def compute_class_weights(
    text: str | None, model: Any, files: Sequence[Path], stored: Mapping[str, TensorSpec], label: str
) -> dict[int, float] | None:
    """Return the weight of each class from 0 to the highest; None if no weights are requested.

    Balanced weights are ``examples / (classes * examples of the class)``, so that their mean over the examples is 1.

    Args:
        text: The component's parameter.
        model: A model with one output.
        files: The files of the split ``train``.
        stored: How each feature is stored.
        label: The label feature, a class number.

    Raises:
        ComponentError: If the model or the label has no classes to weight, or a class has no examples.
    """
    if not text:
        return None
    if len(model.outputs) > 1 or stored[label].dtype != "int64" or stored[label].shape[1] != 1:
        raise ComponentError(
            f"class_weights={text} for {len(model.outputs)} outputs and label {label!r}, {stored[label]}",
            "one output that is trained on one class number (int64)",
            "leave class_weights out, or weight inside the module's own loss",
        )
    labels = np.concatenate(
        [batch[label].ravel() for batch in read_batches(files, {label: stored[label]}, batch_size=4096)]
    )
    classes, counts = np.unique(labels, return_counts=True)
    weights = read_class_weights(text)
    if weights is None:
        weights = dict(zip(classes.tolist(), (len(labels) / (len(classes) * counts)).tolist(), strict=True))
    missing = sorted({*weights} - {*classes.tolist()})
    if missing:
        raise ComponentError(
            f"class_weights: no example of class {', '.join(map(str, missing))}",
            f"classes with examples: {', '.join(map(str, classes))}",
            "count classes from 0, as the label does",
        )
    return {number: weights.get(number, 1.0) for number in range(int(classes.max()) + 1)}
