"""Selective revert: which layers go back to float32, as few as needed, the worst first."""

from collections import defaultdict
from collections.abc import Callable


def revert(
    chosen: set[str], error: Callable[[set[str]], float], allowed: float
) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Return the layers to take back, with their nodes, and the error of each layer cast alone (when it was needed).

    Args:
        chosen: The nodes that can be cast.
        error: The error of a model in which these nodes are cast.
        allowed: The largest error.

    The layers are ordered by what they cost alone, and halving finds how many of the worst must go back: errors mostly
    add up, so that fewer cast layers mean less of it. Returns all of them when even the last one costs too much.
    """
    if error(chosen) <= allowed:
        return {}, {}
    layers = _layers(chosen)
    alone = {name: error(nodes) for name, nodes in layers.items()}
    order = sorted(layers, key=lambda name: (-alone[name], name))
    low, high = 0, len(order)  # taking back `low` is too few; `high` is enough, or all there are
    while high - low > 1:
        middle = (low + high) // 2
        left = set().union(*(layers[name] for name in order[middle:]))
        low, high = (low, middle) if error(left) <= allowed else (middle, high)
    return {name: layers[name] for name in order[:high]}, {name: alone[name] for name in order}


def _layers(nodes: set[str]) -> dict[str, set[str]]:
    """Nodes by the layer, the scope that their name begins with."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in nodes:
        found[name.rpartition("/")[0] or name].add(name)
    return dict(found)
