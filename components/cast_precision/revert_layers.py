"""Selective revert: choose the layers that return to float32: those with the largest errors, as many as needed."""

from collections import defaultdict
from collections.abc import Callable


def revert(
    chosen: set[str], error: Callable[[set[str]], float], allowed: float
) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Return the layers to revert with their nodes, and the error of each layer cast alone (empty if not measured).

    Args:
        chosen: The nodes that can be cast.
        error: The error of a model in which these nodes are cast.
        allowed: The largest error.

    Layers are ordered by their error alone. Bisection finds how many of the worst must be reverted: errors mostly add
    up, so fewer cast layers give a smaller error. All layers are returned if even the last one exceeds the limit.
    """
    if error(chosen) <= allowed:
        return {}, {}
    layers = _layers(chosen)
    alone = {name: error(nodes) for name, nodes in layers.items()}
    order = sorted(layers, key=lambda name: (-alone[name], name))
    low, high = 0, len(order)  # reverting `low` layers is too few; `high` is enough, or all
    while high - low > 1:
        middle = (low + high) // 2
        left = set().union(*(layers[name] for name in order[middle:]))
        low, high = (low, middle) if error(left) <= allowed else (middle, high)
    return {name: layers[name] for name in order[:high]}, {name: alone[name] for name in order}


def _layers(nodes: set[str]) -> dict[str, set[str]]:
    """Group nodes by layer: the scope of their name."""
    layers: dict[str, set[str]] = defaultdict(set)
    for name in nodes:
        layers[name.rpartition("/")[0] or name].add(name)
    return dict(layers)
