"""What pruning did, layer by layer: for the model card, and as a small table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.components.prune.kernels import Prunable
from tfopt.components.prune.speed import in_words, speed
from tfopt.kernels import lines

Report = dict[str, Any]


def describe(kernels: Sequence[Prunable], gzipped_before: Sequence[int]) -> Report:
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
            "gzipped": kernel.gzipped,
            "gzipped_before": before,
            "left": kernel.left,
            "speed": dict(speed(kernel, kernels[0])),
        }
        for kernel, before in zip(kernels, gzipped_before, strict=True)
    ]
    total = sum(int(kernel.values.size) for kernel in kernels)
    zeros = sum(int(np.count_nonzero(kernel.values == 0)) for kernel in kernels)
    pruned = sum(kernel.left is None for kernel in kernels)
    summary = f"{pruned} of {len(kernels)} kernels pruned, {zeros / total:.1%} of their weights are zero"
    return {"summary": summary, "sparsity": zeros / total, "speed": in_words(layers), "layers": layers}


def table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines to print: each layer's zeros and bytes, and what keeps the rest."""
    return [report["summary"], *lines(report["layers"], "{sparsity:6.1%} zeros"), report["speed"]]
