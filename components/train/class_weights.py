from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.train.parameters import read_class_weights
from tfopt.data.batches import is_one_hot, read_batches
from tfopt.errors import ComponentError
from tfopt.training.training_setup import TrainingSetup


def compute_class_weights(text: str | None, setup: TrainingSetup) -> dict[int, float] | None:
    """Return the weight of each class from 0 to the highest; None if the parameter's text is empty.

    Balanced weights are ``examples / (classes * examples of the class)`` in the files of the split ``train``, so that
    their mean over the examples is 1. The label is a class number or one-hot. Raise ComponentError if the model or the
    label has no classes to weight, or a class has no examples.
    """
    if not text:
        return None
    model, files, label, spec = setup.parts.model, setup.files["train"], setup.label, setup.stored[setup.label]
    size = spec.shape[1] or 0
    labels: NDArray[Any] = np.zeros((0, 0))
    if len(model.outputs) == 1 and (size > 1 or (size == 1 and spec.dtype == "int64")) and spec.dtype != "string":
        labels = np.concatenate([batch[label] for batch in read_batches(files, {label: spec}, batch_size=4096)])
    if not size or not labels.size or (size > 1 and not is_one_hot(labels).all()):
        received = f"class_weights={text} for {len(model.outputs)} outputs and label {label!r}, {spec}"
        expected = "one output that is trained on one class number (int64), or on one-hot classes"
        raise ComponentError(received, expected, "leave class_weights out, or weight inside the module's own loss")
    labels = labels.ravel() if size == 1 else labels.argmax(1)
    classes, counts = np.unique(labels, return_counts=True)
    weights = read_class_weights(text)
    if weights is None:
        weights = dict(zip(classes.tolist(), (len(labels) / (len(classes) * counts)).tolist(), strict=True))
    missing = sorted({*weights} - {*classes.tolist()})
    if missing:
        received = f"class_weights: no example of class {', '.join(map(str, missing))}"
        expected = f"classes with examples: {', '.join(map(str, classes))}"
        raise ComponentError(received, expected, "count classes from 0, as the label does")
    return {number: weights.get(number, 1.0) for number in range(int(classes.max()) + 1)}
