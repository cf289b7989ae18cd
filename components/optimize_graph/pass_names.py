"""Names of passes: presets, laws, and optimizers of Grappler."""

from collections.abc import Sequence

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.graph.grappler import OPTIMIZERS, PORTABLE
from tfopt.graph.law_order import FAST_MATH, NORMALIZING, OPT_IN
from tfopt.graph.law_order import ORDER as LAWS

GRAPPLER, WITHOUT = "grappler:", "without:"
PRESETS = {
    "portable": LAWS,
    # Grappler runs last: laws would not recognize the nodes that it writes. Its shape optimizer and inliner are left
    # out: a frozen graph has nothing for them to do.
    "inference": (*LAWS, *(GRAPPLER + name for name in PORTABLE if name not in ("function", "shape"))),
    "size": (*NORMALIZING[:-1], "fold_batch_norm", "fold_scale", "fold_shift", "share_equal_nodes", "strip_unused"),
}


def read_passes(words: Sequence[str], *, fast_math: bool = False) -> list[str]:
    """Return the passes of a list of words, in order: presets are expanded, and ``without:NAME`` removes a pass.

    With ``fast_math``, laws that assume finite values follow their restricted forms.

    Raises:
        ComponentError: If no pass remains, or a word is unknown.

    >>> read_passes(["fold_constants", "grappler:arithmetic"])
    ['fold_constants', 'grappler:arithmetic']
    >>> set(read_passes(["inference"])) - set(read_passes(["inference", "without:drop_assertions"]))
    {'drop_assertions'}
    """
    meanings = {**PRESETS, **{name: (name,) for name in (*LAWS, *OPT_IN, *(GRAPPLER + name for name in OPTIMIZERS))}}
    meanings |= {WITHOUT + name: () for name in meanings if name not in PRESETS}
    for word in words:
        if word not in meanings:
            expected = "a preset, a law, grappler:NAME, or without:NAME"
            raise ComponentError(repr(word), expected, nearest(word, meanings))
    left_out = {word.removeprefix(WITHOUT) for word in words if word.startswith(WITHOUT)}
    passes = [name for word in words for name in meanings[word] if name not in left_out]
    if fast_math:
        passes = [law for name in passes for law in (name, FAST_MATH.get(name)) if law and law not in left_out]
    if not passes:
        raise ComponentError(f"no pass in {list(words)}", "at least one pass", 'pass passes=["inference"]')
    return passes
