"""What a SavedModel is to the graph optimizations: one graph of constants, and what of it is served by which name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PREDICT = "tensorflow/serving/predict"


@dataclass(frozen=True)
class Endpoint:
    """One named input or output.

    Attributes:
        tensor: ``node:index`` in the graph.
        dtype: A numpy dtype name, ``bfloat16`` or ``string``.
        shape: Sizes, None where unknown; None when not even their number is known.
    """

    tensor: str
    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def node(self) -> str:
        """The node that makes the tensor."""
        return self.tensor.rpartition(":")[0]


@dataclass(frozen=True)
class Signature:
    """What is served under one key: inputs and outputs by name, and TensorFlow Serving's method."""

    inputs: dict[str, Endpoint]
    outputs: dict[str, Endpoint]
    method: str = PREDICT


@dataclass
class Frozen:
    """A model as one graph without variables, shared by all of its signatures.

    Attributes:
        graph: A ``tf.compat.v1.GraphDef``: variables are constants, calls inlined; If and While keep their functions.
        signatures: By key, without TensorFlow's own (``__saved_model_init_op``).
        initializer: The node that must run once after loading, such as the one that fills the lookup tables.
        assets: The file that each ``node:0`` of a file name stands for; copied when the model is written.
    """

    graph: Any
    signatures: dict[str, Signature]
    initializer: str | None = None
    assets: dict[str, Path] = field(default_factory=dict)

    @property
    def outputs(self) -> list[str]:
        """The nodes whose results are wanted: every signature's outputs, and the initializer."""
        ends = [end.node for signature in self.signatures.values() for end in signature.outputs.values()]
        return list(dict.fromkeys([*ends, *([self.initializer] if self.initializer else [])]))

    @property
    def protected(self) -> set[str]:
        """The nodes that a rewrite must keep by name: `outputs`, the signatures' inputs, and file names."""
        inputs = {end.node for signature in self.signatures.values() for end in signature.inputs.values()}
        return {*self.outputs, *inputs, *(tensor.rpartition(":")[0] for tensor in self.assets)}


def nodes(graph: Any) -> Iterator[Any]:
    """Every NodeDef of a GraphDef, those of its functions included."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def functions_called(found: Iterable[Any]) -> set[str]:
    """The names of the functions that these nodes call or take as attributes."""
    names = set()
    for node in found:
        names.add(node.op)  # an op may be a function's name
        for value in node.attr.values():
            names.update([value.func.name] if value.func.name else (), (one.name for one in value.list.func))
    return names


def prune_functions(graph: Any) -> None:
    """Remove the functions that nothing reaches any more; those that a gradient is defined by go too."""
    bodies = {function.signature.name: function.node_def for function in graph.library.function}
    reached, ahead = set(), functions_called(graph.node) & set(bodies)
    while ahead:
        reached |= ahead
        ahead = set().union(*(functions_called(bodies[name]) for name in ahead)) & set(bodies) - reached
    kept = [function for function in graph.library.function if function.signature.name in reached]
    del graph.library.gradient[:], graph.library.function[:]
    graph.library.function.extend(kept)
