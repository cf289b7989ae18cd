"""The graph with some nodes in 16 bits: their types changed, casts where a tensor crosses, constants stored anew."""

from dataclasses import replace
from typing import Any

from tfopt.graph.frozen_model import Frozen
from tfopt.graph.mutable_graph import Node
from tfopt.graph.op_registry import definition


def changed_attributes(node: Any, precision: str) -> list[str]:
    """The type attributes of a node that are float32 and may be of this precision."""
    import tensorflow as tf

    wanted = tf.as_dtype(precision).as_datatype_enum
    found = definition(node.op)
    return [
        entry.name
        for entry in (found.attr if found else ())
        if entry.type == "type"
        and node.attr[entry.name].type == tf.float32.as_datatype_enum
        and (not entry.HasField("allowed_values") or wanted in entry.allowed_values.list.type)
    ]


def rewritten(frozen: Frozen, nodes: set[str], precision: str) -> Frozen:
    """Return the model with these nodes computing in this precision. Everything else reads and gives what it did."""
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef()
    graph.versions.CopyFrom(frozen.graph.versions)
    graph.library.CopyFrom(frozen.graph.library)
    writer = _Writer(graph, {node.name: node for node in frozen.graph.node}, nodes, precision)
    for node in frozen.graph.node:
        writer.add(node)
    kept = tf.compat.v1.graph_util.extract_sub_graph(graph, sorted(frozen.protected))
    return replace(frozen, graph=kept)


class _Writer:
    """Adds nodes one after the other; a tensor is cast once, however many read it."""

    def __init__(self, graph: Any, sources: dict[str, Any], half: set[str], precision: str) -> None:
        import tensorflow as tf

        self.graph, self.sources, self.half = graph, sources, half
        self.precision, self.types = precision, {True: tf.as_dtype(precision), False: tf.float32}
        self.casts: dict[tuple[str, bool], str] = {}
        self.taken = set(sources)

    def add(self, source: Any) -> None:
        """Copy a node, in its new precision if it gets one, reading what it needs."""
        node = self.graph.node.add()
        node.CopyFrom(source)
        changed = changed_attributes(source, self.precision) if source.name in self.half else []
        for name in changed:
            node.attr[name].type = self.types[True].as_datatype_enum
        wanted = _attributes_of(source, definition(source.op), "input_arg")
        for index, given in enumerate(source.input):
            if given.startswith("^"):
                continue
            attribute = wanted[index] if index < len(wanted) else None
            node.input[index] = self._as(given, half=attribute is not None and attribute in changed)

    def _as(self, given: str, *, half: bool) -> str:
        """The tensor in the precision wanted; the tensor itself where it is no float that changes."""
        maker, _, index = given.partition(":")
        source = self.sources[maker]
        made = _attributes_of(source, definition(source.op), "output_arg")
        attribute = made[int(index or 0)] if int(index or 0) < len(made) else None
        is_half = maker in self.half and attribute in changed_attributes(source, self.precision)
        if is_half == half:
            return given
        if (given, half) not in self.casts:
            self.casts[given, half] = self._cast(given, source, half=half)
        return self.casts[given, half]

    def _cast(self, given: str, source: Any, *, half: bool) -> str:
        import tensorflow as tf

        name = self._fresh(f"{given.replace(':', '_')}/{self.types[half].name}")
        if source.op == "Const":  # stored in 16 bits, rather than cast whenever it is read
            values = tf.make_ndarray(source.attr["value"].tensor).astype(self.types[half].as_numpy_dtype)
            node = self.graph.node.add(name=name, op="Const")
            node.attr["dtype"].type = self.types[half].as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
            return name
        node = self.graph.node.add(name=name, op="Cast", input=[given])
        node.attr["SrcT"].type = self.types[not half].as_datatype_enum
        node.attr["DstT"].type = self.types[half].as_datatype_enum
        return name

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 0
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name


def _attributes_of(node: Node | Any, found: Any, side: str) -> list[str | None]:
    """For each input or output of a node, the attribute that gives its type; None where none does."""
    names: list[str | None] = []
    for argument in getattr(found, side) if found else ():
        if argument.type_list_attr:
            names += [None] * len(node.attr[argument.type_list_attr].list.type)
        else:
            count = node.attr[argument.number_attr].i if argument.number_attr else 1
            names += [argument.type_attr or None] * count
    return names
