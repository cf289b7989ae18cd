"""What pruning did, layer by layer: for the model card, and as a small table."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.components.prune.kernels import Prunable
from tfopt.components.prune.speed import RUNTIMES, in_words, speed
from tfopt.keras_models.kernels import Kernel, table_lines

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


def describe_channels(before: Iterable[Kernel], after: Iterable[Kernel]) -> Report:
    """Return what the report of a model with fewer channels says of each kernel: its size, and who gains by it."""
    parents = {(kernel.path, kernel.name): kernel for kernel in before}
    layers: list[Report] = []
    for kernel in after:
        parent = parents[kernel.path, kernel.name]
        went = kernel.values.nbytes < parent.values.nbytes
        layers.append(
            {
                "layer": kernel.path,
                "weight": kernel.name,
                "shape_before": list(parent.variable.shape),
                "shape": list(kernel.variable.shape),
                "sparsity": float(np.mean(kernel.values == 0)),
                "bytes_before": parent.values.nbytes,
                "bytes": kernel.values.nbytes,
                "gzipped_before": parent.gzipped,
                "gzipped": kernel.gzipped,
                "speed": dict.fromkeys(RUNTIMES, "yes: dense and smaller" if went else "no: it kept its channels"),
            }
        )
    smaller = sum(layer["bytes"] < layer["bytes_before"] for layer in layers)
    said = f"every runtime multiplies less, in {smaller} of {len(layers)} kernels: benchmark says how much faster it is"
    return {"speed": said, "layers": layers}


def table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines to print: each layer's zeros and bytes, and what keeps the rest; who gains, and why not."""
    done = [layer for layer in report["layers"] if not layer["left"]]
    why = Counter((runtime, layer["speed"][runtime]) for runtime in RUNTIMES for layer in done)
    return [
        report["summary"],
        *table_lines(report["layers"], "{sparsity:6.1%} zeros"),
        report["speed"],
        *(f"  {runtime}, {count} of {len(done)} pruned kernels: {said}" for (runtime, said), count in why.items()),
    ]
