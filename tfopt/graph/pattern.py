"""Left-hand sides, written as they are read: operations in operations, every part with the name of its role.

    op("Mul", op("Conv2D", "x", const("kernel"), role="conv"), const("scale"))

is a convolution with a constant kernel, times a constant. A bare word stands for any tensor.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tfopt.graph.mutable_graph import Graph, Node, Tensor

COMMUTING = {"Add", "AddV2", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul"}


@dataclass(frozen=True)
class Const:
    """A constant, whose value the law uses."""

    role: str


@dataclass(frozen=True)
class OneOf:
    """Any of these, the first that fits."""

    choices: tuple["Pattern", ...]


@dataclass(frozen=True)
class Op:
    """The first output of a node of one of some operations, with these inputs; both orders of those that commute."""

    ops: tuple[str, ...]
    inputs: tuple["Pattern", ...]
    role: str

    @property
    def depth(self) -> int:
        """How many operations lie in each other."""
        return 1 + max(map(depth, self.inputs), default=0)


Pattern = str | Const | OneOf | Op


def op(ops: str | tuple[str, ...], *inputs: Pattern, role: str = "root") -> Op:
    """A node of an operation, or of one of several."""
    return Op((ops,) if isinstance(ops, str) else ops, inputs, role)


def const(role: str) -> Const:
    """A constant."""
    return Const(role)


def one_of(*choices: Pattern) -> OneOf:
    """Any of these, the first that fits."""
    return OneOf(choices)


def depth(pattern: Pattern) -> int:
    """How many operations lie in each other, at most."""
    if isinstance(pattern, OneOf):
        return max(map(depth, pattern.choices))
    return pattern.depth if isinstance(pattern, Op) else 0


@dataclass(frozen=True)
class Binding:
    """What the roles of a pattern stand for, somewhere in a graph.

    Attributes:
        nodes: Of operations, the root among them.
        tensors: Of anything else, constants among them.
        constants: Which of the tensors must be constants.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    constants: tuple[str, ...] = ()

    def joined(self, other: "Binding") -> "Binding":
        """Both."""
        return Binding(
            {**self.nodes, **other.nodes}, {**self.tensors, **other.tensors}, self.constants + other.constants
        )


def bindings(pattern: Pattern, graph: Graph, tensor: Tensor) -> Iterator[Binding]:
    """Yield every way in which the operations at a tensor are those of a pattern; constants are not yet looked at."""
    if _fits(pattern, graph, tensor):
        yield from _ways(pattern, graph, tensor)


def _fits(pattern: Pattern, graph: Graph, tensor: Tensor) -> bool:
    """Whether there is a way; most patterns fit nowhere near, and to see that costs less than to begin a binding."""
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


def _ways(pattern: Pattern, graph: Graph, tensor: Tensor) -> Iterator[Binding]:
    if isinstance(pattern, str):
        yield Binding(tensors={pattern: tensor})
    elif isinstance(pattern, Const):
        yield Binding(tensors={pattern.role: tensor}, constants=(pattern.role,))
    elif isinstance(pattern, OneOf):
        for choice in pattern.choices:
            yield from _ways(choice, graph, tensor)
    else:
        node = graph.nodes[tensor.node]
        if tensor.output or node.op not in pattern.ops or len(node.inputs) != len(pattern.inputs):
            return
        yield from _of_inputs(pattern.inputs, graph, node.inputs, Binding({pattern.role: node}))
        if node.op in COMMUTING:
            yield from _of_inputs(pattern.inputs, graph, node.inputs[::-1], Binding({pattern.role: node}))


def _of_inputs(
    patterns: tuple[Pattern, ...], graph: Graph, tensors: list[Tensor], so_far: Binding
) -> Iterator[Binding]:
    if not patterns:
        yield so_far
        return
    for binding in _ways(patterns[0], graph, tensors[0]):
        yield from _of_inputs(patterns[1:], graph, tensors[1:], so_far.joined(binding))
