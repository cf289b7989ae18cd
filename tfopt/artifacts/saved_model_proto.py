"""Read ``saved_model.pb`` and check it, before a runtime that would crash or read other files loads it."""

import importlib
import mmap
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.storage.protobuf_messages import message_classes, read_fields

INIT = "__saved_model_init_op"  # the key under which TensorFlow 2 lists the initialization op among the signatures
MAIN_OPS = ("saved_model_main_op", "legacy_init_op")  # collections of TensorFlow 1 with that op
DAMAGED = "export it again; a file may be truncated or missing"
# What is read without TensorFlow: fields of SavedModel, MetaGraphDef and MetaInfoDef, and a part of SignatureDef.
META_GRAPHS, META_INFO, SIGNATURES, TAGS = 2, 1, 5, 4
MESSAGES = {
    "Dim": "int64 size = 1",
    "Shape": "repeated Dim dim = 2; bool unknown_rank = 3",
    "Info": "string name = 1; int32 dtype = 2; Shape tensor_shape = 3",
    "Signature": "map<string, Info> inputs = 1",
}
DTYPES = {  # the numbers of TensorFlow's types.proto
    **{1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64", 10: "bool"},
    **{14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"},
}


def read_meta_graph(folder: Path, *, effects: bool = False) -> Any:
    """Return the MetaGraphDef of a SavedModel that is served, of TensorFlow 1 or 2.

    Args:
        folder: The folder with ``saved_model.pb``.
        effects: Allow operators that reach outside of the model, for a caller that does not run them.

    Raises:
        ComponentError: If the file cannot be read or has no graph for serving, or `check_meta_graph` refuses it.
    """
    graphs = _read_proto(folder).meta_graphs
    serving = [graph for graph in graphs if "serve" in graph.meta_info_def.tags]
    if not serving:
        tags = ["+".join(graph.meta_info_def.tags) for graph in graphs]
        raise ComponentError(f"{folder}: tags {', '.join(tags) or 'none'}", "a graph tagged serve", DAMAGED)
    sets = [frozenset(graph.meta_info_def.tags) for graph in serving]
    if len(set(sets)) < len(sets):  # TensorFlow loads the first of them
        received = f"{folder}: {len(sets)} graphs for serving, two of them with the same tags"
        raise ComponentError(received, "graphs with different tags", DAMAGED)
    graph = min(serving, key=lambda graph: len(set(graph.meta_info_def.tags)))  # prefer [serve] to [serve, gpu]
    check_meta_graph(graph, folder, effects=effects)
    return graph


def check_meta_graph(graph: Any, folder: Path, *, effects: bool = False) -> None:
    """Check a MetaGraphDef of a SavedModel before a runtime loads it.

    Raises:
        ComponentError: If its functions call themselves, an asset is not below the folder, a size in a signature is
            negative, or operators reach outside of a model that is not trusted.
    """
    for key, signature in graph.signature_def.items():
        for name, tensor in (*signature.inputs.items(), *signature.outputs.items()):
            if any(dim.size < -1 for dim in tensor.tensor_shape.dim):  # -1: open
                received = f"{folder}: signature {key!r}: {name!r} has a negative size"
                raise ComponentError(received, "sizes of 0 or more, or open ones", DAMAGED)
    for asset in asset_files(graph):
        if asset.filename.startswith("/") or ".." in PurePosixPath(asset.filename).parts:
            raise ComponentError(f"{folder}: asset {asset.filename!r}", "files below assets/", "do not load this model")
    if recursive := _find_recursion(graph.graph_def):
        raise ComponentError(f"{folder}: function {recursive} calls itself", "functions without recursion", DAMAGED)
    if not effects:
        checks = importlib.import_module("tfopt.saved_models.effects")  # by name: it uses this module
        checks.check_effects(checks.find_effects(graph), folder)


def keep_served_graph(folder: Path) -> None:
    """Leave only the graph that `read_meta_graph` returns in a SavedModel, with the tag ``serve``, for converters.

    Raises:
        ComponentError: See `read_meta_graph`.
    """
    proto = _read_proto(folder)
    if len(proto.meta_graphs) == 1:
        check_meta_graph(proto.meta_graphs[0], folder)
    if [list(graph.meta_info_def.tags) for graph in proto.meta_graphs] == [["serve"]]:
        return
    served = read_meta_graph(folder)
    served.meta_info_def.tags[:] = ["serve"]
    del proto.meta_graphs[:]
    proto.meta_graphs.append(served)
    (folder / "saved_model.pb").unlink()  # a link to the file of the model
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString(deterministic=True))


def _read_proto(folder: Path) -> Any:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    try:
        return Proto.FromString((folder / "saved_model.pb").read_bytes())
    except (OSError, DecodeError) as error:
        received = f"{folder}: {first_line(error)}"
        raise ComponentError(received, "a folder with a saved_model.pb that can be read", DAMAGED) from error


def check_signature(folder: Path, key: str) -> None:
    """Check that a signature names tensors of the graph; TensorFlow's Python loader does not read it, servers do.

    Raises:
        ComponentError: If there is no such signature, or one of its tensors is not in the graph.
    """
    graph = read_meta_graph(folder)
    nodes = {node.name for node in graph.graph_def.node}
    signature = graph.signature_def.get(key)
    if signature is None or not signature.outputs:
        received = f"{folder}: no signature {key!r} with outputs"
        raise ComponentError(received, "one of its signatures", nearest(key, graph.signature_def))
    for name, info in (*signature.inputs.items(), *signature.outputs.items()):
        if info.WhichOneof("encoding") in (None, "name") and info.name.partition(":")[0] not in nodes:
            received = f"{folder}: signature {key!r}, {name!r}: no tensor {info.name!r}"
            raise ComponentError(received, "a tensor of its graph", DAMAGED)


def peek_inputs(folder: Path, key: str) -> dict[str, TensorSpec]:
    """Return the dense inputs of numbers of a signature, without TensorFlow; none if the file cannot be read.

    Raises:
        ComponentError: If there is no such signature.
    """
    from google.protobuf.message import DecodeError

    try:
        signatures = _peek_signatures(folder / "saved_model.pb")
        if not signatures:
            return {}
        if key not in signatures:
            names = signatures.keys() - {INIT}
            raise ComponentError(f"{folder}: no signature {key!r}", "one of its signatures", nearest(key, names))
        inputs = message_classes("signatures", MESSAGES)["Signature"].FromString(signatures[key]).inputs
    except (OSError, ValueError, LookupError, DecodeError):
        return {}  # the runtime that loads the model reports what is wrong
    return {
        name: TensorSpec(DTYPES[info.dtype], tuple(size.size if size.size >= 0 else None for size in shape.dim))
        for name, info in inputs.items()
        if info.name and info.dtype in DTYPES and (shape := info.tensor_shape).dim and not shape.unknown_rank
    }


def _peek_signatures(file: Path) -> dict[str, bytes]:
    """Return the serialized signatures of the graph that is served; the graph, which may have gigabytes, is skipped."""
    served: list[tuple[int, dict[str, bytes]]] = []
    with file.open("rb") as stream:
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    for graph in (part for number, part in read_fields(data) if number == META_GRAPHS and not isinstance(part, int)):
        tags: list[bytes] = []
        signatures: dict[str, bytes] = {}
        for number, part in read_fields(graph):
            if number == META_INFO and not isinstance(part, int):
                tags += [bytes(tag) for field, tag in read_fields(part) if field == TAGS and not isinstance(tag, int)]
            if number == SIGNATURES and not isinstance(part, int):
                entry = {field: value for field, value in read_fields(bytes(part)) if not isinstance(value, int)}
                signatures[entry[1].decode()] = entry.get(2, b"")
        if b"serve" in tags:
            served.append((len(tags), signatures))
    return min(served, key=lambda graph: graph[0], default=(0, {}))[1]


def asset_files(meta_graph: Any) -> list[Any]:
    """Return the AssetFileDefs of a MetaGraphDef, which TensorFlow 1 and 2 store in different places."""
    from tensorflow.core.protobuf.meta_graph_pb2 import AssetFileDef

    if meta_graph.asset_file_def or "saved_model_assets" not in meta_graph.collection_def:
        return list(meta_graph.asset_file_def)
    items = meta_graph.collection_def["saved_model_assets"].any_list.value
    return [AssetFileDef.FromString(item.value) for item in items]


def init_ops(meta_graph: Any) -> list[str]:
    """Return the initialization ops, which TensorFlow versions store in three different places."""
    names = [str(meta_graph.signature_def[INIT].outputs[INIT].name)] if INIT in meta_graph.signature_def else []
    for collection in MAIN_OPS:
        if collection in meta_graph.collection_def:
            names += map(str, meta_graph.collection_def[collection].node_list.value)
    return names


def functions_called(node_defs: Any) -> set[str]:
    """Return the names of the functions that NodeDefs call or have as attributes."""
    names = set()
    for node in node_defs:
        names.add(node.op)  # the op of a call can be the name of a function
        for value in node.attr.values():
            names.update([value.func.name] if value.func.name else (), (function.name for function in value.list.func))
    return names


def _find_recursion(graph_def: Any) -> str | None:
    """Return the name of a function that calls itself, also through others: TensorFlow crashes on it."""
    calls = {function.signature.name: functions_called(function.node_def) for function in graph_def.library.function}
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        return str(min(error.args[1]))  # all functions of the cycle
    return None
