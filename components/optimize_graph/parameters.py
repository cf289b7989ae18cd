"""Parameters of `optimize_graph`, and the names of its passes: presets, laws, and optimizers of Grappler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between, Names, Reads
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


@dataclass(frozen=True)
class Optimization:
    """Parameters of an optimization.

    Attributes:
        passes: Presets, laws and ``grappler:NAME``, in the order in which they are tried; ``without:NAME`` removes one
            from a preset.
        tolerance: Undo a pass if an output differs by more than this fraction of its range. The default is 0.0001, or
            0.01 if the graph computes in float16, or 0.05 if it computes in bfloat16.
        fast_math: Speed before IEEE 754: do not compare NaN, infinities, zeros of both signs, denormals and extremes,
            and run laws that hold for finite numbers only.
        explain: Pass the model through unchanged; the report describes what each pass would do.
        fixed_layout: Compute convolutions in the layout of the graph (NHWC or NCHW) also on a GPU, where TensorFlow
            otherwise chooses one by a rule when it loads the model: the faster layout depends on the model. Steps that
            rewrite or convert the result undo it.
        inputs: For a frozen graph: the nodes that are fed, placeholders or inner nodes, at which the graph is cut. They
            become the inputs of the signature. ``NODE:1`` is another output, ``NODE=?x28x28x1`` adds a shape where the
            graph has none. Empty if the outputs are constants.
        outputs: For a frozen graph: the nodes that are fetched.
        feature_signature: Key of a further signature that takes the features which the signature parses from records;
            none by default. Servers and formats without records can use it.
        frozen_graph: Also write the optimized graph as ``frozen.pb``; the model card lists the names of its inputs and
            outputs under ``frozen_graph``.
    """

    passes: Annotated[tuple[str, ...], Reads(read_passes, ("inference",)), Names()] = ("inference",)
    tolerance: Annotated[float, Between(0, 1)] | None = None
    fast_math: bool = False
    explain: bool = False
    fixed_layout: bool = False
    inputs: Annotated[tuple[str, ...], Names()] = ()
    outputs: Annotated[tuple[str, ...], Names()] = ()
    feature_signature: str = ""
    frozen_graph: bool = False
