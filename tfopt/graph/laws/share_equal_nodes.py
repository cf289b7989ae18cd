"""Merge nodes that compute the same, and constants with the same value.

    before    Relu(x) -> y;  Relu(x) -> z
    after     Relu(x) -> y, z

Two nodes are equal if operation, attributes, device, inputs and control edges are equal, with the inputs of commutative
operations in any order. The law runs after all folds, because a fold requires nodes with one consumer.

Requires: no effects, and no random operations.
"""

import hashlib
from collections.abc import Iterator

from tfopt.graph.law import Graph, Node, Outcome, Tensor, WholeGraphLaw
from tfopt.graph.matching.pattern import COMMUTING
from tfopt.graph.op_registry import is_pure, output_types

NOTES = {"_output_shapes", "_has_manual_control_dependencies"}  # annotations without an effect


def run(graph: Graph) -> Iterator[Outcome]:
    first: dict[bytes, str] = {}
    for name in list(graph.downstream()):
        node = graph.nodes[name]
        if name in graph.fed or not is_pure(node):
            continue
        key = _key(node)
        earlier = first.setdefault(key, name)
        if earlier == name or {earlier, name} <= graph.fetched:
            continue
        if name in graph.fetched:  # an output must stay, so the earlier node is removed
            first[key], name, earlier = name, earlier, name
        for index in range(max(1, len(output_types(node)))):
            graph.redirect(Tensor(name, index), Tensor(earlier, index))
        for other in graph.waiting(name):
            graph.wait_for(other.name, [earlier if control == name else control for control in other.controls])
        graph.remove(name)
        yield name, None


def _key(node: Node) -> bytes:
    inputs = sorted(node.inputs) if node.op in COMMUTING else node.inputs
    digest = hashlib.sha256(repr((node.op, inputs, sorted(node.controls), node.device)).encode())
    for key in sorted(node.attr):
        if key not in NOTES:
            digest.update(key.encode() + node.attr[key].SerializeToString(deterministic=True))
    return digest.digest()


LAW = WholeGraphLaw(
    run,
    requires=(),
    ensures=("no equal nodes",),
    after={
        "fold_shift": "a shared node has several consumers, and is not folded",
        "drop_left_neutral": "a shared node has several consumers, and is not replaced",
    },
)
