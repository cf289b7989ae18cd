"""The state of a training: every variable that its next step depends on, including random generators."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tfopt import keras_models


def state_variables(model: Any) -> list[Any]:
    """Return every variable that the next training step depends on, in a fixed order; one step must have been made."""
    if not keras_models.is_keras_2(model):
        keras_3 = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        return [variable.value for variable in keras_3]
    optimizer = model.optimizer.variables
    generators = [
        getattr(getattr(layer, "_random_generator", None), "_generator", None) for layer in model._flatten_layers()
    ]
    states = [generator.state for generator in generators if generator is not None]
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    return [*model.variables, *(optimizer() if callable(optimizer) else optimizer), *metrics, *states]


@contextlib.contextmanager
def savable_generators(enabled: bool) -> Iterator[None]:
    """Make Keras 2's dropout draw from variables while the block runs: the state of its ops cannot be saved."""
    if not enabled:
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
