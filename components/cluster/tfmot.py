"""Clustering of Keras 2 models with TensorFlow's Model Optimization Toolkit, which trains shared values."""

from collections.abc import Sequence
from typing import Any

import tensorflow_model_optimization as tfmot
from tensorflow_model_optimization.python.core.clustering.keras.experimental import cluster as experimental
from tf_keras import Model, Sequential, models

from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import Kernel

INITIALIZATIONS = {"linear": "LINEAR", "kmeans_plus_plus": "KMEANS_PLUS_PLUS", "density": "DENSITY_BASED"}


def wrap(model: Any, kernels: Sequence[Kernel], clusters: int, initialization: str, *, keep_zeros: bool) -> Any:
    """Return the model with a clustering wrapper around each clustered layer.

    Raises:
        ComponentError: If it contains a subclassed model, whose layers cannot be replaced.
    """
    start = getattr(tfmot.clustering.keras.CentroidInitialization, INITIALIZATIONS[initialization])
    options = {"number_of_clusters": clusters, "cluster_centroids_init": start, "preserve_sparsity": keep_zeros}
    selected = {id(kernel.layer) for kernel in kernels if not kernel.left}

    def replace(layer: Any) -> Any:
        if isinstance(layer, Model):
            if not layer._is_graph_network and not isinstance(layer, Sequential):
                raise ComponentError(
                    f"model {layer.name}: a subclassed Keras 2 model",
                    "Sequential and Functional models, which TensorFlow's toolkit can cluster",
                    "make it with the functional API or in Keras 3, or leave the module out to cluster untrained",
                )
            return models.clone_model(layer, clone_function=replace)
        if id(layer) not in selected:
            return layer
        wrapper = experimental.cluster_weights(layer, **options)
        wrapper._name = layer.name  # losses and metrics may be named by outputs
        return wrapper

    return replace(model)
