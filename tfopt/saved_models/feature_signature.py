"""Add a signature that takes features as tensors to a model that parses them from serialized records."""

from copy import deepcopy
from dataclasses import replace

from tfopt.data.text_inputs import ParseOp, read_parse_op
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph_def import node_of, reach, readers


def add_feature_signature(frozen: Frozen, key: str, name: str) -> Frozen:
    """Return a model with a signature ``name``, whose inputs are the features that the signature ``key`` parses.

    The nodes behind the parsing op exist twice; constants and lookup tables are shared.

    Raises:
        ComponentError: If the signature does not parse dense features from records with one op, or the name is used.
    """
    if name in frozen.signatures:
        raise ComponentError(f"feature_signature={name!r}", "a name that no signature has", "choose another name")
    parse_op, copied = _parse_op(frozen, key)
    graph = deepcopy(frozen.graph)
    tensors: dict[str, str] = {}
    inputs: dict[str, Endpoint] = {}
    for feature, index in parse_op.dense_outputs.items():
        spec, node = parse_op.features[feature], f"{name}/inputs/{len(inputs)}"
        tensors[f"{parse_op.node.name}:{index}".removesuffix(":0")] = node
        inputs[feature] = Endpoint(f"{node}:0", spec.dtype, spec.shape)
        inputs[feature].add_placeholder(graph)

    def source(tensor: str) -> str:
        control, plain = ("^", tensor[1:]) if tensor.startswith("^") else ("", tensor)
        moved = tensors.get(plain)
        return moved or (f"{control}{name}/{plain}" if node_of(plain) in copied else tensor)

    for node in frozen.graph.node:
        if node.name in copied:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{name}/{node.name}"
            copy.input[:] = [source(tensor) for tensor in node.input if tensor != f"^{parse_op.node.name}"]
    ends = frozen.signatures[key].outputs
    outputs = {output: replace(end, tensor=source(end.tensor)) for output, end in ends.items()}
    return replace(frozen, graph=graph, signatures={**frozen.signatures, name: Signature(inputs, outputs)})


def _parse_op(frozen: Frozen, key: str) -> tuple[ParseOp, set[str]]:
    """Return the parsing op of a signature, and the nodes behind it."""
    nodes = {node.name: node for node in frozen.graph.node}
    outputs = [end.node for end in frozen.signatures[key].outputs.values()]
    before = reach(outputs, lambda name: map(node_of, nodes[name].input))
    ops = [op for name in before if (op := read_parse_op(nodes[name], frozen.graph.node))]
    if len(ops) != 1 or len(ops[0].dense_outputs) < len(ops[0].features):
        received = f"signature {key!r} without one op that parses dense features from records"
        expected = "a signature such as serving_default(examples: string)"
        raise ComponentError(received, expected, "leave feature_signature out")
    reading, parser = readers(frozen.graph), ops[0].node.name
    behind = reach([parser], lambda name: set(reading.get(name, ())) & before)
    return ops[0], behind - {parser}
