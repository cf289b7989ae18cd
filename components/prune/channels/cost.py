"""Parameters and FLOPs of a model with some of its channels, computed from the labels without building it."""

import math
from dataclasses import dataclass

import numpy as np

from tfopt.components.prune.channels.labels import ChannelGraph, Remaining
from tfopt.keras_models.layer_graph import Layer


@dataclass(frozen=True)
class Cost:
    """The size of a model.

    FLOPs are multiplications and additions of the kernels that are followed, for one record. Additions of biases and
    ops without a kernel are not counted.
    """

    parameters: int  # number of elements of all weights, trainable or not
    flops: int | None  # None if a size is unknown


def count_cost(model: Layer, graph: ChannelGraph, remaining: Remaining) -> Cost:
    """Return the cost of the model with the remaining channels."""
    shapes: dict[tuple[int, int], list[int]] = {}
    for (key, weight, axis), cut in graph.cuts.items():
        shape = shapes.setdefault((key, weight), [int(size) for size in cut.layer.weights[weight].shape])
        shape[axis] = int(np.count_nonzero(remaining[cut.labels]))
    sizes = {key: math.prod(shape) for key, shape in shapes.items()}
    before = {(key, weight): math.prod(cut.layer.weights[weight].shape) for (key, weight, _), cut in graph.cuts.items()}
    saved = sum(before.values()) - sum(sizes.values())
    total = sum(math.prod(weight.shape) for weight in model.weights)
    flops = 0
    for layer, weight, positions in graph.uses:
        if positions is None:
            return Cost(total - saved, None)
        flops += 2 * positions * sizes[id(layer), weight]
    return Cost(total - saved, flops)
