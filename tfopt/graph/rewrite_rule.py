"""A law: where it may hold, when it does not, and what stands there instead."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.const_arrays import proto_of
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attribute, attributes
from tfopt.graph.pattern import Binding, Op
from tfopt.graph.report import Report


@dataclass(frozen=True)
class Rule:
    """A local law, ``LAW = Rule((PATTERN,), when, rewrite)``; its name is the file's, its theorem the file's docstring.

    Attributes:
        patterns: Left-hand sides; the first that fits is taken.
        when: Returns a reason why the law does not hold here, or None. It changes nothing.
        rewrite: Makes the right-hand side and returns it; it cannot fail, and touches nothing that is there.
        requires: What must hold before, in the words of `ensures` of other laws; else little will be found.
        ensures: What holds afterwards.
    """

    patterns: tuple[Op, ...]
    when: Callable[["Match"], str | None]
    rewrite: Callable[["Match", "Maker"], Tensor]
    requires: tuple[str, ...] = ("direct edges", "folded constants")
    ensures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    """A law that looks at the whole graph at once, ``LAW = Whole(run)``.

    Attributes:
        run: Changes a graph, tells the report, and returns how often the law held.
        requires: What must hold before, in the words of `ensures` of other laws; else little will be found.
        ensures: What holds afterwards.
    """

    run: Callable[[Graph, Report], int]
    requires: tuple[str, ...] = ()
    ensures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Match:
    """A left-hand side found in a graph."""

    graph: Graph
    binding: Binding
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def node(self, role: str = "root") -> Node:
        """The operation of a role."""
        return self.binding.nodes[role]

    def tensor(self, role: str) -> Tensor:
        """The tensor of a role."""
        return self.binding.tensors[role]

    def has(self, role: str) -> bool:
        """Whether the choice of the pattern that was found has this role."""
        return role in self.binding.nodes or role in self.binding.tensors

    def array(self, role: str) -> NDArray[Any]:
        """The value of a constant."""
        if role not in self._arrays:
            self._arrays[role] = self.graph.array(self.tensor(role))
        return self._arrays[role]

    def shape(self, role: str) -> tuple[int | None, ...] | None:
        """The static shape of a tensor, or of the first output of an operation."""
        nodes = self.binding.nodes
        return self.graph.shape(Tensor(nodes[role].name) if role in nodes else self.tensor(role))

    def attr(self, name: str, role: str = "root") -> Any:
        """An attribute of an operation: a number, bool, text, or list; the protocol buffer for anything else."""
        return attr(self.node(role), name)


@dataclass
class Maker:
    """Makes the nodes of a right-hand side: named and placed like the root, bound to the frame of its constants.

    Attributes:
        made: Names of the nodes that were made.
        heirs: Which of them take over the name of a node that goes.
    """

    graph: Graph
    root: Node
    controls: list[str]
    made: list[str] = field(default_factory=list)
    heirs: dict[str, str] = field(default_factory=dict)

    def constant(self, role: str, array: NDArray[Any], like: NDArray[Any] | None = None) -> Tensor:
        """A new constant, in the type of ``like``; those that are there are never edited."""
        return self._insert(self.unplaced(role, array if like is None else np.asarray(array).astype(like.dtype)))

    def unplaced(self, role: str, array: NDArray[Any]) -> Node:
        """The node of a new constant, which the graph does not have yet."""
        from tensorflow.core.framework.attr_value_pb2 import AttrValue

        value = AttrValue(tensor=proto_of(np.asarray(array)))
        attr = {"value": value, "dtype": AttrValue(type=value.tensor.dtype)}
        return Node(self._name(role), "Const", [], list(self.controls), attr, self.root.device)

    def node(self, op: str, *inputs: Tensor, like: Node, **changed: Any) -> Tensor:
        """A node with the attributes of another, as far as the operation has them, but those named here."""
        attr = attributes(op, like.attr, changed)
        return self._insert(Node(self._name(op), op, list(inputs), [], attr, self.root.device))

    def again(self, old: Node, *inputs: Tensor) -> Tensor:
        """A node that goes, once more with other inputs: its attributes and its name."""
        made = self.node(old.op, *inputs, like=old)
        self.heirs[made.node] = old.name
        return made

    def _insert(self, node: Node) -> Tensor:
        self.graph.insert(node)
        self.made.append(node.name)
        return Tensor(node.name)

    def _name(self, role: str) -> str:
        return self.graph.fresh(f"{self.root.name}/{role}")


def attr(node: Node, name: str, default: Any = None) -> Any:
    """An attribute of a node: a number, bool, text, or list of these; the protocol buffer for anything else.

    What a node does not say is what its operation says, since a SavedModel may leave out what is as always.
    """
    value = attribute(node, name)
    if value is None:
        return default
    kind = value.WhichOneof("value")
    if kind == "list":
        filled: list[Any] = next((values for _, values in value.list.ListFields()), [])
        return [item.decode() if isinstance(item, bytes) else item for item in filled]
    plain = getattr(value, kind) if kind else default
    return plain.decode() if isinstance(plain, bytes) else plain
