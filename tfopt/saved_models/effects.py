"""Find operators of a SavedModel that reach outside of it: files, Python code and connections.

Loading a SavedModel runs its initialization and restores its variables, and in TensorFlow 2 functions of its objects.
Nodes that none of these and no signature reach are never run, such as an input pipeline for training.
"""

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt.artifacts.saved_model_proto import INIT, MAIN_OPS, asset_files, functions_called, init_ops
from tfopt.errors import ComponentError
from tfopt.graph.op_registry import attribute
from tfopt.graph_def import FunctionDef, GraphDef, NodeDef, node_of, reach
from tfopt.graph_def import nodes as nodes_of
from tfopt.reports.inspection_report import OutsideOperator

RESTORE = re.compile(r"Restore(Slice|V2)?")  # of the model's own variables, if its saver runs it
KINDS = {
    "reads files": re.compile(
        r"ReadFile|MatchingFiles|(WholeFile|TextLine|FixedLengthRecord|TFRecord|LMDB)Reader(V2)?|RecordInput|ImmutableConst|"
        r"(Experimental)?(TextLine|TFRecord|FixedLengthRecord|Sql|LMDB|CSV|MatchingFiles|Load|SnapshotChunk)Dataset(V2)?|"
        r"SnapshotDatasetReader|SnapshotNestedDatasetReader|ListSnapshotChunksDataset|LoadAndRemapMatrix|"
        r"GenerateVocabRemapping|Skipgram|(DTensor)?Restore(Slice|V2)?"
    ),
    "writes files": re.compile(
        r"WriteFile|(Experimental)?DatasetToTFRecord|(Save|Cache|Snapshot)Dataset(V2)?|Save(Slices|V2)?|"
        r"MergeV2Checkpoints|DistributedSave|CreateSummary(File|Db)Writer|DumpTensor|CalibrationStatisticsSaver"
    ),
    "runs Python": re.compile(r"(Eager)?PyFunc(Stateless)?"),
    "runs a graph in a text": re.compile(r"DatasetFromGraph|MlirPassthroughOp"),
    "opens connections": re.compile(
        r"Rpc\w+|DataServiceDataset(V\d)?|RegisterDataset(V2)?|RemoteCall|FileSystemSetConfiguration"
    ),
}
OWN_FILE = {"InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1, "InitializeTRTResource": 1}
CALLED = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1, "While": 0, "StatelessWhile": 0}
CALLED |= {"PartitionedCall": 0, "StatefulPartitionedCall": 0}  # the first input that is an argument
TEXTS = ("ReadFile", "MatchingFiles", "GenerateVocabRemapping", "DatasetFromGraph")  # computed for shapes if known
SHOWN = 3  # operators in an error


@dataclass(frozen=True)
class _Scope:
    """The nodes of a graph or function that run, and those that restore; ``function`` is None for the graph."""

    nodes: dict[str, NodeDef]
    restoring: Container[str]
    function: FunctionDef | None = None


def find_effects(meta_graph: Any) -> list[OutsideOperator]:
    """Return the operators that reach outside of a model and that loading or serving it may run, by name."""
    graph = meta_graph.graph_def
    nodes = {node.name: node for node in graph.node}
    served = _served(meta_graph, nodes)
    assets = {node_of(item.tensor_info.name) for item in asset_files(meta_graph)} - served  # fed at initialization only
    served |= _below(nodes, init_ops(meta_graph))
    restoring = _below(nodes, [meta_graph.saver_def.restore_op_name]) - served
    bodies = {function.signature.name: function for function in graph.library.function}
    gradients = {one.function_name: one.gradient_func for one in graph.library.gradient}
    own_functions = set(meta_graph.object_graph_def.concrete_functions) & set(bodies)
    called = _functions(bodies, gradients, (nodes[name] for name in served), own_functions)
    restored = _functions(bodies, gradients, (nodes[name] for name in restoring)) - called
    scopes = [_Scope({name: nodes[name] for name in served | restoring}, restoring)]
    for name in called | restored:
        body = {node.name: node for node in bodies[name].node_def}
        scopes.append(_Scope(body, body if name in restored else (), bodies[name]))
    effects = []
    for scope in scopes:
        prefix = f"{scope.function.signature.name}/" if scope.function else ""
        for node in scope.nodes.values():
            kind = effect(node)
            if not kind or (RESTORE.fullmatch(node.op) and node.name in scope.restoring):
                continue
            if node.op in OWN_FILE and _is_asset(node.input[OWN_FILE[node.op]], scope, scopes, meta_graph, assets):
                continue
            effects.append(OutsideOperator(prefix + node.name, node.op, kind))
    return sorted(effects, key=lambda operator: operator.node)


