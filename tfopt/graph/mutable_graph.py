"""Mutable graph: nodes by name, with data and control edges in both directions."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tfopt.graph.const_arrays import array_of
from tfopt.graph.shape_inference import Shape, shapes_of
from tfopt.graph_def import FunctionDef, GraphDef, reach, without_nodes


class Tensor(NamedTuple):
    """An output of a node."""

    node: str
    output: int = 0

    @classmethod
    def read(cls, text: str) -> "Tensor":
        """Parse the name of an input in a GraphDef, as `str` returns it."""
        node, _, index = text.partition(":")
        return cls(node, int(index or 0))

    def __str__(self) -> str:
        """Return the name of an input in a GraphDef."""
        return f"{self.node}:{self.output}" if self.output else self.node


@dataclass(slots=True)
class Node:
    """An operation. ``attr`` is shared with the source GraphDef and never edited: create another node instead."""

    name: str
    op: str
    inputs: list[Tensor]
    controls: list[str]
    attr: Mapping[str, Any]
    device: str = ""


@dataclass
class Graph:
    """A graph that can be edited and written as a GraphDef."""

    nodes: dict[str, Node] = field(default_factory=dict)  # the nodes by name
    fed: frozenset[str] = frozenset()  # names of nodes that are fed: their values are unknown
    fetched: frozenset[str] = frozenset()  # names of nodes that are fetched: their values must not change
    # names of nodes that are new or whose neighbors changed since this was last cleared
    touched: dict[str, None] = field(default_factory=dict)
    # laws may assume that no value is NaN, infinite, a zero of negative sign, or close to overflow
    fast_math: bool = False
    is_body: bool = False  # it is the body of a function, whose outputs another graph reads
    # cache of `sign_of_zero_matters`, cleared before each law
    zero_signs: dict[bool, set[str]] = field(default_factory=dict)
    _by_op: dict[str, dict[str, int]] = field(default_factory=dict)
    _inserted: int = 0
    _readers: dict[str, dict[str, int]] = field(default_factory=dict)
    _waiting: dict[str, dict[str, None]] = field(default_factory=dict)
    _name_counts: dict[str, int] = field(default_factory=dict)
    _shapes: dict[tuple[str, int], Shape] | None = None
    _source: GraphDef = None
    _owned: bool = False

    @classmethod
    def of(cls, source: GraphDef, *, fed: Iterable[str] = (), fetched: Iterable[str] = ()) -> "Graph":
        """Create a graph from a GraphDef, which is not changed."""
        graph = cls(fed=frozenset(fed), fetched=frozenset(fetched), _source=source)
        for proto in source.node:
            inputs = [Tensor.read(name) for name in proto.input if not name.startswith("^")]
            controls = [name[1:] for name in proto.input if name.startswith("^")]
            graph.insert(Node(proto.name, proto.op, inputs, controls, proto.attr, proto.device))
        graph.touched.clear()
        return graph

    def to_graph_def(self) -> GraphDef:
        """Return a new GraphDef of the graph and its function library."""
        return self._graph_def(self.nodes.values())

    def ancestors(self, names: Iterable[str]) -> GraphDef:
        """Return a GraphDef of nodes and their ancestors by data edges; control edges are left out."""
        needed = reach(names, self.sources)
        return self._graph_def([node for name, node in self.nodes.items() if name in needed], controls=False)

    def sources(self, name: str) -> list[str]:
        """Return the names of the nodes that a node reads, one for each input."""
        return [tensor.node for tensor in self.nodes[name].inputs]

    @property
    def library(self) -> Any:
        """Return the function library, a FunctionDefLibrary."""
        return self._source.library

    def add_function(self, function: FunctionDef) -> None:
        """Add a FunctionDef to the library, which is copied from the source GraphDef before the first change."""
        if not self._owned:
            self._source, self._owned = without_nodes(self._source), True
        self._source.library.function.append(function)

    def of_op(self, *ops: str) -> list[Node]:
        """Return the nodes with one of these ops, in the order of insertion."""
        numbered = [(number, name) for op in ops for name, number in self._by_op.get(op, {}).items()]
        return [self.nodes[name] for _, name in sorted(numbered)]

    def readers(self, name: str) -> list[Node]:
        """Return the nodes that read an output of a node, each once."""
        return [self.nodes[reader] for reader in self._readers.get(name, ())]

    def uses(self, name: str) -> int:
        """Return the number of inputs that read an output of a node."""
        return sum(self._readers.get(name, {}).values())

    def waiting(self, name: str) -> list[Node]:
        """Return the nodes with a control edge from a node."""
        return [self.nodes[other] for other in self._waiting.get(name, ())]

    def is_held(self, node: Node) -> bool:
        """Return whether a node cannot be removed: it is fed, fetched, or at an end of a control edge."""
        is_end = node.name in self.fed or node.name in self.fetched
        return is_end or bool(node.controls) or bool(self._waiting.get(node.name))

    def is_constant(self, tensor: Tensor) -> bool:
        """Return whether a tensor is the output of a Const that is not fed."""
        return self.nodes[tensor.node].op == "Const" and tensor.node not in self.fed

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """Return the value of a constant."""
        return array_of(self.nodes[tensor.node].attr["value"].tensor)

    def shape(self, tensor: Tensor) -> Shape:
        """Return the static shape; None if unknown, with None for each unknown size."""
        if self._shapes is None:
            self._shapes = shapes_of(self.to_graph_def())
        return self._shapes.get(tensor)

    @property
    def inferred_shapes(self) -> dict[tuple[str, int], Shape] | None:
        """The shapes of the tensors of its nodes, if they have been inferred."""
        return self._shapes and {tensor: shape for tensor, shape in self._shapes.items() if tensor[0] in self.nodes}

    def reuse_shapes(self, shapes: Mapping[tuple[str, int], Shape] | None) -> None:
        """Use shapes that were inferred for an equal graph."""
        self._shapes = None if shapes is None else dict(shapes)

    def fresh(self, base: str) -> str:
        """Return an unused node name that begins with ``base``."""
        name = base
        while name in self.nodes:
            self._name_counts[base] = self._name_counts.get(base, 0) + 1
            name = f"{base}_{self._name_counts[base]}"
        return name

    def insert(self, node: Node) -> None:
        """Add a node with an unused name; its inputs may be inserted later."""
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
        """Take a node out; nodes that read it must get another input before the graph is used."""
        node = self.nodes.pop(name)
        del self._by_op[node.op][name]
        for tensor in node.inputs:
            self._forget(tensor.node, name)
        for other in node.controls:
            self._waiting[other].pop(name, None)
        return node

    def redirect(self, old: Tensor, new: Tensor) -> None:
        """Make all readers of one tensor read another one."""
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

    def replace(self, node: Node, **changed: Any) -> None:
        """Replace a node by one of the same name with other fields, such as ``op``, ``inputs`` and ``attr``."""
        self.remove(node.name)
        self.insert(replace(node, **changed))

    def rename(self, old: str, new: str) -> None:
        """Give a node an unused name. No control edge may start from the node."""
        self.insert(replace(self.remove(old), name=new))
        self.redirect(Tensor(old), Tensor(new))

    def wait_for(self, name: str, controls: Iterable[str]) -> None:
        """Replace the control inputs of a node; nodes that it reads are left out."""
        node = self.nodes[name]
        for other in node.controls:
            self._waiting[other].pop(name, None)
        read = {tensor.node for tensor in node.inputs if tensor.node in self.nodes}
        node.controls = list(dict.fromkeys(other for other in controls if other != name and other not in read))
        for other in node.controls:
            self._waiting.setdefault(other, {})[name] = None

    def know_shape(self, tensor: Tensor, like: Tensor) -> None:
        """Record that a tensor has the shape of another, if shapes have been inferred."""
        if self._shapes is not None and (shape := self._shapes.get(like)) is not None:
            self._shapes[tensor] = shape

    def set_shape(self, tensor: Tensor, shape: Shape) -> None:
        """Record the shape of a new tensor, if shapes have been inferred."""
        if self._shapes is not None:
            self._shapes[tensor] = shape

    def forget_shapes(self) -> None:
        """Discard inferred shapes, after outputs of a node were renumbered."""
        self._shapes = None

    def downstream(self) -> Iterator[str]:
        """Yield names in topological order; edges from NextIteration to the next iteration of a loop are ignored."""
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
        graph_def = without_nodes(self._source)
        for node in nodes:
            proto = graph_def.node.add(name=node.name, op=node.op, device=node.device)
            proto.input.extend([*map(str, node.inputs), *(f"^{name}" for name in node.controls if controls)])
            for key in node.attr:
                proto.attr[key].CopyFrom(node.attr[key])
        return graph_def

    def _forget(self, name: str, reader: str) -> None:
        readers = self._readers[name]
        readers[reader] -= 1
        if not readers[reader]:
            del readers[reader]
        if len(readers) == 1:
            self.touched.update(readers.fromkeys(readers))
