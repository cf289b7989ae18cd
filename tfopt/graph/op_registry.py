"""What TensorFlow's registry says of an operation: attributes, output types, whether it has effects."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from tfopt.graph.mutable_graph import Node, Tensor

FRAMES = {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "RefEnter", "RefExit", "RefMerge"}
FRAMES |= {"RefNextIteration", "RefSwitch", "_SwitchN", "ControlTrigger"}


@cache
def definition(op: str) -> Any:
    """The OpDef; None for a function, or an operation this TensorFlow does not know."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op)


def is_pure(node: Node) -> bool:
    """Whether a node does nothing but give its outputs, always the same for the same inputs."""
    return _is_pure(node.op)


def attribute(node: Node, name: str) -> Any:
    """The AttrValue a node has, else its operation's default; None where there is neither.

    A protocol buffer's map makes an entry when it is asked for one that it lacks, so it must not be asked.
    """
    if name in node.attr:
        return node.attr[name]
    entries = definition(node.op).attr if definition(node.op) else ()
    return next((entry.default_value for entry in entries if entry.name == name), None)


def output_types(node: Node) -> list[int]:
    """The data types of a node's outputs, as protocol buffers number them; empty where they are not known."""
    found, types = definition(node.op), []
    for output in found.output_arg if found else ():
        if output.type_list_attr:
            types += list(attribute(node, output.type_list_attr).list.type)
            continue
        count = attribute(node, output.number_attr).i if output.number_attr else 1
        types += [attribute(node, output.type_attr).type if output.type_attr else output.type] * count
    return types


def attributes(op: str, like: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a new node: those changed, else those of another node that this operation has too."""
    known = {entry.name for entry in definition(op).attr}
    kept = {name: like[name] for name in like if name in known or name == "_class"}
    return {**kept, **{name: _value(definition(op), name, value) for name, value in changed.items()}}


def identity(name: str, source: Tensor, kind: int, controls: Iterable[str] = (), device: str = "") -> Node:
    """A node that gives what it reads, in the data type of that."""
    return Node(name, "Identity", [source], list(controls), attributes("Identity", {}, {"T": kind}), device)


@cache
def _is_pure(op: str) -> bool:
    found = definition(op)
    calls = found is not None and any(entry.type in ("func", "list(func)") for entry in found.attr)
    return found is not None and not found.is_stateful and not calls and op not in FRAMES


def _value(found: Any, name: str, value: Any) -> Any:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    kind = next(entry.type for entry in found.attr if entry.name == name)
    if kind == "string":
        return AttrValue(s=value.encode())
    if kind == "list(int)":
        return AttrValue(list=AttrValue.ListValue(i=value))
    fields = {"int": "i", "float": "f", "bool": "b", "type": "type"}
    return AttrValue(**{fields[kind]: value})