def node_effects(graph: GraphDef) -> list[OutsideOperator]:
    """Return the operators of a graph, and of its functions, that reach outside of it."""
    return [OutsideOperator(node.name, node.op, kind) for node in nodes_of(graph) if (kind := effect(node))]


def check_effects(effects: list[OutsideOperator], where: Path) -> None:
    """Raise ComponentError for operators that reach outside of a model, unless it is trusted."""
    from tfopt.keras_models.model_code import is_trusted  # its package imports this module

    if effects and not is_trusted():
        shown = ", ".join(f"{one.node} ({one.op} {one.effect})" for one in effects[:SHOWN])
        raise ComponentError(
            f"{where}: operators that reach outside of the model: {shown}"
            + (f" and {len(effects) - SHOWN} more" if len(effects) > SHOWN else ""),
            "operators that compute",
            "pass --trust-model-code (in a pipeline: trust_model_code=true) if you trust its origin; "
            "inspect_model lists such operators without running them",
        )


def effect(node: NodeDef) -> str:
    """Return what a node does outside of its model; an empty text if it only computes."""
    kind = next((kind for kind, ops in KINDS.items() if ops.fullmatch(node.op)), "")
    if kind or node.op in OWN_FILE:
        return kind or "reads files"
    if node.op == "FixedUnigramCandidateSampler" and attribute(node, "vocab_file").s:
        return "reads files"
    if node.op == "PrintV2" and attribute(node, "output_stream").s.startswith(b"file:"):
        return "writes files"
    if node.op.startswith("Debug") and "debug_urls" in node.attr and node.attr["debug_urls"].list.s:
        return "writes files"
    if node.op in ("DecodeProtoV2", "EncodeProto"):
        source = attribute(node, "descriptor_source").s
        return "" if source == b"local://" or source.startswith(b"bytes://") else "reads files"
    return ""


def make_inert(meta_graph: Any, effects: Iterable[OutsideOperator], where: Path) -> None:
    """Remove the initialization of a model, and give operators with effects unknown inputs.

    Otherwise TensorFlow would compute such operators while it infers shapes.

    Raises:
        ComponentError: If restoring the variables has effects, unless the model is trusted.
    """
    saver = type(meta_graph)(graph_def=meta_graph.graph_def, saver_def=meta_graph.saver_def)
    saver.asset_file_def.extend(asset_files(meta_graph))
    check_effects(find_effects(saver), where)
    for collection in MAIN_OPS:
        meta_graph.collection_def.pop(collection, None)
    meta_graph.signature_def.pop(INIT, None)
    names, graph = {operator.node for operator in effects}, meta_graph.graph_def
    bodies = [("", graph.node)] + [(f"{one.signature.name}/", one.node_def) for one in graph.library.function]
    for prefix, body in bodies:
        for node in [node for node in body if prefix + node.name in names]:
            texts = [index for index, source in enumerate(node.input) if not source.startswith("^")]
            if node.op == "ImmutableConst":
                node.op = "Placeholder"
            for index in texts if node.op in TEXTS else ():
                unknown = body.add(name=f"{node.name}/unknown_{index}", op="Placeholder")
                unknown.attr["dtype"].type = 7  # DT_STRING
                node.input[index] = f"{unknown.name}:output:0" if prefix else unknown.name


