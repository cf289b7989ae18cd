"""Cluster the weights of a model, fine-tune it, save it, and compare it with its baseline."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.cluster.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.formatting import data_size
from tfopt.keras_models.kernels import Kernel, check_patterns, kernels_of, matches, report_row, table_lines
from tfopt.keras_models.layer_graph import calls, is_graph
from tfopt.keras_models.weight_constraints import (
    MIN_WEIGHTS_PER_VALUE,
    Projection,
    add_projection,
    is_clustered,
    is_sparse,
)
from tfopt.measurement import parity
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.weight_changes import loaded_reproducibly, save_and_compare, wrap_layers
from tfopt.value_types import JsonObject

Array = NDArray[Any]

MAX_ITERATIONS = 100  # k-means converges long before
NAMES = ("kernel", "pointwise_kernel")  # attributes of layers with weights to cluster
FIX = "pass more clusters, or fine-tune: pass module=PATH and examples=PATH"


def cluster_weights(
    model: KerasModel, examples: Examples | None, module: Path | None, target: Path, settings: Settings
) -> JsonObject:
    """Write the clustered model into the staging folder ``target`` and return the facts for its model card.

    Raises:
        ComponentError: If nothing can be clustered, the module and the model do not fit, or the outputs of the
            clustered model no longer depend on its inputs.
    """
    with loaded_reproducibly(model, module, settings.seed) as (keras_model, user):
        kernels = find_kernels(keras_model, settings.clusters, settings.layers)
        _check_not_clustered(kernels)
        before = [kernel.gzipped for kernel in kernels]
        if user and examples:
            tuner = FineTuner(keras_model, model, user, examples, target, settings, settings.seed)
            keras_model, tuned = _fine_tune(keras_model, kernels, tuner, settings)
            kernels = find_kernels(keras_model, settings.clusters, settings.layers)
        else:
            _share(kernels, settings)
            tuned = {"reason": "no module: clustered after training, without fine-tuning"}
        verified = save_and_compare(keras_model, target, model, keras_model, examples, fix=FIX)
    facts = _describe(keras_model, kernels, before)
    for line in [*_table(facts), parity.describe_parity(verified["outputs"])]:
        logging.getLogger(__name__).info("%s", line)
    return {"name": f"clustered {settings.clusters}", "report": facts, "fine_tuned": tuned, "verified": verified}


def find_kernels(model: Any, clusters: int, patterns: Sequence[str]) -> list[Kernel]:
    """Return every kernel of the model once, nested layers included.

    ``patterns`` are names of the layers to cluster, with ``*`` and ``?``; all when empty.

    Raises:
        ComponentError: If there is none to cluster, or a name matches no layer.
    """
    kernels = [replace(kernel, left=_reason(kernel, clusters, patterns)) for kernel in kernels_of(model, NAMES)]
    check_patterns(patterns, kernels)
    if all(kernel.left for kernel in kernels):
        reasons = "; ".join(f"{kernel.path}: {kernel.left}" for kernel in kernels[:3]) or "no layer has a kernel"
        received = f"model {model.name}: nothing to cluster ({reasons})"
        expected = f"a kernel of at least {MIN_WEIGHTS_PER_VALUE} times {clusters} weights"
        raise ComponentError(received, expected, "pass fewer clusters, or leave this step out")
    return kernels


def _reason(kernel: Kernel, clusters: int, patterns: Sequence[str]) -> str | None:
    size = int(np.prod(kernel.variable.shape))
    if patterns and not matches(kernel.path, patterns):
        return "not one of the selected layers"
    return f"{size} weights, too few for {clusters} values" if size < MIN_WEIGHTS_PER_VALUE * clusters else None


def _check_not_clustered(kernels: list[Kernel]) -> None:
    """Refuse a model that is clustered although it has no model card."""
    clustered = [kernel.path for kernel in kernels if not kernel.left and is_clustered(kernel.values)]
    if len(clustered) == sum(kernel.left is None for kernel in kernels):
        received = f"{', '.join(clustered[:5])}: weights that are already shared"
        raise ComponentError(received, "a model that was not clustered", "give the model from before it was clustered")


def _share(kernels: list[Kernel], settings: Settings) -> None:
    for position, kernel in enumerate(kernels):
        if kernel.left is None:
            zeros = settings.keep_zeros and is_sparse(kernel.values)
            seed = settings.seed + position
            kernel.variable.assign(
                share(kernel.values, settings.clusters, settings.initialization, keep_zeros=zeros, seed=seed)
            )


def _fine_tune(model: Any, kernels: list[Kernel], tuner: FineTuner, settings: Settings) -> tuple[Any, JsonObject]:
    """Return the model without wrappers, with its best shared weights, and the facts for its model card."""
    before = tuner.evaluate(model)
    trainee = tuner.compile(_constrained(model, kernels, settings))
    start = tuner.evaluate(trainee)
    trainee, facts = tuner.fine_tune(trainee)
    if trainee is not model:
        import tensorflow_model_optimization as tfmot  # imports Keras 2

        model = tuner.compile(tfmot.clustering.keras.strip_clustering(trainee))
    return model, facts | {"float": before, "before": start, "after": tuner.evaluate(model)}


def _constrained(model: Any, kernels: list[Kernel], settings: Settings) -> Any:
    """Return the model to train. Its weights stay shared by projections, or by the toolkit's wrappers (Keras 2)."""
    sparse = [settings.keep_zeros and is_sparse(kernel.values) for kernel in kernels]
    if keras_models.is_keras_2(model):
        return _wrapped(model, kernels, settings, keep_zeros=any(sparse))
    _share(kernels, settings)
    for kernel, zeros in zip(kernels, sparse, strict=True):
        if zeros or not kernel.left:
            add_projection(kernel.variable, Projection(kernel.values, zeros=zeros, clusters=not kernel.left))
    return model


