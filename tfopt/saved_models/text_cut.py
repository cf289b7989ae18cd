"""Cut a frozen model where its text, tables and records end: a preprocessing graph, and a core of numbers.

Converters to mobile and accelerator formats have no ops for text, hashes, buckets, lookup tables (of text or numbers),
sparse tensors and serialized records.
The cut moves these ops, and every op that they depend on, to a preprocessing graph; the core is the rest:

    outputs = core(preprocessing(inputs))

The cut tensors are numbers with one row per record. A graph that only parses dense numbers from records, without
default values, needs no preprocessing graph: the core takes the parsed features by name.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from tfopt.artifacts.saved_model_proto import functions_called
from tfopt.artifacts.tensor_spec import ParsedFeature
from tfopt.data.text_inputs import read_parse_op
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.law_order import NORMALIZING
from tfopt.graph.law_runner import optimize
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report
from tfopt.graph_def import (
    STRING,
    GraphDef,
    NodeDef,
    data_type,
    node_of,
    nodes,
    reach,
    subgraph,
    unused_name,
    without_nodes,
)

PREPROCESSING = re.compile(
    r"Parse\w*Example|^ParseTensor|^Decode|String|Ragged|^Sparse|Lookup|HashTable|InitializeTable|Unicode|Regex"
    r"|Bincount|^Bucketize|^(Lower|Upper)Bound$|^AsString$|^Substr$|^ReduceJoin$"
)
ELEMENTWISE = re.compile(
    r"(Abs|Add|AddV2|Bucketize|Cast|Ceil|ClipByValue|Div|DivNoNan|Equal|Exp|Floor|FloorDiv|FloorMod|Greater"
    r"|GreaterEqual|Identity|IsFinite|IsNan|Less|LessEqual|Log|Log1p|LogicalAnd|LogicalNot|LogicalOr|Maximum|Minimum"
    r"|Mul|Neg|NotEqual|OnesLike|RealDiv|Round|Rsqrt|Select|SelectV2|Sign|Sqrt|Square|SquaredDifference|Sub|ZerosLike)"
)


@dataclass(frozen=True)
class Cut:
    """The parts of a model."""

    core: Frozen  # the part of numbers, with the outputs of the model
    preprocessing: Frozen | None  # before it; its outputs are inputs of the core. None if the core takes features
    features: Mapping[str, ParsedFeature]  # that the core takes, if there is no preprocessing
    ops: Mapping[str, int]  # number of ops in the preprocessing by type
    tensors: Mapping[str, str]  # outputs of the preprocessing by input of the core


def has_preprocessing(frozen: Frozen) -> bool:
    """Return True if a model has ops that `cut_text` moves to the preprocessing."""
    return any(PREPROCESSING.search(node.op) for node in nodes(frozen.graph))


def cut_text(frozen: Frozen, key: str, at: Sequence[str] = (), uneven: Collection[str] = ()) -> Cut:
    """Cut the signature ``key`` of a model at nodes or tensors, by default where text, tables and records end.

    Shapes of the graph do not tell a row per record from a row per word: the tensors ``uneven`` are known to have other
    rows, and the cut is behind their readers.

    Raises:
        ComponentError: If an output is text or depends on nothing but the preprocessing, a tensor to cut at does not
            exist, or there is no place where every tensor is of numbers with one row per record.
    """
    return _Cutter(frozen if at else optimize(frozen, NORMALIZING, Report()), key, uneven).cut(at)


class _Cutter:
    """The graph of one signature, with its tensors' dtypes and shapes."""

    def __init__(self, frozen: Frozen, key: str, uneven: Collection[str]) -> None:
        import tensorflow as tf

        self.frozen, self.key, self.signature, self.uneven = frozen, key, frozen.signatures[key], uneven
        self.outputs = {end.node for end in self.signature.outputs.values()}
        self.graph = subgraph(frozen.graph, self.outputs)
        self.nodes = {node.name: node for node in self.graph.node}
        self.inputs = {end.node: name for name, end in self.signature.inputs.items()}
        with tf.Graph().as_default() as self.imported:
            tf.graph_util.import_graph_def(_with_known_shapes(self.graph), name="")

    def cut(self, at: Sequence[str]) -> Cut:
        chosen = list(map(node_of, at))
        for name in chosen:
            if name not in self.nodes:
                raise ComponentError(f"cut_at={name}", "nodes of the frozen graph", nearest(name, self.nodes))
        before = self._ancestors(chosen or self._text_nodes())
        cut_tensors = self._move_to_rows(before)
        if not cut_tensors:
            received = "a model whose outputs do not depend on the part before the cut"
            expected = "outputs that depend on the text, or on the nodes of cut_at"
            raise ComponentError(received, expected, "leave cut_at out, or pass another signature")
        features = self._dense_features(before)
        if all(tensor in features and features[tensor][1].default is None for tensor in cut_tensors):
            names = {tensor: features[tensor][0] for tensor in cut_tensors}
            core = self._core(names, before)
            return Cut(core, None, dict(features[tensor] for tensor in cut_tensors), self._ops(before), {})
        if not at:
            self._add_elementwise(before)
            cut_tensors = self._move_to_rows(before)
        names = self._names(cut_tensors)
        tensors = {name: tensor for tensor, name in names.items()}
        return Cut(self._core(names, before), self._preprocessing(names), {}, self._ops(before), tensors)

    def _ops(self, names: set[str]) -> Counter[str]:
        return Counter(op for name in names if (op := self.nodes[name].op) not in ("Const", "Placeholder"))

    def _text_nodes(self) -> list[str]:
        bodies = {function.signature.name: function.node_def for function in self.graph.library.function}

        def is_text(node: NodeDef, entered: frozenset[str] = frozenset()) -> bool:
            if node.op == "Const":
                return False
            types = {number for value in node.attr.values() for number in (value.type, *value.list.type)}
            if STRING in types or PREPROCESSING.search(node.op):
                return True
            called = functions_called([node]) & set(bodies) - entered
            return any(is_text(inner, entered | called) for name in called for inner in bodies[name])

        return [node.name for node in self.graph.node if is_text(node)]

    def _ancestors(self, names: Iterable[str]) -> set[str]:
        reached = reach(names, lambda name: map(node_of, self.nodes[name].input))
        ends = {name: end.dtype for name, end in self.signature.outputs.items() if end.node in reached}
        if ends:
            texts = sorted(name for name, dtype in ends.items() if dtype == "string")
            received = f"nothing before output {', '.join(sorted(ends))} is numbers with a row for each record"
            received = f"output {', '.join(texts)} is text" if texts else received
            fix = "leave that output out of the model's signature" if texts else "pass cut_at=NODE"
            if len(self.frozen.signatures) > 1:
                fix += ", or pass signature=NAME with other outputs"
            raise ComponentError(received, "outputs that are computed from such numbers", fix)
        return reached

    def _cut_tensors(self, before: set[str]) -> list[str]:
        """Return the tensors that the core reads from the preprocessing, without constants and inputs of numbers."""
        behind = (node for node in self.graph.node if node.name not in before)
        sources = (source for node in behind for source in node.input if not source.startswith("^"))
        tensors = dict.fromkeys(_tensor(source) for source in sources if node_of(source) in before)
        return [tensor for tensor in tensors if not self._stays(tensor)]

    def _stays(self, tensor: str) -> bool:
        """Test whether the core has a tensor itself: a constant, or an input of numbers."""
        node = self.nodes[node_of(tensor)]
        return node.op == "Const" or (node.name in self.inputs and node.attr["dtype"].type != STRING)

    def _move_to_rows(self, before: set[str]) -> list[str]:
        """Add the readers of tensors without a row per record, until there are none. Return the tensors to cut at."""
        while unaligned := {tensor for tensor in self._cut_tensors(before) if not self._has_rows(tensor)}:
            behind = [node for node in self.graph.node if node.name not in before]
            before |= self._ancestors(node.name for node in behind if unaligned.intersection(map(_tensor, node.input)))
        return self._cut_tensors(before)

    def _has_rows(self, tensor: str) -> bool:
        if tensor in self.uneven:
            return False
        shape = self.imported.get_tensor_by_name(tensor).shape
        batches = {end.shape[0] if end.shape else None for end in self.signature.inputs.values()}
        return bool(shape.rank) and shape[0] in batches

    def _add_elementwise(self, before: set[str]) -> None:
        """Add elementwise ops on results of the preprocessing to it.

        They scale numbers and choose the number of an unknown word. In 8 bits they would lose the precision that the
        scaling is there for.
        """
        for node in (self.nodes[name] for name in Graph.of(self.graph).downstream()):
            sources = {node_of(source) for source in node.input if not source.startswith("^")}
            available = all(source in before or self.nodes[source].op == "Const" for source in sources)
            if ELEMENTWISE.fullmatch(node.op) and available and sources & before and node.name not in self.outputs:
                before |= {node.name, *sources}

    def _dense_features(self, before: set[str]) -> dict[str, tuple[str, ParsedFeature]]:
        """Return name and dtype of the dense numbers that the only parsing op returns, by tensor."""
        ops = [op for name in before if (op := read_parse_op(self.nodes[name], self.graph.node))]
        if len(ops) != 1:
            return {}
        parsed = ((f"{ops[0].node.name}:{index}", name) for name, index in ops[0].dense_outputs.items())
        features = {tensor: (name, ops[0].features[name]) for tensor, name in parsed}
        return {tensor: pair for tensor, pair in features.items() if pair[1].dtype != "string"}

    def _names(self, tensors: list[str]) -> dict[str, str]:
        """Name each tensor after the only feature that it depends on, else after the last part of its node's name."""
        names: dict[str, str] = {}
        for tensor in tensors:
            features = self._features_of(tensor)
            base = features.pop() if len(features) == 1 else re.sub(r"\W", "_", node_of(tensor).rpartition("/")[2])
            names[tensor] = unused_name(base, {*names.values(), *self.signature.inputs})
        return names

    def _features_of(self, tensor: str) -> set[str]:
        """Return the dense features that a tensor depends on; empty if it depends on other outputs of parsing ops."""
        features: set[str] = set()

        def sources(tensor: str) -> list[str]:
            node, _, index = tensor.partition(":")
            if op := read_parse_op(self.nodes[node], self.graph.node):
                features.add({place: name for name, place in op.dense_outputs.items()}.get(int(index), ""))
                return []
            return [_tensor(name) for name in self.nodes[node].input if not name.startswith("^")]

        reach([tensor], sources)
        return set() if "" in features else features

    def _endpoint(self, tensor: str, name: str) -> Endpoint:
        symbolic = self.imported.get_tensor_by_name(tensor)
        return Endpoint(f"{name}:0", symbolic.dtype.name, tuple(symbolic.shape.as_list()))

    def _core(self, names: Mapping[str, str], before: set[str]) -> Frozen:
        graph = without_nodes(self.graph)
        nodes_of_inputs = {tensor: _node_name(name) for tensor, name in names.items()}
        inputs = {name: self._endpoint(tensor, nodes_of_inputs[tensor]) for tensor, name in names.items()}
        for end in inputs.values():
            end.add_placeholder(graph)
        for node in self.graph.node:
            if node.name in before and not self._stays(f"{node.name}:0"):
                continue
            copy = graph.node.add()
            copy.CopyFrom(node)
            sources = [nodes_of_inputs.get(_tensor(source), source) for source in node.input]
            copy.input[:] = [name for name in sources if not (name.startswith("^") and name[1:] in before)]
        graph = subgraph(graph, self.outputs)
        inputs |= self._inputs(graph)
        signature = Signature(dict(sorted(inputs.items())), self.signature.outputs)
        return Frozen(graph, {self.key: signature})

    def _preprocessing(self, names: Mapping[str, str]) -> Frozen:
        graph = deepcopy(self.frozen.graph)
        outputs = {}
        for tensor, name in names.items():
            node = graph.node.add(name=_node_name(name), op="Identity", input=[tensor])
            outputs[name] = self._endpoint(tensor, node.name)
            node.attr["T"].type = data_type(outputs[name].dtype)
        frozen = replace(self.frozen, signatures={self.key: Signature(self.signature.inputs, outputs)})
        graph = subgraph(graph, frozen.outputs)
        remaining = {node.name for node in graph.node}
        assets = {tensor: file for tensor, file in frozen.assets.items() if node_of(tensor) in remaining}
        signature = Signature(self._inputs(graph), outputs)
        return replace(frozen, graph=graph, signatures={self.key: signature}, assets=assets)

    def _inputs(self, graph: GraphDef) -> dict[str, Endpoint]:
        remaining = {node.name for node in graph.node}
        return {name: end for name, end in self.signature.inputs.items() if end.node in remaining}


