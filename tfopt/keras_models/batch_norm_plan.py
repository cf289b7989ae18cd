"""Plan of the folding: the layer that each batch norm is folded into, or the reason why it stays.

Each function ``check_…`` checks a condition of `batch_norm_algebra`, and returns the reason for a refusal, or None.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec, record_input
from tfopt.keras_models.batch_norm_algebra import CHANNEL_AXES, Weights, batch_norm_affine, fold
from tfopt.keras_models.io import load
from tfopt.keras_models.layer_graph import LIBRARIES, Call, Layer, calls, is_graph
from tfopt.keras_models.model_code import ModelCodeError

BATCH_NORMS = ("BatchNormalization", "BatchNormalizationBase")
# in inference, their result has the elements of their input in the same order
VIEWS = ("Reshape", "Flatten", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")

log = logging.getLogger(__name__)


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
    """The planned changes of a model."""

    results: list[FoldResult] = field(default_factory=list)  # one for each batch norm
    folded: set[int] = field(default_factory=set)  # the ids of the batch norms to remove
    weights: dict[int, Weights] = field(default_factory=dict)  # new ones, float64, by the id of the layer folded into


def load_foldable(model: Model, inputs: Mapping[str, TensorSpec]) -> Layer | None:
    """Return the Keras form in which batch norms are folded; None if they are folded in the graph of the SavedModel.

    Args:
        model: A SavedModel, its Keras form, or both.
        inputs: The inputs of its signature, or only those of strings.
    """
    if model.keras is None or record_input(inputs):  # a new export of the Keras form would have another signature
        return None
    try:
        return load(model)
    except ModelCodeError as refusal:
        if not model.saved_model:
            raise
        log.info("the graph is folded, not the Keras form: %s", refusal.received)
        return None


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
        graph.plan_all(plan, times)
    return plan


def _collect(graphs: dict[int, "_Graph"], model: Layer, path: str, *, training: bool) -> None:
    earlier = graphs.get(id(model))
    if earlier and (earlier.training or not training):
        return
    graph = graphs.setdefault(id(model), _Graph(model, path))
    graph.training |= training
    for call in graph.calls:
        if is_graph(call.layer):
            _collect(graphs, call.layer, f"{path}{call.layer.name}/", training=training or call.training)


class _Graph:
    """A model or nested model, for all of its calls.

    It is planned in the order of its calls, so that a chain of batch norms is folded into one layer.
    """

    def __init__(self, model: Layer, path: str) -> None:
        self.calls = list(calls(model))
        self.path = path  # names of the enclosing models and its own, each with a slash behind it; "" for the outermost
        self.training = False  # True if it is called with training=True somewhere
        self.producers = {id(tensor): call for call in self.calls for tensor in call.outputs}
        self.readers: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls:
            for tensor in call.inputs:
                self.readers[id(tensor)].append(call)
        self.outputs = {id(tensor) for tensor in model.outputs}
        self.targets: dict[int, Layer] = {}  # the layer that a batch norm is folded into, by the batch norm's id

    def plan_all(self, plan: Plan, times: Counter[int]) -> None:
        """Plan each batch norm, including those inside layers that Keras calls as a whole."""
        planned: set[int] = set()
        for call in self.calls:
            if id(call.layer) in planned:
                continue
            planned.add(id(call.layer))
            if is_batch_norm(call.layer):
                plan.results.append(self._plan(call, plan, times))
            elif not is_graph(call.layer):
                plan.results.extend(_unreachable(call.layer, self.path))

    def _plan(self, call: Call, plan: Plan, times: Counter[int]) -> FoldResult:
        norm, name, path = call.layer, self.path + call.layer.name, [call]
        while (before := self.producers.get(id(path[-1].inputs[0]))) and _is_view(before):
            path.append(before)
        layer = self.targets.get(id(before.layer), before.layer) if before else None
        reason = self._refusal(path, layer, times)
        if reason or layer is None:
            return FoldResult(name, refused=reason)
        folded = fold(
            plan.weights.get(id(layer)) or _weights(layer),
            batch_norm_affine(
                gamma=norm.gamma.numpy() if norm.scale else None,
                beta=norm.beta.numpy() if norm.center else None,
                mean=norm.moving_mean.numpy(),
                variance=norm.moving_variance.numpy(),
                epsilon=norm.epsilon,
            ),
            CHANNEL_AXES[type(layer).__name__],
        )
        reason = check_weights(layer, folded)
        if reason:
            return FoldResult(name, refused=reason)
        plan.weights[id(layer)] = folded
        plan.folded.add(id(norm))
        self.targets[id(norm)] = layer
        return FoldResult(name, folded_into=self.path + layer.name)

    def _refusal(self, path: Sequence[Call], layer: Layer | None, times: Counter[int]) -> str | None:
        """Return why a batch norm stays. The path is its call, and those of the views between the layer and it."""
        norm, tensors = path[0].layer, [call.inputs[0] for call in path]
        if path[0].training or self.training:
            return "it is called with training=True and uses the statistics of the batch"
        if layer is None:
            return "it follows an input"
        readers = [reader for tensor in tensors for reader in self.readers[id(tensor)]]
        others = [reader.layer.name for reader in readers if reader not in path]
        return (
            check_batch_norm(norm, times[id(norm)])
            or check_layer(layer, times[id(layer)])
            or check_tensor(layer, others, is_output=any(id(tensor) in self.outputs for tensor in tensors))
            or check_pair(norm, layer, len(tensors[0].shape), path[1:])
        )


def _unreachable(layer: Layer, path: str) -> Iterator[FoldResult]:
    """Yield the batch norms inside a layer or model that Keras calls as a whole."""
    flatten = getattr(layer, "_flatten_layers", None)  # operations of keras.ops have no layers
    for inner in flatten(include_self=False) if flatten else ():
        if is_batch_norm(inner):
            reason = f"it is inside {describe(layer)}, which has no graph of Keras layers"
            yield FoldResult(f"{path}{layer.name}/{inner.name}", refused=reason)


def _weights(layer: Layer) -> Weights:
    """Return the layer's weights with a bias; a zero if it has none, which broadcasts over the channels."""
    arrays: Weights = layer.get_weights()
    return arrays if layer.use_bias else [*arrays, np.zeros(1)]


