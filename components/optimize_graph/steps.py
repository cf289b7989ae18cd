"""The names a list of passes is written in: presets, laws, and Grappler's optimizers."""

from collections.abc import Sequence

from tfopt.errors import ComponentError, nearest
from tfopt.graph.grappler import OPTIMIZERS, PORTABLE
from tfopt.graph.order import ASKED_FOR, NORMALIZING, ORDER

GRAPPLER = "grappler:"
LAWS = tuple(name for name, _ in ORDER)
PRESETS = {
    "portable": LAWS,
    # Grappler last: it gives nodes shapes of its own that a law would no longer recognize. Not its shape optimizer and
    # inliner: there is nothing left for them in a frozen graph.
    "inference": (*LAWS, *(GRAPPLER + name for name in PORTABLE if name not in ("function", "shape"))),
    "size": (*NORMALIZING[:-1], "fold_batch_norm", "fold_scale", "fold_shift", "share_equal_nodes", "strip_unused"),
}


def read_passes(words: Sequence[str]) -> list[str]:
    """Return the passes that a list of words stands for, in order.

    Raises:
        ComponentError: When there is none, or a word is not known.

    >>> read_passes(["fold_constants", "grappler:arithmetic"])
    ['fold_constants', 'grappler:arithmetic']
    """
    asked_for = (name for name, _ in ASKED_FOR)
    known = {**PRESETS, **{name: (name,) for name in (*LAWS, *asked_for, *(GRAPPLER + name for name in OPTIMIZERS))}}
    for word in words:
        if word not in known:
            raise ComponentError(f"passes: {word!r}", "a preset, a law, or grappler:NAME", nearest(word, known))
    if not words:
        raise ComponentError("passes: an empty list", "at least one pass", 'pass passes=["inference"]')
    return [name for word in words for name in known[word]]
