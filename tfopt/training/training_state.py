"""The state of a training: every variable that its next step depends on, random generators among them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tfopt.keras_models import io as keras_models


def variables(model: Any) -> list[Any]:
    """Every variable that the next step of training depends on, once a step was made, in a fixed order."""
    if not keras_models.is_keras_2(model):
        found = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        return [variable.value for variable in found]
    optimizer = model.optimizer.variables
    drawing = [
        getattr(getattr(layer, "_random_generator", None), "_generator", None) for layer in model._flatten_layers()
    ]
    states = [generator.state for generator in drawing if generator is not None]
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    return [*model.variables, *(optimizer() if callable(optimizer) else optimizer), *metrics, *states]


@contextlib.contextmanager
def generators_kept(asked: bool) -> Iterator[None]:
    """Have Keras 2's dropout draw from variables while the block runs: what its ops remember cannot be saved."""
    if not asked:
        yield
        return
    from tf_keras.backend import experimental as backend

    was_on = backend.is_tf_random_generator_enabled()
    backend.enable_tf_random_generator()
    try:
        yield
    finally:
        if not was_on:
            backend.disable_tf_random_generator()
