"""A GraphDef that can be changed: who makes what, who reads it, who waits for whom."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tfopt.graph.const_arrays import array_of
from tfopt.graph.shape_inference import Shape, shapes_of

GraphDef = Any  # tf.compat.v1.GraphDef: protocol buffers have no types here


class Tensor(NamedTuple):
    """An output of a node."""

    node: str
    output: int = 0

    @classmethod
    def read(cls, spelled: str) -> "Tensor":
        """What `str` says of it."""
        node, _, index = spelled.partition(":")
        return cls(node, int(index or 0))

    def __str__(self) -> str:
        """As a GraphDef spells an input."""
        return f"{self.node}:{self.output}" if self.output else self.node


@dataclass(slots=True)
class Node:
    """An operation. ``attr`` belongs to the GraphDef it came from and is never edited: make another node instead."""

    name: str
    op: str
    inputs: list[Tensor]
    controls: list[str]
    attr: Mapping[str, Any]
    device: str = ""


@dataclass
class Graph:
    """Nodes by name, in an order in which TensorFlow would take them, and the edges both ways.

    Attributes:
        nodes: By name.
        fed: Names that are given from outside: what feeds them may be anything.
        fetched: Names that are asked for from outside: they must give what they gave.
        touched: Names of nodes that are new or whose surroundings changed since this was last emptied.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    fed: frozenset[str] = frozenset()
    fetched: frozenset[str] = frozenset()
    touched: dict[str, None] = field(default_factory=dict)
    _by_op: dict[str, dict[str, int]] = field(default_factory=dict)
    _inserted: int = 0
    _readers: dict[str, dict[str, int]] = field(default_factory=dict)
    _waiting: dict[str, dict[str, None]] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)
    _shapes: dict[tuple[str, int], Shape] | None = None
    _source: GraphDef = None
    _owned: bool = False

    @classmethod
    def of(cls, source: GraphDef, *, fed: Iterable[str] = (), fetched: Iterable[str] = ()) -> "Graph":
        """Read a GraphDef, which is not changed by what happens here."""
        graph = cls(fed=frozenset(fed), fetched=frozenset(fetched), _source=source)
        for proto in source.node:
            inputs = [Tensor.read(name) for name in proto.input if not name.startswith("^")]
            controls = [name[1:] for name in proto.input if name.startswith("^")]
            graph.insert(Node(proto.name, proto.op, inputs, controls, proto.attr, proto.device))
        graph.touched.clear()
        return graph

    def to_graph_def(self) -> GraphDef:
        """Return the graph as a GraphDef of its own, with the functions of the one it came from."""
        return self._graph_def(self.nodes.values())

    def ancestors(self, names: Iterable[str]) -> GraphDef:
        """Return, as a GraphDef, some nodes and what they are computed from; what they wait for is left out."""
        found: dict[str, Node] = {}
        ahead = list(names)
        while ahead:
            name = ahead.pop()
            if name not in found:
                node = found[name] = self.nodes[name]
                ahead += [tensor.node for tensor in node.inputs]
        return self._graph_def(found.values(), controls=False)

    @property
    def library(self) -> Any:
        """The function library, as a protocol buffer."""
        return self._source.library

    def add_function(self, function: Any) -> None:
        """Add to the library, which from then on is the graph's own."""
        if not self._owned:
            own = type(self._source)()
            own.versions.CopyFrom(self._source.versions)
            own.library.CopyFrom(self._source.library)
            self._source, self._owned = own, True
        self._source.library.function.append(function)

    def of_op(self, *ops: str) -> list[Node]:
        """The nodes of some operations, in the order of all nodes."""
        found = [(number, name) for op in ops for name, number in self._by_op.get(op, {}).items()]
        return [self.nodes[name] for _, name in sorted(found)]

    def readers(self, name: str) -> list[Node]:
        """The nodes that read any output of a node, each once."""
        return [self.nodes[reader] for reader in self._readers.get(name, ())]

    def uses(self, name: str) -> int:
        """How many inputs any output of a node is."""
        return sum(self._readers.get(name, {}).values())

    def waiting(self, name: str) -> list[Node]:
        """The nodes that wait for a node by a control edge."""
        return [self.nodes[other] for other in self._waiting.get(name, ())]

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether a tensor is a constant that nothing from outside can replace."""
        return self.nodes[tensor.node].op == "Const" and tensor.node not in self.fed

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """What a constant holds."""
        return array_of(self.nodes[tensor.node].attr["value"].tensor)

    def shape(self, tensor: Tensor) -> Shape:
        """The static shape: None where nothing is known, None in place of a size that is not."""
        if self._shapes is None:
            self._shapes = shapes_of(self.to_graph_def())
        return self._shapes.get(tensor)

    def fresh(self, base: str) -> str:
        """A name that no node has."""
        name = base
        while name in self.nodes:
            self._taken[base] = self._taken.get(base, 0) + 1
            name = f"{base}_{self._taken[base]}"
        return name

    def insert(self, node: Node) -> None:
        """Add a node whose name is free; what it reads may come later."""
        self.nodes[node.name] = node
        self._inserted += 1
        self._by_op.setdefault(node.op, {})[node.name] = self._inserted
        self.touched[node.name] = None
        for tensor in node.inputs:
            readers = self._readers.setdefault(tensor.node, {})
            readers[node.name] = readers.get(node.name, 0) + 1
        for name in node.controls:
            self._waiting.setdefault(name, {})[node.name] = None

    def remove(self, name: str) -> Node:
        """Take a node out; those who read it must be given something else before the graph is used."""
        node = self.nodes.pop(name)
        del self._by_op[node.op][name]
        for tensor in node.inputs:
            self._forget(tensor.node, name)
        for other in node.controls:
            self._waiting[other].pop(name, None)
        return node

    def redirect(self, old: Tensor, new: Tensor) -> None:
        """Give everybody who reads one tensor another one instead."""
        for reader in self.readers(old.node):
            count = reader.inputs.count(old)
            if not count:
                continue
            reader.inputs = [new if tensor == old else tensor for tensor in reader.inputs]
            for _ in range(count):
                self._forget(old.node, reader.name)
            readers = self._readers.setdefault(new.node, {})
            readers[reader.name] = readers.get(reader.name, 0) + count
            self.touched[reader.name] = None

    def rename(self, old: str, new: str) -> None:
        """Give a node another name, which is free; nobody waits for it."""
        node = self.remove(old)
        self.insert(Node(new, node.op, node.inputs, node.controls, node.attr, node.device))
        self.redirect(Tensor(old), Tensor(new))

    def wait_for(self, name: str, controls: Iterable[str]) -> None:
        """Set for which nodes a node waits, beside those it reads."""
        node = self.nodes[name]
        for other in node.controls:
            self._waiting[other].pop(name, None)
        read = {tensor.node for tensor in node.inputs if tensor.node in self.nodes}
        node.controls = list(dict.fromkeys(other for other in controls if other != name and other not in read))
        for other in node.controls:
            self._waiting.setdefault(other, {})[name] = None

    def know_shape(self, tensor: Tensor, like: Tensor) -> None:
        """Remember that a tensor has the shape of another; shapes found once stay known."""
        if self._shapes is not None and (shape := self._shapes.get(like)) is not None:
            self._shapes[tensor] = shape

    def forget_shapes(self) -> None:
        """Have them inferred anew when they are asked for: the outputs of a node have other numbers now."""
        self._shapes = None

    def downstream(self) -> Iterator[str]:
        """Names, each after those it reads or waits for, but for what a round of a version 1 loop hands to the next."""
        left = {name: len(node.inputs) + len(node.controls) for name, node in self.nodes.items()}
        for node in self.of_op("NextIteration", "RefNextIteration"):
            for reader, count in self._readers.get(node.name, {}).items():
                left[reader] -= count
        ready = deque(name for name, count in left.items() if not count)
        while ready:
            name = ready.popleft()
            yield name
            for reader, count in [*self._readers.get(name, {}).items(), *((w, 1) for w in self._waiting.get(name, ()))]:
                left[reader] -= count
                if not left[reader]:
                    ready.append(reader)
        yield from (name for name, count in left.items() if count > 0)

    def _graph_def(self, nodes: Iterable[Node], *, controls: bool = True) -> GraphDef:
        made = type(self._source)()
        made.versions.CopyFrom(self._source.versions)
        made.library.CopyFrom(self._source.library)
        for node in nodes:
            proto = made.node.add(name=node.name, op=node.op, device=node.device)
            proto.input.extend([*map(str, node.inputs), *(f"^{name}" for name in node.controls if controls)])
            for key in node.attr:
                proto.attr[key].CopyFrom(node.attr[key])
        return made

    def _forget(self, name: str, reader: str) -> None:
        readers = self._readers[name]
        readers[reader] -= 1
        if not readers[reader]:
            del readers[reader]
        if len(readers) == 1:
            self.touched.update(readers.fromkeys(readers))
