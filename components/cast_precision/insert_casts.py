"""Rewrite a graph with some nodes in 16 bits: change their dtypes, insert casts, convert their constants."""

from dataclasses import replace
from typing import Any

from tfopt.graph.frozen_model import Frozen
from tfopt.graph.mutable_graph import Node, NodeDef
from tfopt.graph.op_registry import definition


def changed_attributes(node: Any, precision: str) -> list[str]:
    """Return the type attributes of a node that are float32 and allow this precision."""
    import tensorflow as tf

    dtype = tf.as_dtype(precision).as_datatype_enum
    op_def = definition(node.op)
    return [
        entry.name
        for entry in (op_def.attr if op_def else ())
        if entry.type == "type"
        and node.attr[entry.name].type == tf.float32.as_datatype_enum
        and (not entry.HasField("allowed_values") or dtype in entry.allowed_values.list.type)
    ]


def rewritten(frozen: Frozen, nodes: set[str], precision: str) -> Frozen:
    """Return the model with these nodes in this precision; all other nodes read and return the same dtypes."""
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef()
    graph.versions.CopyFrom(frozen.graph.versions)
    graph.library.CopyFrom(frozen.graph.library)
    writer = _Writer(graph, {node.name: node for node in frozen.graph.node}, nodes, precision)
    for node in frozen.graph.node:
        writer.add(node)
    pruned = tf.compat.v1.graph_util.extract_sub_graph(graph, sorted(frozen.protected))
    return replace(frozen, graph=pruned)


class _Writer:
    """Add nodes one after the other; a tensor is cast once for all its readers."""

    def __init__(self, graph: Any, sources: dict[str, NodeDef], half: set[str], precision: str) -> None:
        import tensorflow as tf

        self.graph, self.sources, self.half = graph, sources, half
        self.precision, self.types = precision, {True: tf.as_dtype(precision), False: tf.float32}
        self.casts: dict[tuple[str, bool], str] = {}
        self.used_names = set(sources)

    def add(self, source: Any) -> None:
        """Copy a node in its new precision, with casts for inputs of another precision."""
        node = self.graph.node.add()
        node.CopyFrom(source)
        changed = changed_attributes(source, self.precision) if source.name in self.half else []
        for name in changed:
            node.attr[name].type = self.types[True].as_datatype_enum
        input_types = _attributes_of(source, definition(source.op), "input_arg")
        for index, tensor in enumerate(source.input):
            if tensor.startswith("^"):
                continue
            attribute = input_types[index] if index < len(input_types) else None
            node.input[index] = self._in_precision(tensor, half=attribute is not None and attribute in changed)

    def _in_precision(self, tensor: str, *, half: bool) -> str:
        """Return the name of the tensor in 16 bits or float32; a cast is added if its precision differs."""
        producer, _, index = tensor.partition(":")
        source = self.sources[producer]
        output_types = _attributes_of(source, definition(source.op), "output_arg")
        attribute = output_types[int(index or 0)] if int(index or 0) < len(output_types) else None
        is_half = producer in self.half and attribute in changed_attributes(source, self.precision)
        if is_half == half:
            return tensor
        if (tensor, half) not in self.casts:
            self.casts[tensor, half] = self._cast(tensor, source, half=half)
        return self.casts[tensor, half]

    def _cast(self, tensor: str, source: Any, *, half: bool) -> str:
        import tensorflow as tf

        name = self._unused_name(f"{tensor.replace(':', '_')}/{self.types[half].name}")
        if source.op == "Const":  # stored in 16 bits, instead of cast at each call
            values = tf.make_ndarray(source.attr["value"].tensor).astype(self.types[half].as_numpy_dtype)
            node = self.graph.node.add(name=name, op="Const")
            node.attr["dtype"].type = self.types[half].as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
            return name
        node = self.graph.node.add(name=name, op="Cast", input=[tensor])
        node.attr["SrcT"].type = self.types[not half].as_datatype_enum
        node.attr["DstT"].type = self.types[half].as_datatype_enum
        return name

    def _unused_name(self, base: str) -> str:
        name, number = base, 0
        while name in self.used_names:
            number += 1
            name = f"{base}_{number}"
        self.used_names.add(name)
        return name


def _attributes_of(node: Node | Any, op_def: Any, side: str) -> list[str | None]:
    """Return, for each input or output of a node, the attribute with its dtype; None if its dtype is fixed."""
    names: list[str | None] = []
    for argument in getattr(op_def, side) if op_def else ():
        if argument.type_list_attr:
            names += [None] * len(node.attr[argument.type_list_attr].list.type)
        else:
            count = node.attr[argument.number_attr].i if argument.number_attr else 1
            names += [argument.type_attr or None] * count
    return names
