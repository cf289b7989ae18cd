"""Rebuild a model by a plan: new layers where batch norms are folded in, the same layer objects elsewhere."""

from tfopt import keras_models
from tfopt.components.fold_batch_norm.plan import Plan
from tfopt.keras_models.layer_graph import Layer, calls, is_graph, rebuild


def rebuild_folded(model: Layer, plan: Plan) -> Layer:
    """Return the model without the batch norms that the plan folds; the argument is not changed.

    A batch norm that gives an output its name is replaced by a linear Activation of that name.
    """
    producers = {id(tensor): call.layer for call in calls(model) for tensor in call.outputs}
    named = {id(producers[id(tensor)]) for tensor in model.outputs if id(tensor) in producers}
    new_layers: dict[int, Layer] = {}

    def substitute(layer: Layer) -> Layer | None:
        if id(layer) in plan.folded and id(layer) not in named:
            return None
        if id(layer) not in new_layers:
            new_layers[id(layer)] = new_layer(layer)
        return new_layers[id(layer)]

    def new_layer(layer: Layer) -> Layer:
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
        new_layers[key].set_weights(weights)  # Keras converts them to the dtypes of the layer
    return result
