"""Plan of the folding: the layer that each batch norm is folded into, or the reason why it stays."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tfopt.components.fold_batch_norm import conditions
from tfopt.components.fold_batch_norm.algebra import CHANNEL_AXES, Affine, Weights, batch_norm_affine, fold
from tfopt.keras_models.layer_graph import Call, Layer, calls, is_graph


@dataclass(frozen=True)
class FoldResult:
    """The layer that a batch norm is folded into, or the reason why it stays."""

    batch_norm: str
    folded_into: str | None = None
    refused: str | None = None

    def facts(self) -> dict[str, str]:
        """Return the fields that are set, for the model card."""
        return {key: value for key, value in vars(self).items() if value}


@dataclass
class Plan:
    """The planned changes of a model.

    Attributes:
        results: One for each batch norm.
        folded: The ids of the batch norms to remove.
        weights: The new weights, float64, of each layer that a batch norm is folded into, by the layer's id.
    """

    results: list[FoldResult] = field(default_factory=list)
    folded: set[int] = field(default_factory=set)
    weights: dict[int, Weights] = field(default_factory=dict)


def make_plan(model: Layer) -> Plan:
    """Plan the folding of every batch norm of a model and of its nested models."""
    plan = Plan()
    if not is_graph(model):
        plan.results.extend(_unreachable(model, ""))
        return plan
    graphs: dict[int, _Graph] = {}
    _collect(graphs, model, "", training=False)
    times = Counter(id(call.layer) for graph in graphs.values() for call in graph.calls)
    for graph in graphs.values():
        _GraphPlanner(plan, graph, times).plan_all()
    return plan


@dataclass
class _Graph:
    """A model or nested model; there is one entry for all of its calls.

    Attributes:
        model: The model.
        path: The names of the enclosing models and its own, each followed by a slash; empty for the outermost.
        training: True if it is called with training=True somewhere.
        calls: The calls of its layers.
    """

    model: Layer
    path: str
    training: bool
    calls: list[Call]


def _collect(graphs: dict[int, _Graph], model: Layer, path: str, *, training: bool) -> None:
    earlier = graphs.get(id(model))
    if earlier and (earlier.training or not training):
        return
    graph = graphs.setdefault(id(model), _Graph(model, path, training, list(calls(model))))
    graph.training |= training
    for call in graph.calls:
        if is_graph(call.layer):
            _collect(graphs, call.layer, f"{path}{call.layer.name}/", training=training or call.training)


class _GraphPlanner:
    """Plans one graph in the order of its calls, so that a chain of batch norms is folded into one layer."""

    def __init__(self, plan: Plan, graph: _Graph, times: Counter[int]) -> None:
        self.plan, self.graph, self.times = plan, graph, times
        self.producers = {id(tensor): call.layer for call in graph.calls for tensor in call.outputs}
        self.readers: dict[int, list[Call]] = defaultdict(list)
        for call in graph.calls:
            for tensor in call.inputs:
                self.readers[id(tensor)].append(call)
        self.outputs = {id(tensor) for tensor in graph.model.outputs}
        self.targets: dict[int, Layer] = {}  # the layer that a batch norm is folded into, by the batch norm's id

    def plan_all(self) -> None:
        """Plan each batch norm, including those inside layers that Keras calls as a whole."""
        planned: set[int] = set()
        for call in self.graph.calls:
            if id(call.layer) in planned:
                continue
            planned.add(id(call.layer))
            if conditions.is_batch_norm(call.layer):
                self.plan.results.append(self._plan(call))
            elif not is_graph(call.layer):
                self.plan.results.extend(_unreachable(call.layer, self.graph.path))

    def _plan(self, call: Call) -> FoldResult:
        norm, tensor, name = call.layer, call.inputs[0], self.graph.path + call.layer.name
        producer = self.producers.get(id(tensor))
        layer = self.targets.get(id(producer), producer)
        reason = self._refusal(call, layer)
        if reason or layer is None:
            return FoldResult(name, refused=reason)
        folded = fold(
            self.plan.weights.get(id(layer)) or _weights(layer), _affine(norm), CHANNEL_AXES[type(layer).__name__]
        )
        reason = conditions.check_weights(layer, folded)
        if reason:
            return FoldResult(name, refused=reason)
        self.plan.weights[id(layer)] = folded
        self.plan.folded.add(id(norm))
        self.targets[id(norm)] = layer
        return FoldResult(name, folded_into=self.graph.path + layer.name)

    def _refusal(self, call: Call, layer: Layer | None) -> str | None:
        norm, tensor = call.layer, call.inputs[0]
        if call.training or self.graph.training:
            return "it is called with training=True and uses the statistics of the batch"
        if layer is None:
            return "it follows an input"
        others = [reader.layer.name for reader in self.readers[id(tensor)] if reader is not call]
        return (
            conditions.check_batch_norm(norm, self.times[id(norm)])
            or conditions.check_layer(layer, self.times[id(layer)])
            or conditions.check_tensor(layer, others, is_output=id(tensor) in self.outputs)
            or conditions.check_pair(norm, layer, len(tensor.shape))
        )


def _unreachable(layer: Layer, path: str) -> Iterator[FoldResult]:
    """Yield the batch norms inside a layer or model that Keras calls as a whole."""
    flatten = getattr(layer, "_flatten_layers", None)  # operations of keras.ops have no layers
    for inner in flatten(include_self=False) if flatten else ():
        if conditions.is_batch_norm(inner):
            reason = f"it is inside {conditions.describe(layer)}, which has no graph of Keras layers"
            yield FoldResult(f"{path}{layer.name}/{inner.name}", refused=reason)


def _affine(norm: Layer) -> Affine:
    return batch_norm_affine(
        gamma=norm.gamma.numpy() if norm.scale else None,
        beta=norm.beta.numpy() if norm.center else None,
        mean=norm.moving_mean.numpy(),
        variance=norm.moving_variance.numpy(),
        epsilon=norm.epsilon,
    )


def _weights(layer: Layer) -> Weights:
    """Return the layer's weights with a bias; a zero if it has none, which broadcasts over the channels."""
    arrays: Weights = layer.get_weights()
    return arrays if layer.use_bias else [*arrays, np.zeros(1)]