def _with_known_shapes(graph_def: GraphDef) -> GraphDef:
    """Return a copy with other nodes where TensorFlow does not infer shapes.

    A Cast of the keys replaces each table lookup, and a constant the number of bins of Keras' multi-hot and count
    encodings, min(bins, max(bins, largest + 1)).
    """
    copy = deepcopy(graph_def)
    constants = {node.name: node.attr["value"].tensor for node in copy.node if node.op == "Const"}
    bounded = {node.name: list(node.input) for node in copy.node if node.op == "Maximum"}
    for node in copy.node:
        if node.op == "Minimum":
            most, largest = sorted(node.input, key=lambda source: source in bounded)
            if most in constants and any(constants.get(least) == constants[most] for least in bounded.get(largest, ())):
                node.CopyFrom(type(node)(name=node.name, op="Const"))
                node.attr["dtype"].type, value = constants[most].dtype, node.attr["value"].tensor
                value.CopyFrom(constants[most])
        if node.op == "LookupTableFindV2":
            source, target = node.attr["Tin"].type, node.attr["Tout"].type
            node.CopyFrom(type(node)(name=node.name, op="Cast", input=[node.input[1]]))
            node.attr["SrcT"].type, node.attr["DstT"].type = source, target
    return copy


def _node_name(name: str) -> str:
    """Return the name of an input's node as TensorFlow chooses it, which TFX's Evaluator expects in LiteRT files."""
    return f"serving_default_{re.sub('[^A-Za-z0-9_.]', lambda match: f'-{ord(match[0])}', name)}"


def _tensor(source: str) -> str:
    return source if ":" in source else f"{source}:0"
