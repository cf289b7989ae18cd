"""Patterns of operations in a graph: nested operations in which every part has a role name.

    op("Mul", op("Conv2D", "x", const("kernel"), role="conv"), const("scale"))

matches a convolution with a constant kernel, times a constant. A plain string matches any tensor, and the same one
wherever the pattern repeats it; a string that is the role of an operation before it matches the result of that one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tfopt.graph.mutable_graph import Graph, Node, Tensor

COMMUTING = {"Add", "AddV2", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul"}


@dataclass(frozen=True)
class Const:
    """A constant whose value the law uses."""

    role: str


const = Const


@dataclass(frozen=True)
class OneOf:
    """Alternatives; the first that matches is used."""

    choices: tuple["Pattern", ...]


@dataclass(frozen=True)
class Op:
    """The first output of a node with one of these operations and these inputs, in both orders if it commutes."""

    ops: tuple[str, ...]
    inputs: tuple["Pattern", ...]
    role: str


Pattern = str | Const | OneOf | Op


def op(ops: str | tuple[str, ...], *inputs: Pattern, role: str = "root") -> Op:
    """Return a pattern for a node with one of these operations."""
    return Op((ops,) if isinstance(ops, str) else ops, inputs, role)


def one_of(*choices: Pattern) -> OneOf:
    """Return a pattern of alternatives; the first that matches is used."""
    return OneOf(choices)


def depth(pattern: Pattern) -> int:
    """Return the largest number of nested operations of a pattern."""
    if isinstance(pattern, OneOf):
        return max(map(depth, pattern.choices))
    return 1 + max(map(depth, pattern.inputs), default=0) if isinstance(pattern, Op) else 0


@dataclass(frozen=True)
class Binding:
    """The nodes and tensors that the roles of a pattern match at one place of a graph."""

    # the node of each role that is an operation, including the root
    nodes: Mapping[str, Node] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # the tensor of each other role, including constants
    constants: tuple[str, ...] = ()  # the roles that must be constants

    def joined(self, other: "Binding") -> "Binding | None":
        """Return the union of two bindings; None if a role has different tensors in them."""
        for role, tensor in other.tensors.items():
            own = Tensor(self.nodes[role].name) if role in self.nodes else self.tensors.get(role, tensor)
            if own != tensor:
                return None
        nodes, tensors = {**self.nodes, **other.nodes}, {**self.tensors, **other.tensors}
        return Binding(nodes, tensors, self.constants + other.constants)


def bindings(pattern: Pattern, graph: Graph, tensor: Tensor) -> Iterator[Binding]:
    """Yield all matches of a pattern at a tensor; the caller checks that the constants are constant."""
    if _fits(pattern, graph, tensor):
        yield from _matches(pattern, graph, tensor)


def _fits(pattern: Pattern, graph: Graph, tensor: Tensor) -> bool:
    """Return True if there is a match. This is faster than building a binding, and most patterns do not match."""
    if isinstance(pattern, Op):
        node = graph.nodes[tensor.node]
        if tensor.output or node.op not in pattern.ops or len(node.inputs) != len(pattern.inputs):
            return False
        return _all_fit(pattern, graph, node.inputs) or (
            node.op in COMMUTING and _all_fit(pattern, graph, node.inputs[::-1])
        )
    return not isinstance(pattern, OneOf) or any(_fits(choice, graph, tensor) for choice in pattern.choices)


def _all_fit(pattern: Op, graph: Graph, tensors: list[Tensor]) -> bool:
    return all(_fits(inner, graph, tensor) for inner, tensor in zip(pattern.inputs, tensors, strict=True))


def _matches(pattern: Pattern, graph: Graph, tensor: Tensor) -> Iterator[Binding]:
    if isinstance(pattern, str):
        yield Binding(tensors={pattern: tensor})
    elif isinstance(pattern, Const):
        yield Binding(tensors={pattern.role: tensor}, constants=(pattern.role,))
    elif isinstance(pattern, OneOf):
        for choice in pattern.choices:
            yield from _matches(choice, graph, tensor)
    else:
        node = graph.nodes[tensor.node]
        if tensor.output or node.op not in pattern.ops or len(node.inputs) != len(pattern.inputs):
            return
        yield from _match_inputs(pattern.inputs, graph, node.inputs, Binding({pattern.role: node}))
        if node.op in COMMUTING:
            yield from _match_inputs(pattern.inputs, graph, node.inputs[::-1], Binding({pattern.role: node}))


def _match_inputs(
    patterns: tuple[Pattern, ...], graph: Graph, tensors: list[Tensor], bound: Binding
) -> Iterator[Binding]:
    if not patterns:
        yield bound
        return
    for binding in _matches(patterns[0], graph, tensors[0]):
        if (joined := bound.joined(binding)) is not None:
            yield from _match_inputs(patterns[1:], graph, tensors[1:], joined)
