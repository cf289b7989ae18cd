"""Read inner tensors of a frozen model while one of its signatures runs."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from tfopt.data.batches import Batch
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.law import Maker
from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_def import FLOAT


def read_tensors(
    frozen: Frozen, key: str, tensors: Collection[Tensor], batches: Iterable[Batch]
) -> Iterator[dict[Tensor, NDArray[Any]]]:
    """Yield the values of tensors of float32 for each batch, without their shapes: ``[elements]``."""
    graph, outputs = Graph.of(frozen.graph), {}
    names = {tensor: f"flat_{number}" for number, tensor in enumerate(tensors)}
    for tensor, name in names.items():
        node = graph.nodes[tensor.node]
        flat = Maker(graph, node, []).reshape(tensor, [-1], like=node, T=FLOAT)
        outputs[name] = Endpoint(f"{flat.node}:0", "float32", (None,))
    signature = Signature(frozen.signatures[key].inputs, outputs)
    probed = replace(frozen, graph=graph.to_graph_def(), signatures={key: signature})
    with FrozenRuntime(probed, key) as runtime:
        for batch in batches:
            values = runtime.run(batch)
            yield {tensor: values[name] for tensor, name in names.items()}
