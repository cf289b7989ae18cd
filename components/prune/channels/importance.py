"""How much each bundle of channels matters.

- ``l1``, ``l2``: the norm of each channel's filter, in units of the mean of its layer, and the mean of that over the
  layers that make or filter the bundle (Li et al., "Pruning Filters for Efficient ConvNets", ICLR 2017).
- ``batch_norm``: the mean of |gamma| over the batch norms that scale it (Liu et al., "Network Slimming", ICCV 2017).
- ``taylor``: the first-order change of the loss were the channel zero, |gradient x activation| summed over its
  positions, the mean over examples (Molchanov et al., "Pruning Convolutional Neural Networks for Resource Efficient
  Inference", ICLR 2017). A channel y = K * x + b is linear in its filter and bias, so that sum over positions equals
  <dL/dK, K> + <dL/db, b>: exact for one example at a time, in models inside models too, and no activation is kept.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfopt.components.prune.channels.labels import Book, Cut, Labels
from tfopt.keras_models.layer_graph import Layer

Importance = Literal["l1", "l2", "batch_norm", "taylor"]
Scores = NDArray[np.float64]  # by label; a bundle's is at its root, NaN where nothing says how much it matters
Losses = Iterable[Callable[[], Any]]  # each call computes the loss of one example anew


def importance(kind: Importance, model: Layer, book: Book, losses: Losses = ()) -> Scores:
    """Return the score of each bundle.

    Args:
        kind: By what.
        model: The model that was followed.
        book: What is known of its channels.
        losses: For ``taylor``: one function for each example, which calls the model and returns its loss.
    """
    roots = book.roots()
    if kind == "taylor":
        return _taylor(book, roots, losses)
    if kind == "batch_norm":
        return _mean(roots, [(cut, np.abs(_values(cut))) for cut in _cuts(book, "scales")])
    order = 1 if kind == "l1" else 2
    return _mean(roots, [(cut, _relative_norms(cut, order)) for cut in _cuts(book, "makes", "filters")])


def _cuts(book: Book, *roles: str) -> list[Cut]:
    return [cut for cut in book.cuts.values() if cut.role in roles]


def _mean(roots: Labels, found: list[tuple[Cut, Scores]]) -> Scores:
    sums, counts = np.zeros(len(roots)), np.zeros(len(roots))
    for cut, values in found:
        np.add.at(sums, roots[cut.labels], values)
        np.add.at(counts, roots[cut.labels], 1)
    scores = np.full(len(roots), np.nan)
    scores[counts > 0] = sums[counts > 0] / counts[counts > 0]
    return scores


def _relative_norms(cut: Cut, order: int) -> Scores:
    values = np.moveaxis(_values(cut), cut.axis, 0)
    norms = np.linalg.norm(values.reshape(len(values), -1), order, axis=1)
    return np.asarray(norms / max(norms.mean(), np.finfo(np.float64).tiny))


def _taylor(book: Book, roots: Labels, losses: Losses) -> Scores:
    import tensorflow as tf

    cuts = [cut for cut in _cuts(book, "makes", "filters", "bias") if cut.layer.weights[cut.weight].trainable]
    variables = [_variable(cut) for cut in cuts]
    scores = np.full(len(roots), np.nan)
    scores[roots[np.concatenate([cut.labels for cut in cuts])]] = 0
    for count, loss in enumerate(losses, 1):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        slopes = tape.gradient(value, variables, unconnected_gradients="zero")
        layers: dict[int, Scores] = {}
        for cut, slope, variable in zip(cuts, slopes, variables, strict=True):
            product = np.moveaxis(np.asarray(tf.convert_to_tensor(slope)) * variable.numpy(), cut.axis, 0)
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