def _is_view(call: Call) -> bool:
    """Return True for a layer that returns the elements of its input in inference, with the same last axis."""
    if type(call.layer).__name__ not in VIEWS or not _is_library(type(call.layer)) or call.training:
        return False
    size = call.inputs[0].shape[-1]
    return size is not None and size == call.outputs[0].shape[-1]


def is_batch_norm(layer: Layer) -> bool:
    """Return True for a batch norm of Keras 2 or 3, or a class derived from one."""
    return any(base.__name__ in BATCH_NORMS and _is_library(base) for base in type(layer).__mro__)


def describe(layer: Layer) -> str:
    """Return the name and class of a layer."""
    return f"{layer.name!r} ({type(layer).__name__})"


def check_batch_norm(norm: Layer, times: int) -> str | None:
    """Check the batch norm, which is called ``times`` times."""
    if not _is_library(type(norm)):
        return f"{type(norm).__name__} is derived from BatchNormalization and may compute something else"
    if times > 1:
        return f"it is shared: called {times} times"
    if getattr(norm, "virtual_batch_size", None) is not None:
        return f"virtual_batch_size={norm.virtual_batch_size} lets it take only some batch sizes"
    if len(_axes(norm)) > 1:
        return f"it normalizes axes {_axes(norm)} together, not one axis of channels"
    broken = int(np.sum(norm.moving_variance.numpy().astype(np.float64) + norm.epsilon <= 0))
    return f"its variance plus epsilon is not above zero in {broken} channels" if broken else None


def check_layer(layer: Layer, times: int) -> str | None:
    """Check the layer before it, which is called ``times`` times."""
    if is_batch_norm(layer):
        return f"it follows {layer.name!r}, which could not be folded itself"
    if type(layer).__name__ not in CHANNEL_AXES or not _is_library(type(layer)):
        return f"it follows {describe(layer)}, which is no convolution or dense layer"
    activation = getattr(layer.activation, "__name__", str(layer.activation))
    if layer.activation is not None and activation != "linear":
        return f"{layer.name!r} applies its activation {activation} first"
    if times > 1:
        return f"{layer.name!r} is shared: called {times} times"
    if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
        return f"{layer.name!r} is quantized or has LoRA weights"
    return None


def check_tensor(layer: Layer, others: Sequence[str], *, is_output: bool) -> str | None:
    """Check that only the batch norm reads the tensor between the two."""
    if is_output:
        return f"the output of {layer.name!r} is also an output of the model"
    return f"the output of {layer.name!r} also goes to {', '.join(map(repr, others))}" if others else None


def check_pair(norm: Layer, layer: Layer, rank: int, views: Sequence[Call] = ()) -> str | None:
    """Check that both have the same channel axis, also behind views between them, and compute dtype."""
    is_first = getattr(layer, "data_format", None) == "channels_first"
    if views and is_first:
        return f"it follows {describe(views[0].layer)}, which may move the channels of {layer.name!r}"
    axis, channels = _axes(norm)[0] % rank, 1 if is_first else rank - 1
    if axis != channels:
        return f"it normalizes axis {axis}, but the channels of {layer.name!r} are axis {channels}"
    if norm.compute_dtype != layer.compute_dtype:
        return f"it computes in {norm.compute_dtype}, but {layer.name!r} in {layer.compute_dtype}"
    return None


def check_weights(layer: Layer, folded: Weights) -> str | None:
    """Check that the new weights are in the range of the layer's dtypes."""
    import tensorflow as tf

    limit = min(float(tf.as_dtype(dtype).max) for dtype in (layer.compute_dtype, layer.variable_dtype))
    fits = all(bool((np.abs(array.astype(np.float64)) <= limit).all()) for array in folded)
    return None if fits else f"the weights of {layer.name!r} would leave the range of {layer.compute_dtype}"


def _is_library(kind: type) -> bool:
    return kind.__module__.startswith(LIBRARIES)


def _axes(norm: Layer) -> list[int]:
    axis: Any = norm.axis
    return [int(axis)] if isinstance(axis, int) else [int(number) for number in axis]
