"""Measure the smallest and largest value of tensors on calibration examples."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tfopt.data.batches import Batch
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph_checks.frozen_runtime import FrozenRuntime

Range = tuple[float, float]


def measure_ranges(
    frozen: Frozen, key: str, tensors: Iterable[Tensor], batches: Iterable[Batch]
) -> list[dict[Tensor, Range]]:
    """Return, for each batch, the range of each tensor.

    Args:
        frozen: The model; it is not changed.
        key: The signature that is run.
        tensors: Tensors of floats that this signature computes.
        batches: Its inputs.
    """
    measured = list(dict.fromkeys(tensors))
    graph = type(frozen.graph)()
    graph.CopyFrom(frozen.graph)
    outputs = {}
    for number, tensor in enumerate(measured):
        for op in ("Min", "Max"):
            name = _add_extreme(graph, op, str(tensor), f"calibration/{op}_{number}")
            outputs[f"{op}_{number}"] = Endpoint(f"{name}:0", "float32", ())
    probed = replace(frozen, graph=graph, signatures={key: Signature(frozen.signatures[key].inputs, outputs)})
    ranges = []
    with FrozenRuntime(probed, key) as runtime:
        for batch in batches:
            values = runtime.run(batch)
            lows, highs = ([float(values[f"{op}_{index}"]) for index in range(len(measured))] for op in ("Min", "Max"))
            ranges.append(dict(zip(measured, zip(lows, highs, strict=True), strict=True)))
    return ranges


def union(ranges: Iterable[dict[Tensor, Range]]) -> dict[Tensor, Range]:
    """Return the range over all batches; NaN in one stays NaN."""
    joined: dict[Tensor, Range] = {}
    for batch_ranges in ranges:
        for tensor, (low, high) in batch_ranges.items():
            lowest, highest = joined.get(tensor, (low, high))
            joined[tensor] = (float(np.minimum(low, lowest)), float(np.maximum(high, highest)))
    return joined


def _add_extreme(graph: Any, op: str, tensor: str, name: str) -> str:
    """Add nodes that compute the smallest or largest value of a tensor, and return the name of the last."""
    import tensorflow as tf

    for role, values in (("all", np.asarray([-1], np.int32)), ("axis", np.asarray([0], np.int32))):
        const = graph.node.add(name=f"{name}/{role}", op="Const")
        const.attr["dtype"].type = tf.int32.as_datatype_enum
        const.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
    flat = graph.node.add(name=f"{name}/flat", op="Reshape", input=[tensor, f"{name}/all"])
    flat.attr["T"].type, flat.attr["Tshape"].type = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
    reduced = graph.node.add(name=name, op=op, input=[f"{name}/flat", f"{name}/axis"])
    reduced.attr["T"].type, reduced.attr["Tidx"].type = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
    return name