def _wrapped(model: Any, kernels: Sequence[Kernel], settings: Settings, *, keep_zeros: bool) -> Any:
    """Return a Keras 2 model with the toolkit's clustering wrapper around each clustered layer."""
    import tensorflow_model_optimization as tfmot
    from tensorflow_model_optimization.python.core.clustering.keras.experimental import cluster as experimental

    names = {"linear": "LINEAR", "kmeans_plus_plus": "KMEANS_PLUS_PLUS", "density": "DENSITY_BASED"}
    start = getattr(tfmot.clustering.keras.CentroidInitialization, names[settings.initialization])
    options = {
        "number_of_clusters": settings.clusters,
        "cluster_centroids_init": start,
        "preserve_sparsity": keep_zeros,
    }
    selected = {id(kernel.layer) for kernel in kernels if not kernel.left}

    def wrap_layer(layer: Any) -> Any:
        return experimental.cluster_weights(layer, **options) if id(layer) in selected else layer

    return wrap_layers(model, wrap_layer, verb="cluster", untrained="cluster untrained")


def _describe(model: Any, kernels: Sequence[Kernel], gzipped_before: Sequence[int]) -> JsonObject:
    """Return the report of the kernels, for the model card; ``gzipped_before`` are their bytes before clustering."""
    layers = [
        {**report_row(kernel, before), "values": len(np.unique(kernel.values)), "left": kernel.left}
        for kernel, before in zip(kernels, gzipped_before, strict=True)
    ]
    count = sum(kernel.left is None for kernel in kernels)
    summary = f"{count} of {len(kernels)} kernels clustered, {data_size(sum(gzipped_before))} gzipped before and "
    summary += f"{data_size(sum(layer['gzipped'] for layer in layers))} now"
    paths = {id(kernel.layer): kernel.path for kernel in kernels if not kernel.left}
    folded = sorted({paths[id(layer)] for layer in _before_batch_norms(model) if id(layer) in paths})
    return {"summary": summary, "unshared_when_folded": folded, "layers": layers}


