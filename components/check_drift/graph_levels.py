"""Count the values of activations at the ends of their 8-bit range, in OpenVINO files and 8-bit graphs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.components.check_drift.levels import FIXED, Levels, Shares
from tfopt.data.batches import Batch
from tfopt.runtimes.openvino import compile_model
from tfopt.runtimes.saved_model import SessionRuntime

SIGNED, UNSIGNED = 11, 12  # DT_QINT8 and DT_QUINT8 of TensorFlow


@dataclass(frozen=True)
class FloatRange:
    """The range of a `FakeQuantize` operation, in floats."""

    name: str
    low: float
    high: float
    levels: int

    def share(self, values: NDArray[np.float32]) -> float:
        """Return the share of values that it rounds to an end, or cuts off there; an end at zero is not counted."""
        half = (self.high - self.low) / (self.levels - 1) / 2
        at_ends = (values >= self.high - half) & (self.high != 0)
        at_ends |= (values <= self.low + half) & (self.low != 0)
        return float(at_ends.mean()) if values.size else 0.0


def open_openvino(model: Model, folder: Path) -> Callable[[Batch], Shares] | None:
    """Return a function that counts the values that each `FakeQuantize` of an OpenVINO file reads; None without any."""
    from tfopt.runtimes.openvino_import import openvino  # imports OpenVINO

    graph = openvino.Core().read_model(str(model.openvino))
    outputs = len(graph.outputs)
    ranges = dict[str, FloatRange]()
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "FakeQuantize":
            continue
        source, *limits = (node.input_value(index).get_node() for index in range(3))
        if source.get_type_name() in FIXED or any(limit.get_type_name() != "Constant" for limit in limits):
            continue
        low, high = (limit.data for limit in limits)
        name = source.get_friendly_name()
        if low.size == high.size == 1 and source.get_type_name() != "Constant" and name not in ranges:
            ranges[name] = FloatRange(name, float(low.item()), float(high.item()), node.get_attributes()["levels"])
            graph.add_outputs([node.input_value(0)])
    if not ranges:
        return None
    request = compile_model(graph, threads=1).create_infer_request()

    def count(batch: Batch) -> Shares:
        values = request.infer(dict(batch), share_inputs=True).to_tuple()[outputs:]
        return {one.name: one.share(read) for one, read in zip(ranges.values(), values, strict=True)}

    return count


def open_saved_model(model: Model, folder: Path) -> Callable[[Batch], Shares] | None:
    """Return a function that counts the values of the 8-bit tensors of a frozen graph; None if it has none."""
    if model.saved_model is None:
        return None
    meta_graph = read_meta_graph(model.saved_model)
    graph, signature = meta_graph.graph_def, meta_graph.signature_def[model.signature]
    operations = {node.name: node.op for node in graph.node}
    levels = dict[str, Levels]()
    for node in list(graph.node):
        attribute = {"QuantizeV2": "T", "_QuantizedMatMul": "Tout"}.get(node.op, "out_type")
        dtype = node.attr[attribute].type if attribute in node.attr else None
        if dtype not in (SIGNED, UNSIGNED) or not node.op.startswith(("QuantizeV2", "_Quantized", "_FusedQuantized")):
            continue
        source = node.input[0].split(":")[0] if node.op == "QuantizeV2" else node.name.removesuffix("/int8")
        if operations.get(source) in FIXED:
            continue
        read = graph.node.add(name=f"{node.name}/tfopt_levels", op="Bitcast", input=[node.name])
        kind = np.dtype(np.int8 if dtype == SIGNED else np.uint8)
        read.attr["T"].type, read.attr["type"].type = dtype, {"int8": 6, "uint8": 4}[kind.name]  # DT_INT8, DT_UINT8
        output = signature.outputs[read.name]
        output.name, output.dtype = f"{read.name}:0", read.attr["type"].type
        output.tensor_shape.unknown_rank = True
        levels[read.name] = Levels.of(source, kind, 0)
    if not levels:
        return None
    runtime = SessionRuntime(model, meta_graph, model.signature, threads=None)

    def count(batch: Batch) -> Shares:
        results = runtime.call(batch)
        return {one.name: one.share(results[name]) for name, one in levels.items()}

    return count
