"""Function bodies as graphs: read from the library, rewritten like any graph, and written back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tfopt.graph.mutable_graph import Graph, GraphDef, Node, Tensor
from tfopt.graph.op_registry import FRAMES, attribute, definition, is_pure


@dataclass
class Body:
    """What a function does.

    Attributes:
        graph: Its nodes; arguments are Placeholders. Arguments are fed; what is returned, what has an effect, and what
            the caller waits for are fetched.
        arguments: The names of the Placeholders, in order.
        returned: What is returned, in order.
    """

    graph: Graph
    arguments: list[str]
    returned: list[Tensor]


def read_body(function: Any, library: Mapping[str, Any]) -> Body | str:
    """Return a function's body, or why it cannot be entered.

    Args:
        function: A FunctionDef.
        library: Every function by name.
    """
    if function.signature.attr:
        return "it is a template, whose types each call settles"
    unknown = sorted({node.op for node in function.node_def if definition(node.op) is None})
    if unknown:
        return f"it calls {unknown[0]}, which is no operation of this TensorFlow"
    made, flat = _flat(function)
    made.library.function.extend(_reached(function, library))
    arguments = [argument.name for argument in function.signature.input_arg]
    returned = [Tensor.read(flat[function.ret[output.name]]) for output in function.signature.output_arg]
    ends = {f"returned_{index}": tensor for index, tensor in enumerate(returned)}
    names = {node.name for node in made.node}
    for index, end in enumerate(list(ends)):  # an Identity each, so that whatever makes it can be rewritten
        while end in names:
            end += "_"
        names.add(end)
        node = made.node.add(name=end, op="Identity", input=[str(returned[index])])
        node.attr["T"].type = function.signature.output_arg[index].type
        returned[index] = Tensor(end)
    graph = Graph.of(made, fed=arguments)
    kept = {tensor.node for tensor in returned} | set(function.control_ret.values())
    kept |= {node.name for node in graph.nodes.values() if node.name not in arguments and not quiet(node, library)}
    graph.fetched = frozenset(kept)
    return Body(graph, arguments, returned)


def quiet(node: Node, library: Mapping[str, Any]) -> bool:
    """Whether a node has no effect, the functions that it calls included."""
    if is_pure(node):
        return True
    found = definition(node.op)
    if found is None or node.op in FRAMES or node.op.startswith(("Stateful", "Remote")):
        return False
    called = list(called_by(node))
    return bool(called) and all(
        name in library
        and all(quiet(Node(inner.name, inner.op, [], [], inner.attr), library) for inner in library[name].node_def)
        for name in called
    )


def called_by(node: Node) -> Iterable[str]:
    """The names of the functions that a node takes as attributes."""
    for value in node.attr.values():
        yield from [value.func.name] if value.func.name else []
        yield from (function.name for function in value.list.func)


def write_body(body: Body, like: Any, name: str | None = None) -> Any:
    """Return the FunctionDef of a body: the signature of ``like``, and its name unless another is given.

    Arguments that the body no longer has are left out.
    """
    graph = body.graph
    made = type(like)()
    made.CopyFrom(like)
    made.signature.name = name or like.signature.name
    del made.node_def[:]
    kept = [place for place, one in enumerate(like.signature.input_arg) if one.name in body.arguments]
    if len(kept) < len(like.signature.input_arg):
        del made.signature.input_arg[:]
        made.signature.input_arg.extend(like.signature.input_arg[place] for place in kept)
        made.arg_attr.clear()
        for place, old in enumerate(kept):
            if old in like.arg_attr:
                made.arg_attr[place].CopyFrom(like.arg_attr[old])
        made.resource_arg_unique_id.clear()
    ends = {tensor.node for tensor in body.returned}
    for node in graph.nodes.values():
        plain_end = node.name in ends and not node.controls
        if node.name in body.arguments or plain_end:
            continue
        proto = made.node_def.add(name=node.name, op=node.op, device=node.device)
        proto.input.extend([*(_nested(body, one) for one in node.inputs), *(f"^{other}" for other in node.controls)])
        for key in node.attr:
            proto.attr[key].CopyFrom(node.attr[key])
    for output, tensor in zip(like.signature.output_arg, body.returned, strict=True):
        end = graph.nodes[tensor.node]
        made.ret[output.name] = _nested(body, tensor if end.controls else end.inputs[0])
    return made


def _flat(function: Any) -> tuple[GraphDef, dict[str, str]]:
    """The nodes of a function with the inputs of a GraphDef, and how each of its tensors is spelled there."""
    from tensorflow.core.framework.graph_pb2 import GraphDef as Proto

    made, flat = Proto(), {}
    for place, argument in enumerate(function.signature.input_arg):
        flat[argument.name] = argument.name
        node = made.node.add(name=argument.name, op="Placeholder")
        node.attr["dtype"].type = argument.type
        node.attr["shape"].shape.unknown_rank = True
        known = function.arg_attr[place].attr if place in function.arg_attr else {}
        if "_output_shapes" in known:
            shapes = known["_output_shapes"]
            found = shapes.list.shape[0] if shapes.WhichOneof("value") == "list" else shapes.shape
            node.attr["shape"].shape.CopyFrom(found)
    for node in function.node_def:
        place = 0
        for output in definition(node.op).output_arg:
            for index in range(_count(output, node)):
                flat[f"{node.name}:{output.name}:{index}"] = f"{node.name}:{place}" if place else node.name
                place += 1
    for node in function.node_def:
        copy = made.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [name if name.startswith("^") else flat[name] for name in node.input]
    return made, flat


def _nested(body: Body, tensor: Tensor) -> str:
    """How a function spells a tensor."""
    if tensor.node in body.arguments:
        return tensor.node
    node, place = body.graph.nodes[tensor.node], tensor.output
    for output in definition(node.op).output_arg:
        count = _count(output, node)
        if place < count:
            return f"{node.name}:{output.name}:{place}"
        place -= count
    raise IndexError(f"{node.op} {node.name} has no output {tensor.output}")


def _count(output: Any, node: Any) -> int:
    if output.type_list_attr:
        return len(attribute(node, output.type_list_attr).list.type)
    return int(attribute(node, output.number_attr).i) if output.number_attr else 1


def _reached(function: Any, library: Mapping[str, Any]) -> list[Any]:
    found: dict[str, Any] = {}
    ahead = [function]
    while ahead:
        one = ahead.pop()
        for node in one.node_def:
            for name in called_by(node):
                if name in library and name not in found:
                    found[name] = library[name]
                    ahead.append(library[name])
    return list(found.values())
