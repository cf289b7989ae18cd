"""Frozen model: one graph in which variables are constants, with the signatures that are served from it."""

from dataclasses import dataclass, field
from pathlib import Path

from tfopt.graph.shape_inference import Shape
from tfopt.graph_def import GraphDef, node_of

PREDICT = "tensorflow/serving/predict"


@dataclass(frozen=True)
class Endpoint:
    """A named input or output of a signature."""

    tensor: str  # ``node:index`` in the graph
    dtype: str  # a numpy dtype name, ``bfloat16`` or ``string``
    shape: tuple[int | None, ...] | None  # sizes, None where unknown; None if the rank is unknown

    @property
    def node(self) -> str:
        """Return the name of the node that computes the tensor."""
        return node_of(self.tensor)

    def add_placeholder(self, graph: GraphDef) -> None:
        """Add a Placeholder for the endpoint to a graph."""
        import tensorflow as tf

        node = graph.node.add(name=self.node, op="Placeholder")
        node.attr["dtype"].type = tf.as_dtype(self.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(self.shape).as_proto())


@dataclass(frozen=True)
class Signature:
    """A signature: inputs and outputs by name, and the method name for TensorFlow Serving."""

    inputs: dict[str, Endpoint]
    outputs: dict[str, Endpoint]
    method: str = PREDICT


@dataclass
class Frozen:
    """A model as one graph without variables, shared by all of its signatures."""

    graph: GraphDef  # variables are constants, calls inlined; If and While keep their functions
    signatures: dict[str, Signature]  # by key, without TensorFlow's own (``__saved_model_init_op``)
    initializer: str | None = None  # the node that must run once after loading, for example to fill lookup tables
    # files by the tensor (``node:0``) that contains their name; copied when the model is written
    assets: dict[str, Path] = field(default_factory=dict)
    # the nodes that create or use variables and tables that the model changes; empty for most models
    state: set[str] = field(default_factory=set)
    # shapes of the tensors of the graph by node and output, once they were inferred
    shapes: dict[tuple[str, int], Shape] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def inputs(self) -> set[str]:
        """Return the nodes that are fed: inputs of all signatures."""
        return {end.node for signature in self.signatures.values() for end in signature.inputs.values()}

    @property
    def outputs(self) -> list[str]:
        """Return the nodes that are fetched: outputs of all signatures, and the initializer."""
        ends = [end.node for signature in self.signatures.values() for end in signature.outputs.values()]
        return list(dict.fromkeys([*ends, *([self.initializer] if self.initializer else [])]))

    @property
    def protected(self) -> set[str]:
        """Return the nodes whose names every pass must preserve: `outputs`, inputs, file names, and `state`."""
        return {*self.outputs, *self.inputs, *self.state, *map(node_of, self.assets)}
