"""Describe inputs of strings: the features that a graph parses from serialized records, and the words it looks up.

TFX trainers export ``serving_default(examples: string)``: the graph begins with a parsing op, whose constants name the
features. Sources: TensorFlow's op definitions of ParseExampleV2, ParseExample and ParseSingleExample.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.artifacts.tensor_spec import ParsedFeature, RecordSpec, TensorSpec

FORWARDS = ("Identity", "StopGradient", "EnsureShape", "Reshape")  # ops that return their first input
NO_WORDS = re.compile("Parse|Save|Restore|Merge|Regex|StringSplit|File|Assert|Print")  # take names, patterns, messages
STRING = 7  # DataType.DT_STRING
MAX_WORDS = 1000
Constant = Callable[[str], Any]  # returns the value of a constant by name


@dataclass(frozen=True)
class ParseOp:
    """A parsing op and the features it returns."""

    node: Any
    features: dict[str, ParsedFeature]  # the features by name, in the order of the outputs: sparse, dense, ragged
    dense_outputs: dict[str, int]  # index of the output of each dense feature


def describe_text_inputs(
    specs: Mapping[str, TensorSpec], graph_def: Any, tensors: Mapping[str, str], assets: Iterable[Path]
) -> dict[str, TensorSpec]:
    """Return the inputs of a signature, those of strings with what the graph tells about their content.

    An input that the graph parses becomes a `RecordSpec`; another one gets the words that the graph looks up, also in
    files (``assets``). Each input has a tensor (``node:0``).
    """
    described, bodies = dict(specs), {function.signature.name: function for function in graph_def.library.function}
    words = _vocabulary(graph_def, assets) if any(spec.dtype == "string" for spec in specs.values()) else ()
    for name, spec in specs.items():
        if spec.dtype != "string":
            continue
        features: dict[str, ParsedFeature] = {}
        for node, nodes in _parsers(graph_def.node, tensors[name].partition(":")[0], bodies):
            if parse_op := read_parse_op(node, nodes):
                features |= parse_op.features
        if features:
            features = {key: replace(feature, vocabulary=words) for key, feature in sorted(features.items())}
            described[name] = RecordSpec(spec.dtype, spec.shape, spec.ranked, features=features)
        else:
            described[name] = replace(spec, vocabulary=words)
    return described


def read_text_inputs(saved_model: Path, signature: str) -> dict[str, TensorSpec]:
    """Return the inputs of strings of a signature of a SavedModel, without loading it; see `describe_text_inputs`."""
    graph = read_meta_graph(saved_model)
    if signature not in graph.signature_def:
        return {}
    infos = {name: info for name, info in graph.signature_def[signature].inputs.items() if info.dtype == STRING}
    tensors = {name: info.name for name, info in infos.items()}
    return describe_text_inputs(tensor_specs(infos), graph.graph_def, tensors, sorted(saved_model.glob("assets/*")))


def tensor_specs(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Convert ``TensorInfo`` messages to tensor specs by name."""
    from tensorflow import TensorShape, as_dtype

    specs = {}
    for name, info in sorted(infos.items()):
        shape = TensorShape(info.tensor_shape)
        sizes = (None,) if shape.rank is None else tuple(shape)
        specs[name] = TensorSpec(as_dtype(info.dtype).name, sizes, ranked=shape.rank is not None)
    return specs


def _vocabulary(graph_def: Any, assets: Iterable[Path]) -> tuple[bytes, ...]:
    """Return the words of constants, which fill lookup tables or are compared with, and of vocabulary files."""
    from tensorflow import make_ndarray

    words: list[bytes] = []
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        names = {name.partition(":")[0] for node in nodes if NO_WORDS.search(node.op) for name in node.input}
        for node in nodes:
            if node.op == "Const" and node.attr["dtype"].type == STRING and node.name not in names:
                values = make_ndarray(node.attr["value"].tensor)
                words += values.ravel().tolist()[:MAX_WORDS] if values.size > 1 else []
    for file in assets:
        with file.open("rb") as lines:
            words += [line.rstrip(b"\r\n") for line in islice(lines, MAX_WORDS)]
    return tuple(dict.fromkeys(word for word in words if word))[:MAX_WORDS]