def _table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines to print: values and bytes of each layer, and the batch norms that would undo the sharing."""
    rows = table_lines(report["layers"], "{values:5} values")
    folded = report["unshared_when_folded"]
    if folded:
        rows.append(
            f"  batch norms follow {', '.join(folded[:3])}{' and others' if len(folded) > 3 else ''}: exporters fold "
            "them into the kernels, and channels no longer share weights; run fold_batch_norm before this step"
        )
    return [report["summary"], *rows]


def _before_batch_norms(model: Any) -> list[Any]:
    """Return the layers whose output is the input of a batch norm."""
    if not is_graph(model):
        return []
    layers: list[Any] = []
    makers: dict[int, Any] = {}
    for call in calls(model):
        makers |= {id(tensor): call.layer for tensor in call.outputs}
        if type(call.layer).__name__ == "BatchNormalization":
            layers += [makers[id(tensor)] for tensor in call.inputs if id(tensor) in makers]
        layers += _before_batch_norms(call.layer)
    return layers


def share(weights: Array, clusters: int, initialization: str, *, keep_zeros: bool, seed: int) -> Array:
    """Return weights of any shape with at most ``clusters`` distinct values, each the mean of those that it replaces.

    The initialization is ``linear``, ``kmeans_plus_plus``, which depends on the seed, or ``density``. With
    ``keep_zeros`` weights that are zero stay zero, and no others become zero; zero is then one of the distinct values.

    >>> share(np.array([0.0, 0.9, 1.1, -2.0, 0.0]), 3, "linear", keep_zeros=True, seed=0)
    array([ 0.,  1.,  1., -2.,  0.])
    """
    flat = weights.ravel()
    zero = flat == 0 if keep_zeros else np.zeros(flat.shape, bool)
    nonzero = flat[~zero].astype(np.float64)
    if not nonzero.size:
        return weights.copy()
    start = INITIALIZATIONS[initialization](nonzero, clusters - bool(zero.any()), np.random.default_rng(seed))
    values = np.zeros_like(flat)
    values[~zero] = _cluster(nonzero, np.unique(start)).astype(flat.dtype)
    return values.reshape(weights.shape)


def _cluster(weights: Array, values: Array) -> Array:
    """Run Lloyd's iteration: assign each weight to the nearest value, set each value to the mean of its weights."""
    for _ in range(MAX_ITERATIONS):
        assignment = np.searchsorted((values[1:] + values[:-1]) / 2, weights)
        counts = np.bincount(assignment, minlength=len(values))
        means = np.bincount(assignment, weights, minlength=len(values))[counts > 0] / counts[counts > 0]
        if len(means) == len(values) and np.array_equal(means, values):
            break
        values = means
    return np.asarray(values[np.searchsorted((values[1:] + values[:-1]) / 2, weights)])


def _linear(weights: Array, clusters: int, random: np.random.Generator) -> Array:
    return np.linspace(weights.min(), weights.max(), clusters) if clusters > 1 else weights.mean(keepdims=True)


def _kmeans_plus_plus(weights: Array, clusters: int, random: np.random.Generator) -> Array:
    """Draw weights, each with a probability proportional to the squared distance to the nearest one drawn before."""
    values = [random.choice(weights)]
    distance = (weights - values[0]) ** 2
    while len(values) < clusters and distance.any():
        values.append(random.choice(weights, p=distance / distance.sum()))
        distance = np.minimum(distance, (weights - values[-1]) ** 2)
    return np.array(values)


def _density(weights: Array, clusters: int, random: np.random.Generator) -> Array:
    """Return the medians of equally large parts of the sorted weights."""
    return np.asarray(np.quantile(weights, (np.arange(clusters) + 0.5) / clusters))


INITIALIZATIONS = {"linear": _linear, "kmeans_plus_plus": _kmeans_plus_plus, "density": _density}
