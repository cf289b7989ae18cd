"""Push constant arguments of functions into the bodies of these functions.

    while(cond, body)(x, c) = while(cond_c, body_c)(x)        if the body returns c unchanged
    if(p, f, g)(x, c) = if(p, f_c, g_c)(x)                    also Case, calls, captured inputs of MapDefun

    before    Const(kernel) -> While(body(x, k) = x @ k, k)
    after     While(body(x) = x @ Const(kernel))

A function receives the tensors that it captures, such as weights, as arguments. In its body they are not constants, so
laws for constants do not match.

Requires:
    - The operation is not an output of the graph.
    - A loop body returns the constant unchanged.
    - MapDefun captures the constant; it does not slice it.
    - The constant has no control inputs.
    - A constant of more than 1,024 bytes is stored once afterwards.

Source: tf.raw_ops.While, If, Case, PartitionedCall and MapDefun.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfopt.graph.function_bodies import Body, called_by, read_body, write_body
from tfopt.graph.law import Graph, Node, Outcome, Tensor, WholeGraphLaw
from tfopt.graph.matching.counted_loops import position_of
from tfopt.graph.op_registry import attribute

LOOPS = ("While", "StatelessWhile")
MAP = "MapDefun"
CALLERS = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1, "PartitionedCall": 0, "StatefulPartitionedCall": 0}
CALLERS |= dict.fromkeys([*LOOPS, MAP], 0)  # index of the first argument among the inputs
SMALL = 1024  # bytes; constants up to this size may be stored several times
READ_ONLY = "_read_only_resource_inputs"


@dataclass
class _Call:
    """An operation that calls functions, and its constant arguments."""

    node: Node  # the operation
    bodies: dict[str, Body]  # the called functions by name
    # names of the functions that read an argument, by the position of the constant argument
    readers: dict[int, set[str]]


def run(graph: Graph) -> Iterator[Outcome]:
    library = {function.signature.name: function for function in graph.library.function}
    calls = []
    for node in graph.nodes.values():
        call = _call(graph, node, library)
        if isinstance(call, str):
            yield node.name, call
        elif call:
            calls.append(call)
    copies = _copies(graph, calls)
    for call in calls:
        first, positions = CALLERS[call.node.op], []
        for position in sorted(call.readers):
            source = call.node.inputs[first + position]
            size = graph.nodes[source.node].attr["value"].tensor.ByteSize()
            if copies[source.node] > 1 and size > SMALL:
                yield call.node.name, f"a constant of {size:,} bytes would be stored {copies[source.node]} times"
            else:
                positions.append(position)
        if positions:
            _push(graph, call, positions, library)
            yield from [(call.node.name, None)] * len(positions)


def _call(graph: Graph, node: Node, library: dict[str, Any]) -> _Call | str | None:
    """Return the constant arguments of a node, why they stay, or None if it has none."""
    if node.op not in CALLERS:
        return None
    arguments = list(enumerate(node.inputs[CALLERS[node.op] :]))
    if node.op == MAP:  # the function receives slices of the first arguments, which are not constant
        arguments = arguments[_sliced_count(node) :]
    positions = [
        position
        for position, tensor in arguments
        if graph.is_constant(tensor) and not graph.nodes[tensor.node].controls
    ]
    if not positions:
        return None
    bodies = {}
    for name in dict.fromkeys(called_by(node)):
        body = read_body(library[name], library) if name in library else "its function is missing"
        if isinstance(body, str):
            return body
        bodies[name] = body
    if node.name in graph.fetched:
        return "it is an output of the graph itself"
    if node.op in LOOPS:
        body = bodies[attribute(node, "body").func.name]
        positions = [position for position in positions if position_of(body, body.returned[position]) == position]
    readers = {
        position: {name for name, body in bodies.items() if _is_read(body, position, node.op in LOOPS)}
        for position in positions
    }
    return _Call(node, bodies, readers) if positions else None


def _sliced_count(node: Node) -> int:
    return len(attribute(node, "Targuments").list.type)


def _is_read(body: Body, position: int, is_loop: bool) -> bool:
    """Return whether a body uses an argument other than to return it for the next iteration."""
    queue = [body.arguments[position]]
    returned = body.returned[position].node if is_loop and position < len(body.returned) else None
    while queue:
        name = queue.pop()
        if body.graph.waiting(name):
            return True
        for reader in body.graph.readers(name):
            if reader.name == returned:
                continue
            if reader.op != "Identity" or reader.name in body.graph.fetched:
                return True
            queue.append(reader.name)
    return False


def _copies(graph: Graph, calls: list[_Call]) -> dict[str, int]:
    """Count the functions, and the graph itself, that would store each constant."""
    functions: dict[str, set[str]] = {}
    pushed: dict[str, int] = {}
    for call in calls:
        for position, names in call.readers.items():
            source = call.node.inputs[CALLERS[call.node.op] + position].node
            functions.setdefault(source, set()).update(names)
            pushed[source] = pushed.get(source, 0) + 1
    return {
        source: len(names) + (graph.uses(source) > pushed[source] or source in graph.fetched)
        for source, names in functions.items()
    }


def _push(graph: Graph, call: _Call, positions: list[int], library: dict[str, Any]) -> None:
    node, first = call.node, CALLERS[call.node.op]
    constants = {position: graph.nodes[node.inputs[first + position].node] for position in positions}
    digest = hashlib.sha256()
    for position, constant in constants.items():
        digest.update(f"{position}:".encode() + constant.attr["value"].SerializeToString(deterministic=True))
    new_names = {name: f"{name}_{digest.hexdigest()[:8]}" for name in call.bodies}  # equal calls share functions
    for name, body in call.bodies.items():
        if (new_name := new_names[name]) not in library:
            library[new_name] = _with_constants(body, constants, library[name], new_name, node.op in LOOPS)
            graph.add_function(library[new_name])
    remaining = [position for position in range(len(node.inputs) - first) if position not in constants]
    inputs = node.inputs[:first] + [node.inputs[first + position] for position in remaining]
    attr = _attributes(node, remaining, new_names)
    graph.replace(node, inputs=inputs, attr=attr)
    if node.op in LOOPS:
        for position in positions:
            graph.redirect(Tensor(node.name, position), Tensor(constants[position].name))
        for new, old in enumerate(remaining):
            graph.redirect(Tensor(node.name, old), Tensor(node.name, new))


def _with_constants(body: Body, constants: dict[int, Node], function: Any, name: str, is_loop: bool) -> Any:
    """Return the function with constants instead of arguments; loop bodies no longer return them."""
    graph = body.graph
    returned = body.returned
    result = type(function)()
    result.CopyFrom(function)
    # A loop body has one output per argument; the condition has one output.
    if is_loop and len(function.signature.output_arg) == len(function.signature.input_arg):
        returned = [tensor for position, tensor in enumerate(body.returned) if position not in constants]
        del result.signature.output_arg[:]
        for position, output in enumerate(function.signature.output_arg):
            if position in constants:
                graph.remove(body.returned[position].node)
                result.ret.pop(output.name)
            else:
                result.signature.output_arg.append(output)
    for position, constant in constants.items():
        argument = body.arguments[position]
        graph.remove(argument)
        graph.insert(Node(argument, "Const", [], [], constant.attr, graph.nodes.get(argument, constant).device))
    arguments = [argument for position, argument in enumerate(body.arguments) if position not in constants]
    return write_body(Body(graph, arguments, returned), result, name)


def _attributes(node: Node, remaining: list[int], new_names: dict[str, str]) -> dict[str, Any]:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    attr = {}
    for key in node.attr:
        value = AttrValue()
        value.CopyFrom(node.attr[key])
        if value.func.name in new_names:
            value.func.name = new_names[value.func.name]
        for function in value.list.func:
            function.name = new_names.get(function.name, function.name)
        if key == ("T" if node.op in LOOPS else "Tin"):
            value.list.type[:] = [value.list.type[position] for position in remaining]
        if key == "Tcaptured":
            sliced = _sliced_count(node)
            value.list.type[:] = [value.list.type[position - sliced] for position in remaining if position >= sliced]
        if key == "output_shapes" and node.op in LOOPS and value.list.shape:
            shapes = [node.attr[key].list.shape[position] for position in remaining]
            del value.list.shape[:]
            value.list.shape.extend(shapes)
        if key == READ_ONLY:
            value.list.i[:] = [remaining.index(position) for position in value.list.i if position in remaining]
        attr[key] = value
    attr.pop("_num_original_outputs", None)  # only gradients use it, and a frozen model has none
    return attr


LAW = WholeGraphLaw(
    run,
    changes_shapes=True,
    after={
        "fold_branches": "the body of a dead branch needs no constants",
        "drop_idle_loops": "the body of an idle loop needs no constants",
    },
)
