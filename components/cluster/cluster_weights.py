"""Cluster the weights of a model, fine-tune it, save it, and compare it with its baseline."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.cluster import report
from tfopt.components.cluster.centroids import share
from tfopt.components.cluster.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import Kernel, check_patterns, kernels_of, matches
from tfopt.keras_models.weight_constraints import (
    MIN_WEIGHTS_PER_VALUE,
    Projection,
    add_projection,
    is_clustered,
    is_sparse,
)
from tfopt.measurement import parity
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.weight_changes import loaded_reproducibly, save_and_compare
from tfopt.value_types import JsonObject

NAMES = ("kernel", "pointwise_kernel")  # attributes of layers with weights to cluster
FIX = "pass more clusters, or fine-tune: pass module=PATH and examples=PATH"

log = logging.getLogger(__name__)


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
    facts = report.describe(keras_model, kernels, before)
    for line in [*report.table(facts), parity.describe_parity(verified["outputs"])]:
        log.info("%s", line)
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
        raise ComponentError(
            f"model {model.name}: nothing to cluster ({reasons})",
            f"a kernel of at least {MIN_WEIGHTS_PER_VALUE} times {clusters} weights",
            "pass fewer clusters, or leave this step out",
        )
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
        raise ComponentError(
            f"{', '.join(clustered[:5])}: weights that are already shared",
            "a model that was not clustered",
            "give the model from before it was clustered",
        )


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
        from tfopt.components.cluster import tfmot as toolkit  # imports Keras 2

        return toolkit.wrap(model, kernels, settings.clusters, settings.initialization, keep_zeros=any(sparse))
    _share(kernels, settings)
    for kernel, zeros in zip(kernels, sparse, strict=True):
        if zeros or not kernel.left:
            add_projection(kernel.variable, Projection(kernel.values, zeros=zeros, clusters=not kernel.left))
    return model
