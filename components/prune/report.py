"""What pruning did, layer by layer: for the model card, and as a small table."""

import gzip
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.components.prune.kernels import Kernel
from tfopt.components.prune.speed import in_words, speed
from tfopt.wording import data_size

SHOWN = 12

Report = dict[str, Any]


def gzipped_sizes(kernels: Sequence[Kernel]) -> list[int]:
    """Bytes of each kernel, gzipped."""
    return [len(gzip.compress(kernel.values.tobytes(), 6, mtime=0)) for kernel in kernels]


def describe(kernels: Sequence[Kernel], gzipped_before: Sequence[int]) -> Report:
    """Return the report of a pruned model.

    Args:
        kernels: Every kernel, with its weights as they are now.
        gzipped_before: Bytes of each before pruning.
    """
    layers: list[Report] = [
        {
            "layer": kernel.path,
            "weight": kernel.name,
            "shape": list(kernel.variable.shape),
            "sparsity": float(np.mean(kernel.values == 0)),
            "bytes": kernel.values.nbytes,
            "gzipped": after,
            "gzipped_before": before,
            "left": kernel.left,
            "speed": dict(speed(kernel, kernels[0])),
        }
        for kernel, before, after in zip(kernels, gzipped_before, gzipped_sizes(kernels), strict=True)
    ]
    total = sum(int(kernel.values.size) for kernel in kernels)
    zeros = sum(int(np.count_nonzero(kernel.values == 0)) for kernel in kernels)
    pruned = sum(kernel.left is None for kernel in kernels)
    summary = f"{pruned} of {len(kernels)} kernels pruned, {zeros / total:.1%} of their weights are zero"
    return {"summary": summary, "sparsity": zeros / total, "speed": in_words(layers), "layers": layers}


def table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines to print: each layer's zeros and bytes, and what keeps the rest."""
    layers = report["layers"][:SHOWN]
    width = max(len(layer["layer"]) for layer in layers)
    lines = [
        f"  {layer['layer']:{width}}  {layer['sparsity']:6.1%} zeros  {data_size(layer['gzipped_before']):>8} -> "
        f"{data_size(layer['gzipped']):>8} gzipped" + (f"  left: {layer['left']}" if layer["left"] else "")
        for layer in layers
    ]
    more = len(report["layers"]) - len(layers)
    lines += [f"  {more} more: see report in the model card"] if more > 0 else []
    return [report["summary"], *lines, report["speed"]]
