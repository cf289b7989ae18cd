"""Report of a pruned model, by layer: for the model card, and as a table for the log.

For each layer it contains whether a runtime can be faster with its zeros, or the reason why not.

References:
    XNNPACK's delegate, "Sparse inference" in its README: 1x1 convolutions of a network that starts with a 3x3
    convolution of stride 2 on 3 channels. TensorRT, "Working with structured sparsity": 2:4 along the input channels.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.components.prune.kernels import TRANSPOSED, PrunableKernel
from tfopt.components.prune.patterns import is_n_m
from tfopt.keras_models.kernels import Kernel, report_row, table_lines
from tfopt.value_types import JsonObject

RUNTIMES = ("xnnpack", "tensorrt", "others")
MIN_ZEROS = 2 / 3  # fraction from which XNNPACK uses its sparse kernels
OTHER_RUNTIMES = "no: it multiplies zeros like other weights"


def describe(kernels: Sequence[PrunableKernel], gzipped_before: Sequence[int]) -> JsonObject:
    """Return the report of a pruned model; ``gzipped_before`` are the bytes of each kernel before pruning."""
    layers: list[JsonObject] = [
        {**report_row(kernel, before), "left": kernel.left, "speed": speedups(kernel, kernels[0])}
        for kernel, before in zip(kernels, gzipped_before, strict=True)
    ]
    total = sum(int(kernel.values.size) for kernel in kernels)
    zeros = sum(int(np.count_nonzero(kernel.values == 0)) for kernel in kernels)
    pruned = sum(kernel.left is None for kernel in kernels)
    summary = f"{pruned} of {len(kernels)} kernels pruned, {zeros / total:.1%} of their weights are zero"
    return {"summary": summary, "sparsity": zeros / total, "speed": summarize_speedups(layers), "layers": layers}


def describe_channels(before: Iterable[Kernel], after: Iterable[Kernel]) -> JsonObject:
    """Return the report of a model with fewer channels: the size of each kernel before and after."""
    baselines = {(kernel.path, kernel.name): kernel for kernel in before}
    layers: list[JsonObject] = []
    smaller = 0
    for kernel in after:
        baseline = baselines[kernel.path, kernel.name]
        is_smaller = kernel.values.nbytes < baseline.values.nbytes
        smaller += is_smaller
        layers.append(
            {
                **report_row(kernel, baseline.gzipped),
                "shape_before": list(baseline.variable.shape),
                "bytes_before": baseline.values.nbytes,
                "speed": dict.fromkeys(RUNTIMES, "yes: dense and smaller" if is_smaller else "no: unchanged channels"),
            }
        )
    speed = f"every runtime multiplies less, in {smaller} of {len(layers)} kernels: benchmark measures the speedup"
    return {"speed": speed, "layers": layers}


def table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines to print: zeros and bytes of each layer, and the runtimes that can be faster, or the reasons."""
    pruned = [layer for layer in report["layers"] if not layer["left"]]
    reasons = Counter((runtime, layer["speed"][runtime]) for runtime in RUNTIMES for layer in pruned)
    return [
        report["summary"],
        *table_lines(report["layers"], "{sparsity:6.1%} zeros"),
        report["speed"],
        *(
            f"  {runtime}, {count} of {len(pruned)} pruned kernels: {reason}"
            for (runtime, reason), count in reasons.items()
        ),
    ]


def speedups(kernel: PrunableKernel, first: PrunableKernel) -> dict[str, str]:
    """Return ``yes`` with a condition, or ``no`` with the reason, for each runtime.

    The model's first kernel decides whether XNNPACK uses sparse kernels.
    """
    return {"xnnpack": _xnnpack(kernel, first), "tensorrt": _tensorrt(kernel), "others": OTHER_RUNTIMES}


def _xnnpack(kernel: PrunableKernel, first: PrunableKernel) -> str:
    shape, kind = tuple(kernel.variable.shape), type(kernel.layer).__name__
    if kind != "Conv2D" or shape[:2] != (1, 1):
        return "no: it has sparse 1x1 convolutions only"
    if np.mean(kernel.values == 0) < MIN_ZEROS:
        return f"no: under {MIN_ZEROS:.0%} zeros"
    first_shape = tuple(first.variable.shape)
    stride = tuple(getattr(first.layer, "strides", ()))
    if first_shape[:3] != (3, 3, 3) or stride != (2, 2):
        return "no: only in a network that starts with a 3x3 convolution of stride 2 on 3 channels"
    return "yes: if the file is exported sparse in float32; measure it"


def _tensorrt(kernel: PrunableKernel) -> str:
    kind: str = type(kernel.layer).__name__
    if kind in TRANSPOSED or not any(word in kind for word in ("Conv", "Dense")):
        return "no: it has sparse convolutions and matrix products only"
    if not is_n_m(kernel.values, 2, 4, kernel.axis):
        return "no: it needs 2 zeros in every 4 input channels (pattern='n_m')"
    return "yes: in float16 or int8, on a GPU of compute capability 8.0 or later"


def summarize_speedups(layers: Sequence[Mapping[str, Any]]) -> str:
    """Return one line with the runtimes that can be faster with the zeros."""
    counts = {
        runtime: sum(layer["speed"][runtime].startswith("yes") for layer in layers)
        for runtime in ("xnnpack", "tensorrt")
    }
    faster = [f"{runtime} in {count} of {len(layers)} layers" for runtime, count in counts.items() if count]
    return (
        f"runtimes that can use the zeros: {', '.join(faster)}"
        if faster
        else "zeros make the compressed file smaller, and no runtime faster"
    )
