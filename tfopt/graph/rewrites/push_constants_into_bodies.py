"""A constant that a function takes as an argument is a constant of the function.

    while(cond, body)(x, c) = while(cond_c, body_c)(x)        where the body hands c on as it is
    if(p, f, g)(x, c) = if(p, f_c, g_c)(x)                    the same for Case, calls, and what MapDefun captures

    before    Const(kernel) -> While(body(x, k) = x @ k, k)
    after     While(body(x) = x @ Const(kernel))

What a body captures comes to it as an argument, weights among them: within the body it is no constant, and no law for
constants finds it. Needs: an operation that is no output itself, and no larger constant that would then be held twice.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from tfopt.graph.counted_loops import skip_identities
from tfopt.graph.function_bodies import Body, called_by, read_body, write_body
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attribute
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Whole

NAME = "push_constants_into_bodies"
LOOPS = ("While", "StatelessWhile")
MAP = "MapDefun"
CALLERS = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1, "PartitionedCall": 0, "StatefulPartitionedCall": 0}
CALLERS |= dict.fromkeys([*LOOPS, MAP], 0)  # the first input that is an argument
SMALL = 1024  # bytes: what may be held once by each function that reads it
READ_ONLY = "_read_only_resource_inputs"


@dataclass
class _Call:
    """An operation with functions, and which of its inputs could become constants of these.

    Attributes:
        node: The operation.
        bodies: Its functions.
        places: By argument, the functions that read it.
    """

    node: Node
    bodies: dict[str, Body]
    places: dict[int, set[str]]


def run(graph: Graph, report: Report) -> int:
    """Push every constant argument that may be pushed."""
    library = {function.signature.name: function for function in graph.library.function}
    calls = [found for node in list(graph.nodes.values()) if (found := _call(graph, node, library, report))]
    holders = _holders(graph, calls)
    fired = 0
    for call in calls:
        first, chosen = CALLERS[call.node.op], []
        for place in sorted(call.places):
            source = call.node.inputs[first + place]
            size = graph.nodes[source.node].attr["value"].tensor.ByteSize()
            if holders[source.node] > 1 and size > SMALL:
                reason = f"a constant of {size:,} bytes would be held {holders[source.node]} times"
                report.refuse(NAME, call.node.name, reason)
            else:
                chosen.append(place)
        if chosen:
            _push(graph, call, chosen, library)
            report.fire(NAME, call.node.name, len(chosen))
            fired += len(chosen)
    if fired:
        graph.forget_shapes()
    return fired


def _call(graph: Graph, node: Node, library: dict[str, Any], report: Report) -> _Call | None:
    if node.op not in CALLERS:
        return None
    first = CALLERS[node.op]
    constant = [
        place
        for place, tensor in enumerate(node.inputs[first:])
        if graph.is_constant(tensor) and not graph.nodes[tensor.node].controls
    ]
    if node.op == MAP:  # of its first arguments the function sees one slice at a time
        constant = [place for place in constant if place >= _sliced(node)]
    if not constant:
        return None
    bodies = {}
    for name in dict.fromkeys(called_by(node)):
        body = read_body(library[name], library) if name in library else "its function is missing"
        if isinstance(body, str):
            report.refuse(NAME, node.name, body)
            return None
        bodies[name] = body
    if node.name in graph.fetched:
        report.refuse(NAME, node.name, "it is an output of the graph itself")
        return None
    if node.op in LOOPS:
        body = bodies[attribute(node, "body").func.name]
        constant = [one for one in constant if skip_identities(body, body.returned[one]) == Tensor(body.arguments[one])]
    reading = {
        place: {name for name, body in bodies.items() if _is_read(body, place, node.op in LOOPS)} for place in constant
    }
    return _Call(node, bodies, reading) if constant else None


def _sliced(node: Node) -> int:
    return len(attribute(node, "Targuments").list.type)


def _is_read(body: Body, place: int, loop: bool) -> bool:
    """Whether a body does anything with an argument but hand it on to the next round."""
    ahead = [body.arguments[place]]
    own = body.returned[place].node if loop and place < len(body.returned) else None
    while ahead:
        name = ahead.pop()
        if body.graph.waiting(name):
            return True
        for reader in body.graph.readers(name):
            if reader.name == own:
                continue
            if reader.op != "Identity" or reader.name in body.graph.fetched:
                return True
            ahead.append(reader.name)
    return False


def _holders(graph: Graph, calls: list[_Call]) -> dict[str, int]:
    """How many places would hold each constant, this graph among them."""
    functions: dict[str, set[str]] = {}
    pushed: dict[str, int] = {}
    for call in calls:
        for place, names in call.places.items():
            source = call.node.inputs[CALLERS[call.node.op] + place].node
            functions.setdefault(source, set()).update(names)
            pushed[source] = pushed.get(source, 0) + 1
    return {
        source: len(names) + (graph.uses(source) > pushed[source] or source in graph.fetched)
        for source, names in functions.items()
    }


def _push(graph: Graph, call: _Call, chosen: list[int], library: dict[str, Any]) -> None:
    node, first = call.node, CALLERS[call.node.op]
    constants = {place: graph.nodes[node.inputs[first + place].node] for place in chosen}
    digest = hashlib.sha256()
    for place, constant in constants.items():
        digest.update(f"{place}:".encode() + constant.attr["value"].SerializeToString(deterministic=True))
    named = {name: f"{name}_{digest.hexdigest()[:8]}" for name in call.bodies}  # equal calls share their functions
    for name, body in call.bodies.items():
        if named[name] not in library:
            loop = node.op in LOOPS
            library[named[name]] = _with_constants(body, constants, library[name], named[name], loop)
            graph.add_function(library[named[name]])
    kept = [place for place in range(len(node.inputs) - first) if place not in constants]
    graph.remove(node.name)
    attr = _attributes(node, kept, named)
    inputs = node.inputs[:first] + [node.inputs[first + place] for place in kept]
    graph.insert(Node(node.name, node.op, inputs, node.controls, attr, node.device))
    if node.op in LOOPS:
        for place in chosen:
            graph.redirect(Tensor(node.name, place), Tensor(constants[place].name))
        for new, old in enumerate(kept):
            graph.redirect(Tensor(node.name, old), Tensor(node.name, new))


def _with_constants(body: Body, constants: dict[int, Node], like: Any, name: str, loop: bool) -> Any:
    """The function with some arguments turned into constants; a loop no longer returns them either."""
    graph = body.graph
    returned = [one for place, one in enumerate(body.returned) if place not in constants] if loop else body.returned
    changed = type(like)()
    changed.CopyFrom(like)
    if loop and len(like.signature.output_arg) == len(like.signature.input_arg):  # the body; a condition returns one
        del changed.signature.output_arg[:]
        for place, output in enumerate(like.signature.output_arg):
            if place in constants:
                graph.remove(body.returned[place].node)
                changed.ret.pop(output.name)
            else:
                changed.signature.output_arg.append(output)
    else:
        returned = body.returned
    for place, constant in constants.items():
        argument = body.arguments[place]
        graph.remove(argument)
        graph.insert(Node(argument, "Const", [], [], constant.attr, graph.nodes.get(argument, constant).device))
    arguments = [argument for place, argument in enumerate(body.arguments) if place not in constants]
    return write_body(Body(graph, arguments, returned), changed, name)


def _attributes(node: Node, kept: list[int], named: dict[str, str]) -> dict[str, Any]:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    made = {}
    for key in node.attr:
        value = AttrValue()
        value.CopyFrom(node.attr[key])
        if value.func.name in named:
            value.func.name = named[value.func.name]
        for function in value.list.func:
            function.name = named.get(function.name, function.name)
        if key == ("T" if node.op in LOOPS else "Tin"):
            value.list.type[:] = [value.list.type[place] for place in kept]
        if key == "Tcaptured":
            sliced = _sliced(node)
            value.list.type[:] = [value.list.type[place - sliced] for place in kept if place >= sliced]
        if key == "output_shapes" and node.op in LOOPS and value.list.shape:
            shapes = [node.attr[key].list.shape[place] for place in kept]
            del value.list.shape[:]
            value.list.shape.extend(shapes)
        if key == READ_ONLY:
            value.list.i[:] = [kept.index(place) for place in value.list.i if place in kept]
        made[key] = value
    made.pop("_num_original_outputs", None)  # for gradients, which a frozen model has none of
    return made


LAW = Whole(run, requires=("direct edges", "folded constants"))