def read_parse_op(node: Any, nodes: Any) -> ParseOp | None:
    """Return the features of a parsing op of a graph; None for another op, or if feature names are no constants."""
    if node.op not in _READERS:
        return None
    try:
        return _READERS[node.op](node, functools.partial(_constant, {each.name: each for each in nodes}))
    except KeyError:
        return None


def _parsers(nodes: Any, source: str, bodies: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the parsing ops that read a node, and the nodes of the graph or function that they belong to."""
    for node in nodes:
        for position, name in enumerate(node.input):
            if name.partition(":")[0] != source:
                continue
            callee = bodies.get(node.attr["f"].func.name if "f" in node.attr else node.op)
            if callee is not None:
                yield from _parsers(callee.node_def, callee.signature.input_arg[position].name, bodies)
            elif position == 0 and node.op in _READERS:
                yield node, nodes
            elif position == 0 and node.op in FORWARDS:
                yield from _parsers(nodes, node.name, bodies)


def _constant(nodes: Mapping[str, Any], name: str) -> Any:
    """Return the value of a constant, also behind `Identity` and the `Reshape` of a default value."""
    from tensorflow import make_ndarray

    node = nodes[name.partition(":")[0]]
    if node.op in ("Identity", "Reshape"):
        return _constant(nodes, node.input[0])
    if node.op != "Const":
        raise KeyError(name)
    return make_ndarray(node.attr["value"].tensor)


def _read_example_v2(node: Any, constant: Constant) -> ParseOp:
    sparse, dense, ragged = (_names(constant(node.input[index])) for index in (2, 3, 4))
    return _parse_op(node, sparse, dense, ragged, [constant(name) for name in node.input[5 : 5 + len(dense)]])


def _read_example(node: Any, constant: Constant) -> ParseOp:
    sparse_count, dense_count = node.attr["Nsparse"].i, node.attr["Ndense"].i
    keys = [_names(constant(name).reshape(1))[0] for name in node.input[2 : 2 + sparse_count + dense_count]]
    start = 2 + sparse_count + dense_count
    defaults = [constant(name) for name in node.input[start : start + dense_count]]
    return _parse_op(node, keys[:sparse_count], keys[sparse_count:], [], defaults)


def _read_single_example(node: Any, constant: Constant) -> ParseOp:
    sparse, dense = (_names(np.array(node.attr[key].list.s)) for key in ("sparse_keys", "dense_keys"))
    return _parse_op(node, sparse, dense, [], [constant(name) for name in node.input[1 : 1 + len(dense)]])


_READERS = {
    "ParseExampleV2": _read_example_v2,
    "ParseExample": _read_example,
    "ParseSingleExample": _read_single_example,
}


def _parse_op(node: Any, sparse: list[str], dense: list[str], ragged: list[str], defaults: list[Any]) -> ParseOp:
    from tensorflow import as_dtype

    def dtype(attribute: str, index: int) -> str:
        return str(as_dtype(node.attr[attribute].list.type[index]).name)

    features = {
        name: ParsedFeature(dtype("sparse_types", i), (None, None), kind="sparse") for i, name in enumerate(sparse)
    }
    for index, (name, default) in enumerate(zip(dense, defaults, strict=True)):
        sizes = [None if dim.size < 0 else dim.size for dim in node.attr["dense_shapes"].list.shape[index].dim]
        value = default if default.size else None
        features[name] = ParsedFeature(dtype("Tdense", index), (None, *sizes), default=value)
    for index, name in enumerate(ragged):
        features[name] = ParsedFeature(dtype("ragged_value_types", index), (None, None), kind="ragged")
    return ParseOp(node, features, {name: 3 * len(sparse) + index for index, name in enumerate(dense)})


def _names(keys: Any) -> list[str]:
    return [key.decode() for key in keys.tolist()]
