"""Order and numbers of an ONNX graph, which are the same in every process.

tf2onnx visits sets of names, whose order depends on the process, and writes counters and addresses into names.
"""

import itertools
import re
from collections.abc import Iterator

import onnx

NUMBER = re.compile(r"(?:__|einsum)(\d+)")  # of the counter; the address of an equation


def reorder(model: onnx.ModelProto) -> None:
    """Sort nodes by what the outputs need; number constants, and what tf2onnx added, in that order.

    Of equal constants tf2onnx writes any. Nodes keep their names of TensorFlow.
    """
    ends = {value.name for value in (*model.graph.input, *model.graph.output)}
    used = {number for name in ends for number in NUMBER.findall(name)}
    free = (number for number in map(str, itertools.count(1)) if number not in used)
    names: dict[str, str] = {}
    constants: set[str] = set()

    def rename(name: str, kind: str) -> str:
        if name not in names and name not in ends and (name in constants or NUMBER.search(name)):
            names[name] = f"{kind}__{next(free)}"
        return names.get(name, name)

    for graph in subgraphs(model.graph):  # a body after its node
        _sort_nodes(graph)
        constants = {constant.name for constant in graph.initializer}
        for value in graph.input:
            value.name = rename(value.name, "input")
        for node in graph.node:
            node.input[:] = [rename(name, "constant") for name in node.input]
            node.output[:] = [rename(name, node.op_type) for name in node.output]
            node.name = rename(node.name, node.op_type)
        graph.name = rename(graph.name, "body")
        for value in (*graph.initializer, *graph.value_info, *graph.output):
            value.name = rename(value.name, "constant")
        for values in (graph.initializer, graph.value_info):
            values.sort(key=lambda value: value.name)


def _sort_nodes(graph: onnx.GraphProto) -> None:
    """Put each node after those that it needs, in the order of its inputs."""
    makers = {name: node for node in graph.node for name in node.output if name}
    needs = {
        _first_output(node): [name for part in _bodies(node) for each in part for name in each.input if name in makers]
        for node in graph.node
    }
    place: dict[str, int] = {}  # by the first output of a node
    waiting = [output.name for output in reversed(graph.output) if output.name in makers]
    while waiting:
        first = _first_output(makers[waiting[-1]])
        before = [name for name in needs[first] if _first_output(makers[name]) not in place]
        if before and first not in place:
            waiting += reversed(before)
        else:
            place.setdefault(first, len(place))
            waiting.pop()
    graph.node.sort(key=lambda node: place.get(_first_output(node), len(place)))


def _first_output(node: onnx.NodeProto) -> str:
    """Return the name of the first output that a node has; that of an optional one may be empty."""
    return str(next(name for name in node.output if name))


def _bodies(node: onnx.NodeProto) -> Iterator[list[onnx.NodeProto]]:
    """Yield a node, and the nodes of its loops and branches, which read what is outside."""
    yield [node]
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for graph in subgraphs(body):
                yield list(graph.node)


def subgraphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies of its loops and branches."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in [attribute.g, *attribute.graphs]:
                if body.node:
                    yield from subgraphs(body)
