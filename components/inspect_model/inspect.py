"""The whole of the work: read, simplify as a server would, and count."""

from collections import Counter
from dataclasses import replace
from typing import Any

from tfopt.artifacts import Model
from tfopt.components.inspect_model import int8_coverage as coverage
from tfopt.components.inspect_model import weights
from tfopt.components.inspect_model.backbones import lighter
from tfopt.components.inspect_model.flops import FREE, VIEWS, flops
from tfopt.data.sample_inputs import OPEN_SIZE
from tfopt.errors import ComponentError, nearest
from tfopt.graph import pass_manager as passes
from tfopt.graph.batch_norms import batch_norms, why_left
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import output_types
from tfopt.graph.report import Report
from tfopt.graph.saved_model import opened

SERVED = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")  # what any server does anyway
FOLDS = ("fold_batch_norm", "fold_scale", "fold_shift")
BUSIEST = 12


def inspect(model: Model, key: str, mflops: float | None, parameters: int | None) -> dict[str, Any]:
    """Return everything the report says.

    Raises:
        ComponentError: When the model cannot be read or has no such signature.
    """
    with opened(model) as whole:
        frozen, assumed = _one_example(whole, key, model.uri)
    signature = frozen.signatures[key]
    graph = passes.view(frozen)
    own = weights.parameters(graph)
    passes.run(SERVED, graph, Report())
    costs = [cost for node in graph.nodes.values() if (cost := _cost(graph, node))]
    counted = {"parameters": own, "flops": _flops(costs)}
    return {
        "model": model.name,
        "digest": model.digest,
        "signature": key,
        "inputs": {name: _words(end) for name, end in signature.inputs.items()},
        "outputs": {name: _words(end) for name, end in signature.outputs.items()},
        "assumed": assumed,
        "ops": dict(Counter(cost["op"] for cost in costs).most_common()),
        **counted,
        "bytes_moved": sum(cost["bytes"] for cost in costs),
        "busiest": sorted(costs, key=lambda cost: -(cost["flops"] or 0))[:BUSIEST],
        "batch_norms": _batch_norms(frozen),
        "quantizable": _covered(costs, coverage.INTEGER),
        "xnnpack": _covered(costs, coverage.XNNPACK),
        "channels": weights.odd_channels(graph),
        "sparsity": weights.sparsity(graph),
        "backbones": lighter(signature, own["count"], counted["flops"]["total"], mflops, parameters),
    }


def _one_example(frozen: Frozen, key: str, uri: str) -> tuple[Frozen, dict[str, str]]:
    """Leave one signature, with a size for every dimension; say what was made up."""
    import tensorflow as tf

    if key not in frozen.signatures:
        raise ComponentError(f"{uri}: no signature {key!r}", "one of its own", nearest(key, frozen.signatures))
    signature, assumed = frozen.signatures[key], {}
    graph = tf.compat.v1.GraphDef.FromString(frozen.graph.SerializeToString())
    placeholders = {node.name: node for node in graph.node}
    for name, end in signature.inputs.items():
        sizes = [size or (OPEN_SIZE if axis else 1) for axis, size in enumerate(end.shape or ())]
        if end.shape != tuple(sizes):
            assumed[name] = "x".join(map(str, sizes)) or "a single value"
        placeholders[end.node].attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
    return replace(frozen, graph=graph, signatures={key: signature}), assumed


def _cost(graph: Graph, node: Node) -> dict[str, Any] | None:
    """What a node costs; None where it computes nothing."""
    if node.op in ("Const", "Placeholder", "NoOp", "Identity", "IdentityN"):
        return None
    shapes = [graph.shape(tensor) for tensor in node.inputs]
    output = graph.shape(Tensor(node.name))
    known = all(_is_whole(shape) for shape in (*shapes, output))
    count = flops(node.op, node.attr, shapes, output or ()) if known or node.op in FREE else None  # type: ignore[arg-type]
    moved = 0 if node.op in VIEWS else _moved(graph, node)
    return {"node": node.name, "op": node.op, "flops": count, "bytes": moved, "output": list(output or ())}


def _moved(graph: Graph, node: Node) -> int:
    """Bytes of what a node reads and writes, where their sizes are known."""
    import tensorflow as tf

    own = output_types(node)
    ends = [(Tensor(node.name, index), dtype) for index, dtype in enumerate(own)]
    for tensor in node.inputs:
        types = output_types(graph.nodes[tensor.node])
        ends += [(tensor, types[tensor.output])] if tensor.output < len(types) else []
    total = 0
    for tensor, dtype in ends:
        shape = graph.shape(tensor)
        if shape is not None and _is_whole(shape):
            total += tf.TensorShape(shape).num_elements() * (tf.as_dtype(dtype % 100).size or 0)
    return total


def _is_whole(shape: Any) -> bool:
    return shape is not None and None not in shape


def _flops(costs: list[dict[str, Any]]) -> dict[str, Any]:
    by_op: Counter[str] = Counter()
    for cost in costs:
        by_op[cost["op"]] += cost["flops"] or 0
    return {
        "total": by_op.total(),
        "by_op": {op: count for op, count in by_op.most_common() if count},
        "not_counted": dict(Counter(cost["op"] for cost in costs if cost["flops"] is None)),
    }


def _batch_norms(frozen: Frozen) -> dict[str, Any]:
    graph, report = passes.view(frozen), Report()
    passes.run(SERVED, graph, report)
    before = batch_norms(graph)
    passes.run((*SERVED, *FOLDS), graph, report)
    left = batch_norms(graph)
    stay = [{"batch_norm": start, "why": why_left(graph, start, report)} for start in left.values()]
    return {"found": len(before), "foldable": len(before) - len(left), "stay": stay}


def _covered(costs: list[dict[str, Any]], ops: set[str]) -> dict[str, Any]:
    total = sum(cost["flops"] or 0 for cost in costs)
    inside = [cost for cost in costs if cost["op"] in ops]
    return {
        "flops": sum(cost["flops"] or 0 for cost in inside) / total if total else None,
        "ops": len(inside) / len(costs) if costs else None,
        "left_out": dict(Counter(cost["op"] for cost in costs if cost["op"] not in ops).most_common()),
    }


def _words(end: Any) -> str:
    from tfopt.artifacts.tensor_spec import TensorSpec

    return str(TensorSpec(end.dtype, end.shape or (), ranked=end.shape is not None))
