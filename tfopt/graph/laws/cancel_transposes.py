"""Merge two Transposes into one, or remove both if they undo each other.

    Transpose(Transpose(x, p), q) = Transpose(x, p[q]),    = x if p[q] is 0, 1, 2, …

    before    x -> Transpose(0, 2, 3, 1) -> Transpose(0, 3, 1, 2) -> y
    after     x -> y

A Transpose that permutes nothing, such as every one of rank 1, equals its input.

Requires: constant permutations.
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op

PAIR = op("Transpose", op("Transpose", "x", const("first"), role="inner"), const("second"))
ALONE = op("Transpose", "x", const("second"))


def when(match: Match) -> str | None:
    return None if match.has("inner") or _is_identity(_permutation(match)) else "it is the only one, and permutes axes"


def rewrite(match: Match, make: Maker) -> Tensor:
    combined = _permutation(match)
    if _is_identity(combined):
        return match.tensor("x")
    axes = make.constant("perm", combined, match.array("second"))
    return make.node("Transpose", match.tensor("x"), axes, like=match.node())


def _permutation(match: Match) -> NDArray[np.int64]:
    second = as_permutation(match.array("second"))
    return as_permutation(match.array("first"))[second] if match.has("inner") else second


def as_permutation(array: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return axes counted from the first one."""
    return array.astype(np.int64) % max(len(array), 1)


def _is_identity(permutation: NDArray[np.int64]) -> bool:
    return bool((permutation == np.arange(len(permutation))).all())


LAW = LocalLaw(
    (PAIR, ALONE),
    when,
    rewrite,
    after={
        "drop_dropout": "a dropout between two Transposes is gone then",
        "push_constants_into_bodies": "permutations in bodies are constants then",
    },
    follows="push_list_constants",
)
