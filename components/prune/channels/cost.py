"""What a model costs with some of its channels: numbers worked out from the labels, without making the model."""

from dataclasses import dataclass

import numpy as np

from tfopt.components.prune.channels.labels import Book, Kept
from tfopt.keras_models.layer_graph import Layer


@dataclass(frozen=True)
class Cost:
    """Sizes of a model.

    Attributes:
        parameters: Numbers in all weights, those that are not trained included.
        flops: Multiplications and additions of the kernels that are followed, for one record; the additions of biases
            and whatever has no kernel are not counted. None where the model leaves a size open.
    """

    parameters: int
    flops: int | None


def cost(model: Layer, book: Book, kept: Kept) -> Cost:
    """Return what the model costs when only these labels are kept."""
    saved, sizes = 0, {}
    for (key, place), lengths in _lengths(book, kept).items():
        layer = book.followed.get(key) or next(cut.layer for cut in book.cuts.values() if id(cut.layer) == key)
        shape = [int(size) for size in layer.weights[place].shape]
        full = int(np.prod(shape))
        sizes[key, place] = int(np.prod([lengths.get(axis, size) for axis, size in enumerate(shape)]))
        saved += full - sizes[key, place]
    total = sum(int(np.prod([int(size) for size in weight.shape])) for weight in model.weights)
    flops = 0
    for layer, place, times in book.uses:
        if times is None:
            return Cost(total - saved, None)
        flops += 2 * times * sizes[id(layer), place]
    return Cost(total - saved, flops)


def _lengths(book: Book, kept: Kept) -> dict[tuple[int, int], dict[int, int]]:
    """How long each axis of a weight is afterwards, where it is cut."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for (key, place, axis), cut in book.cuts.items():
        found.setdefault((key, place), {})[axis] = int(np.count_nonzero(kept[cut.labels]))
    return found
