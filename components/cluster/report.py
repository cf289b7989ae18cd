"""Report of a clustered model, by layer: for the model card, and as a table for the log."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.formatting import data_size
from tfopt.keras_models.kernels import Kernel, report_row, table_lines
from tfopt.keras_models.layer_graph import calls, is_graph
from tfopt.value_types import JsonObject


def describe(model: Any, kernels: Sequence[Kernel], gzipped_before: Sequence[int]) -> JsonObject:
    """Return the report of a clustered model; ``gzipped_before`` are the bytes of each kernel before clustering."""
    layers = [
        {**report_row(kernel, before), "values": len(np.unique(kernel.values)), "left": kernel.left}
        for kernel, before in zip(kernels, gzipped_before, strict=True)
    ]
    count = sum(kernel.left is None for kernel in kernels)
    summary = f"{count} of {len(kernels)} kernels clustered, {data_size(sum(gzipped_before))} gzipped before and "
    summary += f"{data_size(sum(layer['gzipped'] for layer in layers))} now"
    paths = {id(kernel.layer): kernel.path for kernel in kernels if not kernel.left}
    folded = sorted({paths[id(layer)] for layer in _before_batch_norms(model) if id(layer) in paths})
    return {"summary": summary, "unshared_when_folded": folded, "layers": layers}


def table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines to print: values and bytes of each layer, and the batch norms that would undo the sharing."""
    rows = table_lines(report["layers"], "{values:5} values")
    folded = report["unshared_when_folded"]
    if folded:
        rows.append(
            f"  batch norms follow {', '.join(folded[:3])}{' and others' if len(folded) > 3 else ''}: exporters fold "
            "them into the kernels, and channels no longer share weights; run fold_batch_norm before this step"
        )
    return [report["summary"], *rows]


def _before_batch_norms(model: Any) -> list[Any]:
    """Return the layers whose output is the input of a batch norm."""
    if not is_graph(model):
        return []
    layers: list[Any] = []
    makers: dict[int, Any] = {}
    for call in calls(model):
        makers |= {id(tensor): call.layer for tensor in call.outputs}
        if type(call.layer).__name__ == "BatchNormalization":
            layers += [makers[id(tensor)] for tensor in call.inputs if id(tensor) in makers]
        layers += _before_batch_norms(call.layer)
    return layers
