"""Replace SpaceToBatchND, a convolution and BatchToSpaceND by a dilated convolution.

    batch_to_space(conv(space_to_batch(x, d, paddings), K, VALID), d, crops) = conv(x, K, dilation d)

    before    x -> SpaceToBatchND(d) -> Conv2D(K, VALID) -> BatchToSpaceND(d) -> y
    after     x -> Conv2D(K, SAME or VALID, dilations d) -> y

TensorFlow 1 and Keras export dilated convolutions in this form. The convolution of one axis is between ExpandDims and
Squeeze. The sums have the same terms, in an order that the kernel chooses. A bias in between follows. A batch norm
after it is folded afterwards.

Requires: a bias of one number for each channel; stride 1 and no other dilation; static sizes; zeros before the data and
a number of results as VALID or SAME has them; no results cut off at the beginning.

Source: tf.nn.with_space_to_batch; `flatten_atrous_conv` of the Graph Transform Tool.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Op, Tensor, const, op

TO_BATCH = op("SpaceToBatchND", "x", const("block"), const("paddings"), role="to batch")


def patterns(conv: str) -> tuple[Op, ...]:
    """Return the left-hand sides for an operation: a convolution of two axes or one, with a bias or without."""
    plain = op(conv, TO_BATCH, "kernel", role="conv")
    expanded = op("ExpandDims", TO_BATCH, const("axis"), role="expand")
    line = op("Squeeze", op(conv, expanded, "kernel", role="conv"), role="squeeze")
    sums = [op(("BiasAdd", "Add", "AddV2"), form, const("bias"), role="sum") for form in (plain, line)]
    forms = (plain, sums[0], line, sums[1])
    return tuple(op("BatchToSpaceND", form, const("same block"), const("crops")) for form in forms)


def when(match: Match) -> str | None:
    conv = match.node("conv")
    if match.attr("padding", "conv") != "VALID" or match.attr("data_format", "conv") != "NHWC":
        return "the convolution has a padding of its own, or channels first"
    if {*match.attr("strides", "conv"), *(match.attr("dilations", "conv") or [1])} != {1}:
        return f"the {conv.op} has strides or dilations"
    if not np.array_equal(match.array("block"), match.array("same block")):
        return "the blocks of both sides differ"
    if len(match.array("block")) != (1 if match.has("axis") else 2):
        return "other axes than those of the convolution are divided"
    if match.has("axis") and not _is_line(match):
        return "the new axis is not that before the data, or is not removed"
    if match.has("sum") and not _is_bias(match):
        return "the bias is not one number for each channel"
    padding = _padding(match)
    return padding if padding not in ("SAME", "VALID") else None


def rewrite(match: Match, make: Maker) -> Tensor:
    conv, block = match.node("conv"), [int(size) for size in match.array("block")]
    dilations = [1, *([1, *block] if match.has("axis") else block), 1]
    data = match.tensor("x")
    if match.has("axis"):
        data = make.again(match.node("expand"), data, match.tensor("axis"))
    made = make.node(conv.op, data, match.tensor("kernel"), like=conv, padding=_padding(match), dilations=dilations)
    if match.has("axis"):
        made = make.again(match.node("squeeze"), made)
    return make.again(match.node("sum"), made, match.tensor("bias")) if match.has("sum") else made


def _is_bias(match: Match) -> bool:
    bias = match.array("bias")
    channels_first = match.node("sum").op == "BiasAdd" and match.attr("data_format", "sum") == "NCHW"
    return not channels_first and (bias.ndim == 0 or bias.size == bias.shape[-1])


def _is_line(match: Match) -> bool:
    kernel = match.shape("kernel")
    squeezed = match.attr("squeeze_dims", "squeeze")
    return match.array("axis").item() in (1, -3) and squeezed in ([1], [-3]) and kernel is not None and kernel[0] == 1


def _padding(match: Match) -> str:
    """Return SAME or VALID, or why it is neither."""
    kernel, shape = match.shape("kernel"), match.shape("x")
    if kernel is None or shape is None:
        return "the shape of the data or of the kernel is not known"
    windows = kernel[1:2] if match.has("axis") else kernel[:2]
    paddings: set[str] = set()
    for axis, (window, block, size) in enumerate(zip(windows, match.array("block"), shape[1:], strict=False)):
        (left, right), (cut, last) = (match.array(role)[axis] for role in ("paddings", "crops"))
        if window is None:
            return "the shape of the data or of the kernel is not known"
        if size is None or (size + left + right) % block:
            return "the size of the data is not known"
        if cut:
            return "the first results are cut off"
        reach = (window - 1) * block  # results: size + left + right - reach - last
        before = reach // 2
        results = size + left + right - reach - last
        kinds = {"VALID"} if left == 0 and results == size - reach else set()
        kinds |= {"SAME"} if left == before and results == size else set()
        if not kinds:
            return f"{left} zeros before and {size} elements make {results}, which is neither SAME nor VALID"
        paddings = kinds & paddings if axis else kinds
    return min(paddings) if paddings else "one axis is SAME, the other VALID"


LAW = LocalLaw(
    patterns("Conv2D"),
    when,
    rewrite,
    rounds=True,
    before={
        "fuse_pad_into_conv": "padding is next to the convolution then",
        "fold_batch_norm": "a batch norm is next to the convolution then",
    },
    follows="fuse_reshapes",
)
