"""Bodies of functions as mutable graphs: read them from the function library, and write them back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import FRAMES, definition, is_pure, types_of
from tfopt.graph_def import FunctionDef, GraphDef, NodeDef, reach, unused_name


@dataclass
class Body:
    """The body of a function as a graph."""

    graph: Graph  # The nodes. Arguments are Placeholders, and fed. Fetched are returned tensors and nodes with effects.
    arguments: list[str]  # the names of the Placeholders, in order
    returned: list[Tensor]  # the returned tensors, in order


def read_body(function: FunctionDef, library: Mapping[str, FunctionDef]) -> Body | str:
    """Return the body of one of the functions by name, or the reason why it cannot be rewritten."""
    if function.signature.attr:
        return "it is a template whose types depend on the call"
    unknown = sorted({node.op for node in function.node_def if definition(node.op) is None})
    if unknown:
        return f"it calls {unknown[0]}, which is no operation of this TensorFlow"
    graph_def, flat = _flat(function)
    graph_def.library.function.extend(_reached(function, library))
    arguments = [argument.name for argument in function.signature.input_arg]
    returned = [Tensor.read(flat[function.ret[output.name]]) for output in function.signature.output_arg]
    names = {node.name for node in graph_def.node}
    for index in range(len(returned)):  # an Identity each, so that the node before it can be rewritten
        end = unused_name(f"returned_{index}", names)
        names.add(end)
        node = graph_def.node.add(name=end, op="Identity", input=[str(returned[index])])
        node.attr["T"].type = function.signature.output_arg[index].type
        returned[index] = Tensor(end)
    graph = Graph.of(graph_def, fed=arguments)
    graph.is_body = True
    inner = [node for node in graph.nodes.values() if node.name not in arguments]
    fetched = {tensor.node for tensor in returned} | {node.name for node in inner if not has_no_effect(node, library)}
    graph.fetched = frozenset(fetched)
    return Body(graph, arguments, returned)


def has_no_effect(node: Node | NodeDef, library: Mapping[str, FunctionDef]) -> bool:
    """Return whether a node and the functions that it calls have no effects."""
    if is_pure(node):
        return True
    if definition(node.op) is None or node.op in FRAMES or node.op.startswith(("Stateful", "Remote")):
        return False
    called = set(called_by(node))
    if not called or not called <= set(library):
        return False
    return all(has_no_effect(inner, library) for name in called for inner in library[name].node_def)


def called_by(node: Node | NodeDef) -> Iterable[str]:
    """Yield the names of the functions in the attributes of a node, which protobuf has in no fixed order."""
    for _, value in sorted(node.attr.items(), key=lambda item: item[0]):
        yield from [value.func.name] if value.func.name else []
        yield from (function.name for function in value.list.func)


def write_body(body: Body, like: Any, name: str | None = None) -> Any:
    """Return the FunctionDef of a body with the signature of ``like``, and its name unless ``name`` is given.

    Arguments that the body no longer has are removed from the signature, and from the nodes that the caller waits for
    those without effects, such as constants that a law has replaced.
    """
    graph = body.graph
    function = type(like)()
    function.CopyFrom(like)
    function.signature.name = name or like.signature.name
    del function.node_def[:]
    remaining = [place for place, one in enumerate(like.signature.input_arg) if one.name in body.arguments]
    if len(remaining) < len(like.signature.input_arg):
        del function.signature.input_arg[:]
        function.signature.input_arg.extend(like.signature.input_arg[place] for place in remaining)
        function.arg_attr.clear()
        for place, old in enumerate(remaining):
            if old in like.arg_attr:
                function.arg_attr[place].CopyFrom(like.arg_attr[old])
        function.resource_arg_unique_id.clear()
        function.attr.pop("_input_shapes", None)  # one for each argument; LiteRT's converter refuses another number
    for waited in [key for key, node in function.control_ret.items() if node not in graph.fetched]:
        del function.control_ret[waited]
    function.signature.control_output[:] = [key for key in like.signature.control_output if key in function.control_ret]
    ends = {tensor.node for tensor in body.returned}
    for node in graph.nodes.values():
        if node.name in body.arguments or (node.name in ends and not node.controls):
            continue
        proto = function.node_def.add(name=node.name, op=node.op, device=node.device)
        inputs = [_nested(body, tensor) for tensor in node.inputs]
        proto.input.extend([*inputs, *(f"^{name}" for name in node.controls)])
        for key in node.attr:
            proto.attr[key].CopyFrom(node.attr[key])
    for output, tensor in zip(like.signature.output_arg, body.returned, strict=True):
        end = graph.nodes[tensor.node]
        function.ret[output.name] = _nested(body, tensor if end.controls else end.inputs[0])
    return function


def _flat(function: Any) -> tuple[GraphDef, dict[str, str]]:
    """Return a function as a GraphDef, and the GraphDef name of each FunctionDef tensor (``node:output:index``)."""
    from tensorflow.core.framework.graph_pb2 import GraphDef as Proto

    graph_def, flat = Proto(), {}
    for place, argument in enumerate(function.signature.input_arg):
        flat[argument.name] = argument.name
        node = graph_def.node.add(name=argument.name, op="Placeholder")
        node.attr["dtype"].type = argument.type
        node.attr["shape"].shape.unknown_rank = True
        attributes = function.arg_attr[place].attr if place in function.arg_attr else {}
        if "_output_shapes" in attributes:
            shapes = attributes["_output_shapes"]
            shape = shapes.list.shape[0] if shapes.WhichOneof("value") == "list" else shapes.shape
            node.attr["shape"].shape.CopyFrom(shape)
    for node in function.node_def:
        place = 0
        for output in definition(node.op).output_arg:
            for index in range(len(types_of(output, node))):
                flat[f"{node.name}:{output.name}:{index}"] = f"{node.name}:{place}" if place else node.name
                place += 1
    for node in function.node_def:
        copy = graph_def.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [name if name.startswith("^") else flat[name] for name in node.input]
    return graph_def, flat


def _nested(body: Body, tensor: Tensor) -> str:
    """Return the name of a tensor in a FunctionDef: ``node:output:index``."""
    if tensor.node in body.arguments:
        return tensor.node
    node, place = body.graph.nodes[tensor.node], tensor.output
    for output in definition(node.op).output_arg:
        count = len(types_of(output, node))
        if place < count:
            return f"{node.name}:{output.name}:{place}"
        place -= count
    raise IndexError(f"{node.op} {node.name} has no output {tensor.output}")


def _reached(function: FunctionDef, library: Mapping[str, FunctionDef]) -> list[FunctionDef]:
    def called(name: str) -> set[str]:
        return {inner for node in library[name].node_def for inner in called_by(node)} & set(library)

    return [library[name] for name in sorted(reach(called(function.signature.name), called))]
