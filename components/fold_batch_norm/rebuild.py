"""The folded model, made from a plan: new layers where weights are folded in, the same objects everywhere else."""

from typing import Any

from tfopt import keras_models
from tfopt.components.fold_batch_norm.plan import Plan
from tfopt.keras_models.layer_graph import Layer, calls, is_graph, rebuild


def folded(model: Layer, plan: Plan) -> Layer:
    """Return the model without the batch norms that the plan folds; the model given stays as it is.

    A batch norm that gives an output its name leaves a linear Activation of that name behind.
    """
    makers = {id(tensor): call.layer for call in calls(model) for tensor in call.outputs}
    named = {id(makers[id(tensor)]) for tensor in model.outputs if id(tensor) in makers}
    made: dict[int, Layer] = {}

    def substitute(layer: Layer) -> Layer | None:
        if id(layer) in plan.folded and id(layer) not in named:
            return None
        if id(layer) not in made:
            made[id(layer)] = new(layer)
        return made[id(layer)]

    def new(layer: Layer) -> Layer:
        if id(layer) in plan.folded:
            config = layer.get_config()
            linear = keras_models.library(layer).layers.Activation
            return linear("linear", name=layer.name, dtype=config["dtype"])
        if id(layer) in plan.weights:
            return type(layer).from_config({**layer.get_config(), "use_bias": True})
        if is_graph(layer) and any(id(inner) in plan.folded for inner in layer._flatten_layers()):
            return rebuild(layer, substitute)
        return layer

    result = rebuild(model, substitute)
    for key, weights in plan.weights.items():
        _set(made[key], weights)
    return result


def _set(layer: Layer, arrays: list[Any]) -> None:
    import tensorflow as tf

    types = [tf.as_dtype(weight.dtype).as_numpy_dtype for weight in layer.weights]
    layer.set_weights([array.astype(dtype) for array, dtype in zip(arrays, types, strict=True)])
