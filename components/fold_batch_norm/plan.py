"""Which batch norms vanish into which layers, and why each of the others stays. Nothing is changed here."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tfopt.components.fold_batch_norm import conditions
from tfopt.components.fold_batch_norm.algebra import CHANNEL_AXES, Line, Weights, fold, line
from tfopt.keras_models.layer_graph import Call, Layer, calls, is_graph


@dataclass(frozen=True)
class Verdict:
    """What becomes of one batch norm: the layer it vanishes into, or the reason why it stays."""

    batch_norm: str
    folded_into: str | None = None
    refused: str | None = None

    def facts(self) -> dict[str, str]:
        """What is known, for the model card."""
        return {key: value for key, value in vars(self).items() if value}


@dataclass
class Plan:
    """All that is known before anything is changed.

    Attributes:
        verdicts: One for each batch norm.
        folded: The ids of the batch norms that vanish.
        weights: The new weights of each layer that takes some in, in float64, by the layer's id.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    folded: set[int] = field(default_factory=set)
    weights: dict[int, Weights] = field(default_factory=dict)


def make_plan(model: Layer) -> Plan:
    """Judge every batch norm of a model and of the models in it."""
    plan = Plan()
    if not is_graph(model):
        plan.verdicts.extend(_out_of_reach(model, ""))
        return plan
    graphs: dict[int, _Graph] = {}
    _collect(graphs, model, "", training=False)
    times = Counter(id(call.layer) for graph in graphs.values() for call in graph.calls)
    for graph in graphs.values():
        _Judge(plan, graph, times).judge_all()
    return plan


@dataclass
class _Graph:
    """One model of the tree; once, however often it is called.

    Attributes:
        path: The names of the models it is in and its own, each with a slash; empty for the outermost.
        training: Whether it is called with training=True somewhere.
    """

    model: Layer
    path: str
    training: bool
    calls: list[Call]


def _collect(graphs: dict[int, _Graph], model: Layer, path: str, *, training: bool) -> None:
    known = graphs.get(id(model))
    if known and (known.training or not training):
        return
    graph = graphs.setdefault(id(model), _Graph(model, path, training, list(calls(model))))
    graph.training |= training
    for call in graph.calls:
        if is_graph(call.layer):
            _collect(graphs, call.layer, f"{path}{call.layer.name}/", training=training or call.training)


class _Judge:
    """Gives the verdicts of one graph, in the order of its calls: a chain of batch norms folds into one layer."""

    def __init__(self, plan: Plan, graph: _Graph, times: Counter[int]) -> None:
        self.plan, self.graph, self.times = plan, graph, times
        self.maker = {id(tensor): call.layer for call in graph.calls for tensor in call.outputs}
        self.readers: dict[int, list[Call]] = defaultdict(list)
        for call in graph.calls:
            for tensor in call.inputs:
                self.readers[id(tensor)].append(call)
        self.outputs = {id(tensor) for tensor in graph.model.outputs}
        self.takes_in: dict[int, Layer] = {}  # the layer a folded batch norm went into, by the batch norm's id

    def judge_all(self) -> None:
        """Give a verdict on each batch norm, whether Keras knows its call or only the layer around it."""
        judged: set[int] = set()
        for call in self.graph.calls:
            if id(call.layer) in judged:
                continue
            judged.add(id(call.layer))
            if conditions.is_batch_norm(call.layer):
                self.plan.verdicts.append(self._judge(call))
            elif not is_graph(call.layer):
                self.plan.verdicts.extend(_out_of_reach(call.layer, self.graph.path))

    def _judge(self, call: Call) -> Verdict:
        norm, tensor, name = call.layer, call.inputs[0], self.graph.path + call.layer.name
        maker = self.maker.get(id(tensor))
        layer = self.takes_in.get(id(maker), maker)
        reason = self._refusal(call, layer)
        if reason or layer is None:
            return Verdict(name, refused=reason)
        folded = fold(self.plan.weights.get(id(layer)) or _weights(layer), _line(norm), CHANNEL_AXES[_kind(layer)])
        reason = conditions.of_weights(layer, folded)
        if reason:
            return Verdict(name, refused=reason)
        self.plan.weights[id(layer)] = folded
        self.plan.folded.add(id(norm))
        self.takes_in[id(norm)] = layer
        return Verdict(name, folded_into=self.graph.path + layer.name)

    def _refusal(self, call: Call, layer: Layer | None) -> str | None:
        norm, tensor = call.layer, call.inputs[0]
        if call.training or self.graph.training:
            return "it is called with training=True, and so uses the statistics of the batch"
        if layer is None:
            return "nothing is before it but an input"
        others = [reader.layer.name for reader in self.readers[id(tensor)] if reader is not call]
        return (
            conditions.of_batch_norm(norm, self.times[id(norm)])
            or conditions.of_layer(layer, self.times[id(layer)])
            or conditions.of_tensor(layer, others, is_output=id(tensor) in self.outputs)
            or conditions.of_pair(norm, layer, len(tensor.shape))
        )


def _out_of_reach(layer: Layer, path: str) -> Iterator[Verdict]:
    """The batch norms inside a layer or model that Keras calls as a whole."""
    flatten = getattr(layer, "_flatten_layers", None)  # operations of keras.ops have no layers
    for inner in flatten(include_self=False) if flatten else ():
        if conditions.is_batch_norm(inner):
            reason = f"it is inside {conditions.named(layer)}, which has no graph of Keras layers"
            yield Verdict(f"{path}{layer.name}/{inner.name}", refused=reason)


def _line(norm: Layer) -> Line:
    return line(
        gamma=norm.gamma.numpy() if norm.scale else None,
        beta=norm.beta.numpy() if norm.center else None,
        mean=norm.moving_mean.numpy(),
        variance=norm.moving_variance.numpy(),
        epsilon=norm.epsilon,
    )


def _weights(layer: Layer) -> Weights:
    """The layer's weights with a bias, zero where it has none yet; `line` gave the number of channels."""
    arrays: Weights = layer.get_weights()
    return arrays if layer.use_bias else [*arrays, np.zeros(1)]


def _kind(layer: Layer) -> str:
    return type(layer).__name__
