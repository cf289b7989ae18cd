"""Fold a Pad with zeros into the padding of the convolution after it.

    conv(pad(x), K, VALID) = conv(x, K, SAME)

    before    x -> Pad -> Conv2D(K, VALID) -> y
    after     x -> Conv2D(K, SAME) -> y

Keras's ZeroPadding2D before a strided convolution has this form. Other paddings could be written as EXPLICIT, but
converters to other formats would have to convert that to a Pad again.

Requires: exactly the zeros that SAME adds, which for a stride other than 1 depends on the size of the data.
"""

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, one_of, op

PAD = one_of(
    op(("Pad", "MirrorPad"), "x", const("paddings"), role="pad"),
    op("PadV2", "x", const("paddings"), const("value"), role="pad"),
)
PATTERN = op(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), PAD, "kernel")


def when(match: Match) -> str | None:
    if match.attr("padding") != "VALID":
        return f"the convolution's own padding is {match.attr('padding')}"
    if match.node("pad").op == "MirrorPad" or (match.has("value") and match.array("value") != 0):
        return "the padding is not zero"
    same = _same_padding(match)
    if isinstance(same, str):
        return same
    padding = [(int(before), int(after)) for before, after in match.array("paddings")]
    return None if padding == same else f"zeros {padding}; SAME adds {same}"


def rewrite(match: Match, make: Maker) -> Tensor:
    conv = match.node()
    return make.node(conv.op, match.tensor("x"), match.tensor("kernel"), like=conv, padding="SAME")


def _same_padding(match: Match) -> list[tuple[int, int]] | str:
    """Return the zeros that SAME adds before and after each axis, or why they are unknown.

    Source: tf.nn.convolution, "Note on padding".
    """
    layout = match.attr("data_format") or "NHWC"
    shape, kernel, strides = match.shape("x"), match.shape("kernel"), match.attr("strides")
    dilations = match.attr("dilations") or [1] * len(strides)
    if shape is None or kernel is None:
        return "the shape of the data or of the kernel is not known"
    zeros, windows = [(0, 0)] * len(shape), iter(kernel)
    for axis, letter in enumerate(layout):
        if letter in "NC":
            continue
        window, size, stride = next(windows), shape[axis], strides[axis]
        if window is None or (size is None and stride != 1):
            return "the size of the data is not known, and the stride is not 1"
        reach, size = (window - 1) * dilations[axis] + 1, size or 1  # with stride 1 any size gives the same
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        zeros[axis] = (total // 2, total - total // 2)
    return zeros


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    rounds=True,
    after={"fold_reshape_sizes": "the zeros that SAME adds depend on a size"},
    follows="drop_neutral_fills",
)
