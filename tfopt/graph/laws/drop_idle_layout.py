"""Remove layout operations that do nothing: tile by 1, pad by 0, a Squeeze without axes, and similar ones.

    tile(x, 1) = pad(x, 0) = squeeze(x without axes of size 1) = split(x, in 1) = addn([x]) = x

    before    x -> Pad(0, 0) -> Conv2D
    after     x -> Conv2D

Keras exports such a Pad if the size is divisible, and `push_list_constants` leaves lists of one tensor.

Requires: constant arguments; static shapes for Squeeze and BroadcastTo.
"""

from tfopt.graph.law import LocalLaw, Match, const, op, return_input

PATTERNS = (
    op(("Tile", "Pad", "MirrorPad"), "x", const("how")),
    op("PadV2", "x", const("how"), "value"),
    op(("Squeeze", "AddN"), "x"),
    op("BroadcastTo", "x", "shape"),
    op("Split", "axis", "x"),
)


def when(match: Match) -> str | None:
    if match.has("how"):
        idle = 1 if match.node().op == "Tile" else 0
        return None if (match.array("how") == idle).all() else "it makes the data larger"
    before, after = match.shape("x"), match.shape("root")
    if match.node().op == "Squeeze":
        return None if before is not None and after is not None and len(before) == len(after) else "it removes axes"
    if match.node().op == "BroadcastTo":
        same = before is not None and None not in before and before == after
        return None if same else "it may make the data larger"
    return None if match.node().op != "Split" or match.attr("num_split") == 1 else "it splits"


LAW = LocalLaw(PATTERNS, when, return_input, follows="fuse_pad_into_conv")
