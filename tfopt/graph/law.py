"""Laws of the graph optimizer: pattern, condition and replacement."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfopt.graph.const_arrays import proto_of
from tfopt.graph.law_order import LawFacts
from tfopt.graph.matching.pattern import Binding, bindings
from tfopt.graph.matching.pattern import Op as Op  # laws need these names, too, and import them from here
from tfopt.graph.matching.pattern import Pattern as Pattern
from tfopt.graph.matching.pattern import const as const
from tfopt.graph.matching.pattern import one_of as one_of
from tfopt.graph.matching.pattern import op as op
from tfopt.graph.mutable_graph import Graph as Graph
from tfopt.graph.mutable_graph import Node as Node
from tfopt.graph.mutable_graph import Tensor as Tensor
from tfopt.graph.op_registry import attribute, attributes

INT32 = 3  # the DataType value
Parts = TypeVar("Parts")
Outcome = tuple[str, str | None]  # a node, and why a law was not applied at it; None if it was


class Refusal(Exception):  # noqa: N818  (not an error of the user)
    """Raised with the reason where a law does not apply, by those that find it while they rewrite."""


@dataclass(frozen=True, kw_only=True)
class Law(LawFacts):
    """A law of any kind. Its file has its name, and a docstring with the equation."""

    # properties of the graph, as in `ensures` of other laws, without which it matches little
    requires: tuple[str, ...] = ("direct edges", "folded constants")
    ensures: tuple[str, ...] = ()  # properties of the graph afterwards


@dataclass(frozen=True)
class LocalLaw(Law):
    """A law that rewrites matches of a pattern, ``LAW = LocalLaw((PATTERN,), when, rewrite)``."""

    patterns: tuple[Op, ...]  # left-hand sides; the first that matches is used
    when: Callable[["Match"], str | None]  # Returns why the law does not apply to a match, or None. It changes nothing.
    # Adds the right-hand side and returns its tensor. It cannot fail and changes no existing node.
    rewrite: Callable[["Match", "Maker"], Tensor]


@dataclass(frozen=True)
class SearchLaw(Law, Generic[Parts]):
    """A law whose left-hand side is found by a function, ``LAW = SearchLaw(("Pack",), find, rewrite)``.

    It is for roots with any number of inputs or outputs, and for left-hand sides whose nodes read each other's inputs.
    """

    ops: tuple[str, ...]  # operations of the root, the last node of a match
    # returns the parts of a match, given the root; or why the law does not apply; or None if nothing matches
    find: Callable[[Graph, Node], Parts | str | None]
    # Adds the right-hand side of a match and returns a tensor for each output of the root. It may raise `Refusal`: what
    # it added is removed.
    rewrite: Callable[[Parts, "Maker"], list[Tensor]]
    in_frames: bool = False  # the law also holds in graphs with control flow of version 1


@dataclass(frozen=True)
class WholeGraphLaw(Law):
    """A law that works on the whole graph at once, ``LAW = WholeGraphLaw(run)``."""

    # changes a graph, and yields an outcome for each time that it applied the law or did not
    run: Callable[[Graph], Iterator[Outcome]]
    # tensors have other shapes afterwards, more of them are known, or outputs have other numbers
    changes_shapes: bool = False


def computed_law(
    patterns: tuple[Op, ...],
    compute: Callable[["Match"], Parts | str],
    build: Callable[["Match", "Maker", Parts], Tensor],
    **facts: Any,
) -> LocalLaw:
    """Return a local law whose condition computes what its right-hand side is built of.

    Args:
        patterns: Left-hand sides; the first that matches is used.
        compute: Returns the parts of the right-hand side of a match, or why the law does not apply.
        build: Adds the right-hand side and returns its tensor.
        facts: Facts and requirements of the law.
    """

    def when(match: Match) -> str | None:
        parts = compute(match)
        return parts if isinstance(parts, str) else None

    def rewrite(match: Match, make: Maker) -> Tensor:
        parts = compute(match)
        assert not isinstance(parts, str)  # checked by `when`
        return build(match, make, parts)

    return LocalLaw(patterns, when, rewrite, **facts)


@dataclass(frozen=True)
class Match:
    """A match of a left-hand side in a graph."""

    graph: Graph
    binding: Binding
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def node(self, role: str = "root") -> Node:
        """Return the node of a role."""
        return self.binding.nodes[role]

    def tensor(self, role: str) -> Tensor:
        """Return the tensor of a role."""
        return self.binding.tensors[role]

    def has(self, role: str) -> bool:
        """Return True if the matched alternative has this role."""
        return role in self.binding.nodes or role in self.binding.tensors

    def array(self, role: str) -> NDArray[Any]:
        """Return the value of a constant."""
        if role not in self._arrays:
            self._arrays[role] = self.graph.array(self.tensor(role))
        return self._arrays[role]

    def shape(self, role: str) -> tuple[int | None, ...] | None:
        """Return the static shape of a tensor, or of the first output of an operation."""
        nodes = self.binding.nodes
        return self.graph.shape(Tensor(nodes[role].name) if role in nodes else self.tensor(role))

    def attr(self, name: str, role: str = "root") -> Any:
        """Return an attribute of an operation; see the function `attr`."""
        return attr(self.node(role), name)

    def dtype(self, name: str = "T", role: str = "root") -> str:
        """Return the name of the dtype in an attribute of an operation."""
        from tensorflow import as_dtype

        return str(as_dtype(self.attr(name, role)).name)

    def inner_refusal(self) -> str | None:
        """Return why nodes other than the root cannot be removed, or None; they may read each other."""
        nodes = self.binding.nodes
        names = {node.name for node in nodes.values()}
        for node in (node for role, node in nodes.items() if role != "root"):
            if self.graph.is_held(node):
                return "a part is an output of the graph as well, fed, or has control edges"
            if any(reader.name not in names for reader in self.graph.readers(node.name)):
                return "something else reads a part"
        return None


def matches(graph: Graph, root: Node, patterns: Iterable[Op]) -> Iterator[Match]:
    """Yield the matches of patterns that end at a node, and whose constants are constant."""
    for pattern in patterns:
        for binding in bindings(pattern, graph, Tensor(root.name)):
            if all(graph.is_constant(binding.tensors[role]) for role in binding.constants):
                yield Match(graph, binding)


@dataclass
class Maker:
    """Adds the nodes of a right-hand side: named and placed like the root, with the control inputs of its constants."""

    graph: Graph  # the graph
    root: Node  # the root of the match
    controls: list[str]  # control inputs of new constants, which bind them to a loop's frame
    made: list[str] = field(default_factory=list)  # names of the added nodes
    # the removed node whose name an added node takes over, by the added node
    heirs: dict[str, str] = field(default_factory=dict)

    def constant(self, role: str, array: NDArray[Any], like: NDArray[Any] | None = None) -> Tensor:
        """Add a constant with the dtype of ``like``; existing constants are never changed."""
        from tensorflow.core.framework.attr_value_pb2 import AttrValue

        value = AttrValue(tensor=proto_of(np.asarray(array) if like is None else np.asarray(array).astype(like.dtype)))
        attr = {"value": value, "dtype": AttrValue(type=value.tensor.dtype)}
        return self._insert(Node(self._name(role), "Const", [], list(self.controls), attr, self.root.device))

    def typed(self, role: str, array: ArrayLike, like: Node) -> Tensor:
        """Add a constant with the dtype in the attribute T of a node."""
        from tensorflow import as_dtype

        return self.constant(role, np.asarray(array, as_dtype(attr(like, "T")).as_numpy_dtype))

    def integers(self, role: str, numbers: int | Iterable[int]) -> Tensor:
        """Add a constant of dtype int32, `INT32` in attributes: axes, sizes or a permutation."""
        return self.constant(role, np.asarray(numbers, np.int32))

    def node(self, op: str, *inputs: Tensor, like: Node, role: str = "", **changed: Any) -> Tensor:
        """Add a node with the attributes of ``like`` that the operation has, except the changed ones.

        Its name ends with ``role``, or with the operation.
        """
        attr = attributes(op, like.attr, changed)
        return self._insert(Node(self._name(role or op), op, list(inputs), [], attr, self.root.device))

    def reshape(self, tensor: Tensor, sizes: Iterable[int | None], like: Node, **changed: Any) -> Tensor:
        """Add a Reshape to sizes; one of them may be open (None)."""
        shape = self.integers("shape", [-1 if size is None else size for size in sizes])
        return self.node("Reshape", tensor, shape, like=like, Tshape=INT32, **changed)

    def broadcast(self, tensor: Tensor, sizes: Iterable[int | None], like: Node, **changed: Any) -> Tensor:
        """Add a BroadcastTo to known sizes."""
        shape = self.integers("shape", [size for size in sizes if size is not None])
        return self.node("BroadcastTo", tensor, shape, like=like, Tidx=INT32, **changed)

    def expand(self, tensor: Tensor, axis: int, like: Node) -> Tensor:
        """Add an ExpandDims."""
        return self.node("ExpandDims", tensor, self.integers("axis", axis), like=like, Tdim=INT32)

    def again(self, old: Node, *inputs: Tensor) -> Tensor:
        """Add a node that replaces another: the same attributes and name, with other inputs."""
        tensor = self.node(old.op, *inputs, like=old)
        self.heirs[tensor.node] = old.name
        return tensor

    def undo(self) -> None:
        """Remove all added nodes."""
        for name in reversed(self.made):
            self.graph.remove(name)
        self.made.clear()

    def _insert(self, node: Node) -> Tensor:
        self.graph.insert(node)
        self.made.append(node.name)
        return Tensor(node.name)

    def _name(self, role: str) -> str:
        return self.graph.fresh(f"{self.root.name}/{role}")


def return_input(match: Match, make: Maker) -> Tensor:
    """Return the tensor x of a pattern: the right-hand side of laws of the form ``f(x) = x``."""
    return match.tensor("x")


def return_found(tensors: list[Tensor], make: Maker) -> list[Tensor]:
    """Return the tensors that were found: the right-hand side of search laws whose outputs equal existing tensors."""
    return tensors


def attr(node: Node, name: str, default: Any = None) -> Any:
    """Return an attribute of a node: a number, bool, string, or list of these; else the protocol buffer.

    An attribute that the node lacks has the default of its operation; a SavedModel may leave out defaults.
    """
    value = attribute(node, name)
    if value is None:
        return default
    kind = value.WhichOneof("value")
    if kind == "list":
        items: list[Any] = next((values for _, values in value.list.ListFields()), [])
        return [item.decode() if isinstance(item, bytes) else item for item in items]
    plain = getattr(value, kind) if kind else default
    return plain.decode() if isinstance(plain, bytes) else plain
