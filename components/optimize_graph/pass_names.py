"""The names a list of passes is written in: presets, laws, and Grappler's optimizers."""

from collections.abc import Sequence

from tfopt.errors import ComponentError, nearest
from tfopt.graph.grappler import OPTIMIZERS, PORTABLE
from tfopt.graph.rewrite_order import NORMALIZING, OPT_IN, ORDER

GRAPPLER, WITHOUT = "grappler:", "without:"
LAWS = tuple(name for name, _ in ORDER)
PRESETS = {
    "portable": LAWS,
    # Grappler last: it gives nodes shapes of its own that a law would no longer recognize. Not its shape optimizer and
    # inliner: there is nothing left for them in a frozen graph.
    "inference": (*LAWS, *(GRAPPLER + name for name in PORTABLE if name not in ("function", "shape"))),
    "size": (*NORMALIZING[:-1], "fold_batch_norm", "fold_scale", "fold_shift", "share_equal_nodes", "strip_unused"),
}


def read_passes(words: Sequence[str]) -> list[str]:
    """Return the passes that a list of words stands for, in order, without those that a word takes out.

    Raises:
        ComponentError: When there is none, or a word is not known.

    >>> read_passes(["fold_constants", "grappler:arithmetic"])
    ['fold_constants', 'grappler:arithmetic']
    >>> set(read_passes(["inference"])) - set(read_passes(["inference", "without:drop_assertions"]))
    {'drop_assertions'}
    """
    asked_for = (name for name, _ in OPT_IN)
    known = {**PRESETS, **{name: (name,) for name in (*LAWS, *asked_for, *(GRAPPLER + name for name in OPTIMIZERS))}}
    known |= {WITHOUT + name: () for name in known if name not in PRESETS}
    for word in words:
        if word not in known:
            expected = "a preset, a law, grappler:NAME, or without:NAME"
            raise ComponentError(repr(word), expected, nearest(word, known))
    left_out = {word.removeprefix(WITHOUT) for word in words if word.startswith(WITHOUT)}
    passes = [name for word in words for name in known[word] if name not in left_out]
    if not passes:
        raise ComponentError(f"no pass in {list(words)}", "at least one pass", 'pass passes=["inference"]')
    return passes