def _served(meta_graph: Any, nodes: dict[str, NodeDef]) -> set[str]:
    """Return the nodes that signatures compute from their inputs, without those of the initialization."""
    reached: set[str] = set()
    for signature in (one for key, one in meta_graph.signature_def.items() if key != INIT):
        fed = {name.removesuffix(":0") for info in signature.inputs.values() for name in _tensors(info)}
        reached |= _below(nodes, [name for info in signature.outputs.values() for name in _tensors(info)], fed)
    return reached


def _tensors(info: Any) -> Iterator[str]:
    """Yield the names of the tensors of a TensorInfo."""
    if info.WhichOneof("encoding") == "coo_sparse":
        yield from (info.coo_sparse.values_tensor_name, info.coo_sparse.indices_tensor_name)
        yield info.coo_sparse.dense_shape_tensor_name
    elif info.WhichOneof("encoding") == "composite_tensor":
        for part in info.composite_tensor.components:
            yield from _tensors(part)
    else:
        yield info.name


def _below(nodes: dict[str, NodeDef], starts: Iterable[str], fed: Container[str] = ()) -> set[str]:
    """Return the nodes that compute tensors; those of a node that are not fed are computed."""

    def computed(tensors: Iterable[str]) -> list[str]:
        return [node_of(name) for name in tensors if name.removesuffix(":0") not in fed and node_of(name) in nodes]

    return reach(computed(starts), lambda name: computed(nodes[name].input))


def _functions(
    bodies: dict[str, FunctionDef], gradients: dict[str, str], nodes: Iterable[NodeDef], others: Iterable[str] = ()
) -> set[str]:
    """Return the functions that nodes call, directly or through others, and the gradients of all of these."""
    starts = (functions_called(nodes) | set(others)) & set(bodies)
    return reach(
        starts, lambda name: (functions_called(bodies[name].node_def) | {gradients.get(name, "")}) & set(bodies)
    )


def _is_asset(source: str, scope: _Scope, scopes: list[_Scope], meta_graph: Any, assets: Container[str]) -> bool:
    """Return whether a file name is that of an asset of the model, also in variables and through calls.

    ``assets`` are the nodes of the graph that become the names of assets.
    """
    name = node_of(source)
    node = scope.nodes.get(name)
    if scope.function is None:
        if name in assets:
            return True
        if node is not None and node.op == "ReadVariableOp":
            stored = [
                one for one in scope.nodes.values() if one.op.startswith("Assign") and one.input[0] == node.input[0]
            ]
            return bool(stored) and all(_is_asset(one.input[1], scope, scopes, meta_graph, assets) for one in stored)
    if node is not None:
        return node.op == "Identity" and _is_asset(node.input[0], scope, scopes, meta_graph, assets)
    arguments = [one.name for one in scope.function.signature.input_arg] if scope.function else []
    place, count = arguments.index(name) if name in arguments else -1, len(arguments)
    return place >= 0 and _are_assets(place, count, scope, scopes, meta_graph, assets)


def _are_assets(
    place: int, count: int, scope: _Scope, scopes: list[_Scope], meta_graph: Any, assets: Container[str]
) -> bool:
    """Return whether all callers of a function, and its object, pass an asset as an argument."""
    assert scope.function is not None
    function = scope.function.signature.name
    for caller in scopes:
        for node in caller.nodes.values():
            if function not in functions_called([node]):
                continue
            source = node.input[CALLED[node.op] + place] if node.op in CALLED else ""
            if not _is_asset(source, caller, scopes, meta_graph, assets):
                return False
    objects = meta_graph.object_graph_def
    if function not in objects.concrete_functions:
        return True
    captures = list(objects.concrete_functions[function].bound_inputs)
    captured = place - (count - len(captures))
    return captured < 0 or objects.nodes[captures[captured]].WhichOneof("kind") == "asset"
