"""Importance of each bundle of channels.

- ``l1``, ``l2``: the norm of each channel's filter, divided by the mean norm of its layer, and averaged over the layers
  that make or filter the bundle (Li et al., "Pruning Filters for Efficient ConvNets", ICLR 2017).
- ``batch_norm``: the mean of |gamma| over the batch norms that scale it (Liu et al., "Network Slimming", ICCV 2017).
- ``taylor``: the first-order change of the loss if the channel becomes zero, |gradient x activation| summed over its
  positions, averaged over examples (Molchanov et al., "Pruning Convolutional Neural Networks for Resource Efficient
  Inference", ICLR 2017). A channel y = K * x + b is linear in its filter and bias, so that the sum over positions is
  <dL/dK, K> + <dL/db, b>. This is exact for one example at a time, also in nested models, and stores no activations.
  Heads of attention are such channels. For a unit of a recurrent layer, the sum over its gates is the first-order
  change if all weights that make it become zero.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.components.prune.channels.labels import ChannelGraph, Cut, Labels
from tfopt.data.batches import Batch
from tfopt.keras_models.layer_graph import Layer
from tfopt.training.datasets.dataset import Source

Scores = NDArray[np.float64]  # shape [labels]: the score of a bundle is at its root; NaN if it is unknown
Losses = Iterable[Callable[[], Any]]  # each call computes the loss of one example again


def score_bundles(kind: str, graph: ChannelGraph, losses: Losses = ()) -> Scores:
    """Return the importance of each bundle.

    For ``taylor``, there is a function per example in ``losses`` that calls the model and returns the loss, a scalar.
    """
    roots = graph.roots()
    if kind == "taylor":
        return _taylor_scores(graph, roots, losses)
    if kind == "batch_norm":
        return _mean_scores(roots, [(cut, np.abs(_values(cut))) for cut in _cuts(graph, "scales")])
    order = 1 if kind == "l1" else 2
    return _mean_scores(roots, [(cut, _relative_norms(cut, order)) for cut in _cuts(graph, "makes", "filters")])


def labeled_losses(model: Layer, source: Source, *, count: int, seed: int) -> Iterator[Callable[[], Any]]:
    """Yield one function per example that returns the loss of a compiled model, including regularization."""
    import tensorflow as tf

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def loss(inputs: Any, targets: Any) -> Any:
        return model.compute_loss(x=inputs, y=targets, y_pred=model(inputs, training=False))

    for inputs, targets in source.shuffled(1, seed).take(count):
        yield partial(loss, inputs, targets)


def label_free_losses(model: Layer, batch: Batch) -> Iterator[Callable[[], Any]]:
    """Yield one function per example that returns a loss computed from the model's outputs alone.

    For probabilities (several values from 0 to 1 that sum to 1) the loss is the cross-entropy with the most probable
    class. For other outputs it is half the squared norm, whose gradient is the output itself.
    """
    import tensorflow as tf

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def loss(inputs: Mapping[str, Any]) -> Any:
        results = tf.nest.flatten(model(keras_models.pack_inputs(model, inputs), training=False))
        return tf.add_n([_label_free_loss(tf.cast(result, tf.float32)) for result in results])

    for record in range(len(next(iter(batch.values())))):
        yield partial(loss, {name: tf.constant(array[record : record + 1]) for name, array in batch.items()})


def _label_free_loss(result: Any) -> Any:
    import tensorflow as tf

    energy = tf.reduce_sum(tf.square(result)) / 2
    if result.shape.rank != 2 or result.shape[1] == 1:
        return energy
    sums_to_one = tf.abs(tf.reduce_sum(result) - 1) < 1e-3
    is_probability = tf.reduce_all(result >= 0) & sums_to_one
    return tf.where(is_probability, -tf.math.log(tf.maximum(tf.reduce_max(result), 1e-7)), energy)


def _cuts(graph: ChannelGraph, *roles: str) -> list[Cut]:
    return [cut for cut in graph.cuts.values() if cut.role in roles]


def _mean_scores(roots: Labels, scores: list[tuple[Cut, Scores]]) -> Scores:
    """Return the mean of the scores of each bundle, NaN for bundles without any."""
    sums, counts = np.zeros(len(roots)), np.zeros(len(roots))
    for cut, values in scores:
        np.add.at(sums, roots[cut.labels], values)
        np.add.at(counts, roots[cut.labels], 1)
    means = np.full(len(roots), np.nan)
    means[counts > 0] = sums[counts > 0] / counts[counts > 0]
    return means


def _relative_norms(cut: Cut, order: int) -> Scores:
    values = np.moveaxis(_values(cut), cut.axis, 0)
    norms = np.linalg.norm(values.reshape(len(values), -1), order, axis=1)
    return np.asarray(norms / max(norms.mean(), np.finfo(np.float64).tiny))


def _taylor_scores(graph: ChannelGraph, roots: Labels, losses: Losses) -> Scores:
    import tensorflow as tf

    cuts = [cut for cut in _cuts(graph, "makes", "filters", "bias") if cut.layer.weights[cut.weight].trainable]
    variables = [_variable(cut) for cut in cuts]
    scores = np.full(len(roots), np.nan)
    scores[roots[np.concatenate([cut.labels for cut in cuts])]] = 0
    for count, loss in enumerate(losses, 1):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        gradients = tape.gradient(value, variables, unconnected_gradients="zero")
        layers: dict[int, Scores] = {}
        for cut, gradient, variable in zip(cuts, gradients, variables, strict=True):
            product = np.moveaxis(np.asarray(tf.convert_to_tensor(gradient)) * variable.numpy(), cut.axis, 0)
            sums = layers.setdefault(id(cut.layer), np.zeros(len(roots)))
            np.add.at(sums, roots[cut.labels], product.reshape(len(product), -1).sum(1))
        change = np.sum([np.abs(sums) for sums in layers.values()], axis=0)
        scores += (change - scores) / count  # a running mean
    return scores


def _values(cut: Cut) -> Scores:
    return np.asarray(cut.layer.weights[cut.weight].numpy(), np.float64)


def _variable(cut: Cut) -> Any:
    weight = cut.layer.weights[cut.weight]
    return getattr(weight, "value", weight) if not callable(getattr(weight, "value", None)) else weight
