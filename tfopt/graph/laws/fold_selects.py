"""Replace a selection with a constant condition by the side that it selects.

    select(true, x, y) = x        select(false, x, y) = y

    before    Const(true, …), x, y -> SelectV2 -> z
    after     x -> z

If the result is larger than the side, a BroadcastTo remains. Every value of the other side is ignored, NaN too.

Requires: a condition that is the same for all elements; for SelectV2, which broadcasts, the static shape of the result.
"""

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op

PATTERN = op(("Select", "SelectV2"), const("condition"), "true", "false")


def when(match: Match) -> str | None:
    condition = match.array("condition")
    if not condition.size or condition.any() != condition.all():
        return "the condition varies"
    if match.node().op == "Select" or _is_same_tensor(match):  # both sides have the shape of the result
        return None
    return "the shape of the result is not known" if None in (match.shape("root") or (None,)) else None


def rewrite(match: Match, make: Maker) -> Tensor:
    side, shape = "true" if match.array("condition").all() else "false", match.shape("root")
    if match.node().op == "Select" or _is_same_tensor(match) or match.shape(side) == shape:
        return match.tensor(side)
    return make.broadcast(match.tensor(side), shape or (), match.node())


def _is_same_tensor(match: Match) -> bool:
    return match.tensor("true") == match.tensor("false") and match.array("condition").ndim == 0


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    after={
        "fold_constants": "more conditions are constants then",
        "fold_reshape_sizes": "the result of a Reshape has a static shape then",
    },
)
