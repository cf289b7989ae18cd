"""Look up operations in the registry of TensorFlow: attributes, output dtypes, effects."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from tfopt.graph.mutable_graph import Node, Tensor
from tfopt.graph_def import NodeDef

FRAMES = {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "RefEnter", "RefExit", "RefMerge"}
FRAMES |= {"RefNextIteration", "RefSwitch", "_SwitchN", "ControlTrigger"}

# Operations that compute each element from the elements at the same place of their inputs. Operations of one operand
# keep its dtype, except for Cast and TESTS.
TESTS = {"IsFinite", "IsInf", "IsNan"}
UNARY = {"Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Cos", "Cosh", "Digamma", "Elu"}
UNARY |= {"Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Floor", "Inv", "Invert", "LeakyRelu", "Lgamma", "Log", "Log1p"}
UNARY |= {"LogicalNot", "Ndtri", "Neg", "Reciprocal", "Relu", "Relu6", "Rint", "Round", "Rsqrt", "Selu", "Sigmoid"}
UNARY |= {"Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Square", "Tan", "Tanh"} | TESTS
BINARY = {"Add", "AddV2", "Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "DivNoNan", "Equal", "FloorDiv"}
BINARY |= {"FloorMod", "Greater", "GreaterEqual", "LeftShift", "Less", "LessEqual", "LogicalAnd", "LogicalOr"}
BINARY |= {"Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "NotEqual", "Pow", "RealDiv", "RightShift"}
BINARY |= {"SquaredDifference", "Sub", "TruncateDiv", "TruncateMod", "Xdivy", "Xlog1py", "Xlogy"}
REDUCTIONS = {"All", "Any", "Max", "Mean", "Min", "Prod", "Sum"}


@cache
def definition(op: str) -> Any:
    """Return the OpDef; None for a function or an unregistered operation."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op)


def is_pure(node: Node | NodeDef) -> bool:
    """Return whether a node is deterministic and has no effects."""
    return _is_pure(node.op)


def attribute(node: Node | NodeDef, name: str) -> Any:
    """Return the AttrValue of a node, else the default of its operation, else None.

    Reading a missing key of a protocol buffer map inserts it, so membership is tested first.
    """
    if name in node.attr:
        return node.attr[name]
    entries = definition(node.op).attr if definition(node.op) else ()
    return next((entry.default_value for entry in entries if entry.name == name), None)


def output_types(node: Node) -> list[int]:
    """Return the dtypes of the outputs of a node as DataType numbers; empty if the operation is unregistered."""
    op_def = definition(node.op)
    return [kind for output in (op_def.output_arg if op_def else ()) for kind in types_of(output, node)]


def types_of(argument: Any, node: Node | NodeDef) -> list[int]:
    """Return the dtypes of the tensors of an argument (ArgDef) of an operation, at a node."""
    if argument.type_list_attr:
        return list(attribute(node, argument.type_list_attr).list.type)
    count = attribute(node, argument.number_attr).i if argument.number_attr else 1
    return [attribute(node, argument.type_attr).type if argument.type_attr else argument.type] * count


def attributes(op: str, like: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, object]:
    """Return attributes for a new node: all of ``changed``, and attributes of ``like`` that the operation has."""
    declared = {entry.name for entry in definition(op).attr}
    copied = {name: like[name] for name in like if name in declared or name == "_class"}
    return {**copied, **{name: _value(definition(op), name, value) for name, value in changed.items()}}


def identity(name: str, source: Tensor, kind: int, controls: Iterable[str] = (), device: str = "") -> Node:
    """Return an Identity node of a tensor with the DataType number ``kind``."""
    return Node(name, "Identity", [source], list(controls), attributes("Identity", {}, {"T": kind}), device)


@cache
def _is_pure(op: str) -> bool:
    op_def = definition(op)
    calls = op_def is not None and any(entry.type in ("func", "list(func)") for entry in op_def.attr)
    return op_def is not None and not op_def.is_stateful and not calls and op not in FRAMES


def _value(op_def: Any, name: str, value: Any) -> Any:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    kind = next(entry.type for entry in op_def.attr if entry.name == name)
    if kind == "string":
        return AttrValue(s=value.encode())
    lists = {"list(int)": "i", "list(type)": "type", "list(string)": "s"}
    if kind in lists:
        values = [item.encode() if isinstance(item, str) else item for item in value]
        return AttrValue(list=AttrValue.ListValue(**{lists[kind]: values}))
    fields = {"int": "i", "float": "f", "bool": "b", "type": "type"}
    return AttrValue(**{fields[kind]: value})
