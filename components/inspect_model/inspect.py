"""Inspection of a model: simplify the graph as a server would, and count."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tfopt.artifacts import Model
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.inspect_model.advice import advise, list_lighter_backbones
from tfopt.components.inspect_model.called_graphs import CALLS, LOOPS, read_called_graph, simplify
from tfopt.components.inspect_model.flops import FREE, VIEWS, count_flops
from tfopt.components.inspect_model.weights import count_parameters, find_unaligned_kernels, measure_sparsity
from tfopt.data.sample_inputs import OPEN_SIZE
from tfopt.data.text_inputs import read_text_inputs
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.graph import law_runner as passes
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import FOLDS
from tfopt.graph.matching.batch_norms import batch_norms, why_left
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import output_types
from tfopt.graph.report import Report
from tfopt.keras_models.batch_norm_plan import load_foldable, make_plan
from tfopt.reports import inspection_report as reports
from tfopt.saved_models.effects import find_effects
from tfopt.saved_models.list_sizes import fix_list_sizes
from tfopt.saved_models.saved_model import opened

SERVING_PASSES = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")  # as any server does
NO_COMPUTATION = {"Const", "Placeholder", "NoOp", "Identity", "IdentityN"}
BUSIEST = 12
# operations whose kernels have channels that can be removed
CHANNEL_OPS = {"Conv2D", "Conv3D", "MatMul", "DepthwiseConv2dNative", "BatchMatMulV2", "Einsum"}
ENDS = {*CALLS, "TensorListFromTensor", "Shape"}  # channels are not followed into these

# Ops that LiteRT computes in 8 bits, and those that its XNNPACK delegate runs (LiteRT's 8-bit quantization
# specification and kernel registry, the XNNPACK delegate's list of operators). An Einsum becomes a matrix product. A
# converter may replace an op by another one, so the file that `export_tflite` writes may differ.
_BOTH = """
Abs Add AddV2 AvgPool BatchMatMul BatchMatMulV2 BiasAdd ConcatV2 Conv2D Conv2DBackpropInput DepthToSpace
DepthwiseConv2dNative Einsum Elu Exp ExpandDims FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 LeakyRelu MatMul
MaxPool Maximum Mean Minimum Mul Pad PadV2 Relu Relu6 Reshape ResizeBilinear Rsqrt Sigmoid Slice Softmax
SpaceToDepth Split SplitV SquaredDifference Squeeze StridedSlice Sub Sum Tanh Transpose
"""
BOTH = set(_BOTH.split())
_INTEGER = """
ArgMax ArgMin BatchToSpaceND Equal Gather GatherV2 Greater GreaterEqual Less LessEqual LogSoftmax Max Min MirrorPad
NotEqual Pack ResizeNearestNeighbor Select SelectV2 Shape SpaceToBatchND Tile Unpack
"""
INTEGER = BOTH | set(_INTEGER.split())
XNNPACK = BOTH | {"Ceil", "Div", "Floor", "Log", "Neg", "RealDiv", "Round", "Sqrt", "Square"}


def inspect(model: Model, signature: str, budget: reports.CostBudget) -> reports.InspectionReport:
    """Return the report on a signature of a model; raise ComponentError if it cannot be read or lacks the signature."""
    with opened(model, state=True, inert=True) as whole_model:
        frozen, assumed = _fix_to_one_example(whole_model, signature, model.uri)
    tensors = frozen.signatures[signature]
    graph = passes.graph_of(frozen)
    parameters, non_finite = count_parameters(graph)
    changes = Report()
    passes.run(SERVING_PASSES, graph, changes)
    simplify(graph)
    costs = [cost for cost in _costs(graph) if cost.op not in NO_COMPUTATION]
    flops = replace(_sum_flops(costs), prunable=count_prunable(graph, costs))
    report = reports.InspectionReport(
        model=model.name,
        digest=model.digest,
        signature=signature,
        inputs={name: _format_spec(end) for name, end in tensors.inputs.items()},
        outputs={name: _format_spec(end) for name, end in tensors.outputs.items()},
        assumed=assumed,
        ops=dict(Counter(cost.op for cost in costs).most_common()),
        parameters=parameters,
        flops=flops,
        loops=_count_loops(graph),
        bytes_moved=sum(cost.bytes for cost in costs),
        busiest=sorted(costs, key=lambda cost: -(cost.flops or 0))[:BUSIEST],
        quantizable=_coverage(costs, INTEGER),
        xnnpack=_coverage(costs, XNNPACK),
        channels=find_unaligned_kernels(graph),
        sparsity=measure_sparsity(graph),
        backbones=list_lighter_backbones(tensors, parameters.count, flops.total, budget),
        non_finite=non_finite,
        outside=find_effects(read_meta_graph(model.saved_model, effects=True)) if model.saved_model else [],
        batch_norms=_count_batch_norms(model, signature, graph, changes),  # the last one, as it changes the graph
    )
    return replace(report, advice=advise(report, model))


def _fix_to_one_example(frozen: Frozen, key: str, uri: str) -> tuple[Frozen, dict[str, str]]:
    """Return the model with one signature and a size for every dimension, and the assumed shapes."""
    import tensorflow as tf

    if key not in frozen.signatures:
        received = f"{uri}: no signature {key!r}"
        raise ComponentError(received, "a signature of the model", nearest(key, frozen.signatures))
    signature, assumed = frozen.signatures[key], {}
    graph = tf.compat.v1.GraphDef.FromString(frozen.graph.SerializeToString())
    placeholders = {node.name: node for node in graph.node}
    for name, end in signature.inputs.items():
        sizes = [size or (OPEN_SIZE if axis else 1) for axis, size in enumerate(end.shape or ())]
        if end.shape != tuple(sizes):
            assumed[name] = "x".join(map(str, sizes)) or "a single value"
        placeholders[end.node].attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
    fix_list_sizes(graph)
    return replace(frozen, graph=graph, signatures={key: signature}), assumed


def _costs(graph: Graph) -> Iterator[reports.NodeCost]:
    """Yield the costs of the nodes of a graph, and of those in functions, times the number of calls if it is known."""
    for node in graph.nodes.values():
        called = read_called_graph(graph, node)
        for cost in _costs(called[0]) if called else [_node_cost(graph, node)]:
            count, name = (called[1], f"{node.name}/{cost.node}") if called else (1, cost.node)
            flops = None if cost.flops is None else count * cost.flops
            in_loop = cost.in_loop or node.op in LOOPS
            yield replace(cost, node=name, flops=flops, bytes=count * cost.bytes, in_loop=in_loop)


def _count_loops(graph: Graph) -> int:
    """Return the number of loops, also in functions; those of unknown length are included."""
    called = (read_called_graph(graph, node) for node in graph.of_op(*CALLS))
    return len(graph.of_op(*LOOPS)) + sum(_count_loops(each[0]) for each in called if each)


def _node_cost(graph: Graph, node: Node) -> reports.NodeCost:
    shapes = [graph.shape(tensor) for tensor in node.inputs]
    output = graph.shape(Tensor(node.name))
    is_countable = node.op in FREE or all(_is_known(shape) for shape in (*shapes, output))
    flops = count_flops(node.op, node.attr, shapes, output or ()) if is_countable else None  # type: ignore[arg-type]
    moved = 0 if node.op in VIEWS else _bytes_moved(graph, node)
    return reports.NodeCost(node.name, node.op, flops, moved, list(output or ()))


def _bytes_moved(graph: Graph, node: Node) -> int:
    """Return the bytes of the tensors of known size that a node reads and writes."""
    import tensorflow as tf

    ends = [(Tensor(node.name, index), dtype) for index, dtype in enumerate(output_types(node))]
    for tensor in node.inputs:
        types = output_types(graph.nodes[tensor.node])
        ends += [(tensor, types[tensor.output])] if tensor.output < len(types) else []
    sizes = [(graph.shape(tensor), tf.as_dtype(dtype % 100).size or 0) for tensor, dtype in ends]
    return sum(tf.TensorShape(shape).num_elements() * size for shape, size in sizes if _is_known(shape))


def _is_known(shape: Any) -> bool:
    return shape is not None and None not in shape


def _sum_flops(costs: Sequence[reports.NodeCost]) -> reports.FlopCount:
    by_op: Counter[str] = Counter()
    for cost in costs:
        by_op[cost.op] += cost.flops or 0
    return reports.FlopCount(
        total=by_op.total(),
        by_op={op: count for op, count in by_op.most_common() if count},
        not_counted=dict(Counter(cost.op for cost in costs if cost.flops is None)),
        in_loops=sum(cost.flops or 0 for cost in costs if cost.in_loop),
    )


def _count_batch_norms(model: Model, signature: str, graph: Graph, report: Report) -> reports.BatchNormCount:
    """Count the batch norms that `fold_batch_norm` folds: in the Keras form if it can be read, else in the graph."""
    keras_model = None
    if model.keras is not None:
        with contextlib.suppress(ComponentError):  # `fold_batch_norm` refuses it
            inputs = read_text_inputs(model.saved_model, signature) if model.saved_model else {}
            keras_model = load_foldable(model, inputs)
    if keras_model is not None:
        results = make_plan(keras_model).results
        stay = [reports.UnfoldableBatchNorm(each.batch_norm, each.refused) for each in results if each.refused]
        return reports.BatchNormCount(found=len(results), foldable=len(results) - len(stay), stay=stay)
    before = batch_norms(graph)
    passes.run((*SERVING_PASSES, *FOLDS), graph, report)
    after = batch_norms(graph)
    unfoldable = [reports.UnfoldableBatchNorm(start, why_left(graph, start, report)) for start in after.values()]
    return reports.BatchNormCount(found=len(before), foldable=len(before) - len(after), stay=unfoldable)


def _coverage(costs: Sequence[reports.NodeCost], ops: set[str]) -> reports.OpCoverage:
    total = sum(cost.flops or 0 for cost in costs)
    covered = [cost for cost in costs if cost.op in ops]
    return reports.OpCoverage(
        flops=sum(cost.flops or 0 for cost in covered) / total if total else None,
        ops=len(covered) / len(costs) if costs else None,
        left_out=dict(Counter(cost.op for cost in costs if cost.op not in ops).most_common()),
    )


def _format_spec(end: Any) -> str:
    return str(TensorSpec(end.dtype, end.shape or (), ranked=end.shape is not None))


def count_prunable(graph: Graph, costs: Iterable[reports.NodeCost]) -> int:
    """Return the floating-point operations of kernels whose channels end in another kernel, or come from one.

    A kernel that several nodes read is left out: its layer is called several times, as those of unrolled recurrent
    layers. So is what functions and loops contain.
    """
    kernels: dict[str, str] = {}  # the constant that is the kernel of a node
    for node in graph.of_op(*CHANNEL_OPS):
        if constants := [tensor.node for tensor in node.inputs if graph.is_constant(tensor)]:
            kernels[node.name] = constants[0]
    readers = Counter(kernels.values())
    single = {name for name, kernel in kernels.items() if readers[kernel] == 1}
    sources: dict[str, frozenset[str]] = {}  # the nearest kernels from which a tensor has its channels
    prunable: set[str] = set()
    for name in graph.downstream():
        node = graph.nodes[name]
        near = frozenset().union(*(sources.get(tensor.node, ()) for tensor in node.inputs))
        if name in single and near:
            prunable |= {name, *near}
        ends = node.op in CHANNEL_OPS or node.op in ENDS
        sources[name] = frozenset([name]) if name in single else frozenset() if ends else near
    return sum(cost.flops or 0 for cost in costs if cost.node in prunable)
