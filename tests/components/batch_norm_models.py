"""Models with batch norms with non-trivial statistics, for the tests of `fold_batch_norm`."""

import numpy as np

from tfopt.components.fold_batch_norm.fold import rebuild_folded
from tfopt.keras_models.batch_norm_plan import is_batch_norm, make_plan


def randomized(model, seed=0):
    """Set every weight to a value other than its initial one; scales have both signs."""
    draw = np.random.default_rng(seed)
    for layer in model._flatten_layers():
        if is_batch_norm(layer):
            signs = draw.choice([-1, 1], layer.moving_mean.shape)
            if layer.scale:
                layer.gamma.assign(signs * draw.uniform(0.3, 2, layer.gamma.shape))
            if layer.center:
                layer.beta.assign(draw.normal(0, 1, layer.beta.shape))
            layer.moving_mean.assign(draw.normal(0, 1, layer.moving_mean.shape))
            layer.moving_variance.assign(draw.uniform(0.2, 3, layer.moving_variance.shape))
        elif getattr(layer, "use_bias", False) and getattr(layer, "bias", None) is not None:
            layer.bias.assign(draw.normal(0, 0.5, layer.bias.shape))
    return model


def fold(model):
    """Return the folded model, and by batch norm the layer it was folded into, or the reason why it stays."""
    plan = make_plan(model)
    return rebuild_folded(model, plan), {
        result.batch_norm: result.folded_into or result.refused for result in plan.results
    }


def batch_norms(model):
    return [layer.name for layer in model._flatten_layers() if is_batch_norm(layer)]


def inputs_for(model, records=8, seed=1):
    """Return normally distributed inputs, in the order of the model's inputs."""
    draw = np.random.default_rng(seed)
    arrays = [draw.normal(0, 1, [records, *tensor.shape[1:]]).astype("float32") for tensor in model.inputs]
    return arrays[0] if len(arrays) == 1 else arrays


def difference(before, after, inputs=None):
    """Return the largest difference of any output, as a fraction of its range."""
    inputs = inputs_for(before) if inputs is None else inputs
    pairs = zip(_outputs(before, inputs), _outputs(after, inputs), strict=True)
    return max(float(np.abs(a - b).max() / np.ptp(a)) for a, b in pairs)


def _outputs(model, inputs):
    results = model(inputs, training=False)
    results = [results[key] for key in sorted(results)] if isinstance(results, dict) else results
    return [np.asarray(one, np.float64) for one in (results if isinstance(results, list | tuple) else [results])]
