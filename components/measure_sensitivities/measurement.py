"""Measurement of sensitivities in one session of the frozen graph, which is fed with rounded tensors.

For each layer, the activation that it reads is computed once. It is then fed together with the kernel, one of them
rounded, so that only what follows the layer is computed again.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Examples, Model
from tfopt.components.measure_sensitivities.fake_quantization import INPUTS, WEIGHTS, round_inputs, round_weights
from tfopt.components.measure_sensitivities.losses import LossMeasure
from tfopt.conversion.mixes.sensitivity_table import describe_kernel
from tfopt.data.batches import Batch
from tfopt.data.feature_schema import label_of, match_features, stored_features
from tfopt.data.sample_inputs import compared_records, count_records, draw_inputs, split_batches
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import FOLDING
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.matching.linear_ops import TRANSPOSED
from tfopt.graph.mutable_graph import Graph, Node
from tfopt.graph.report import Report
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_def import reach
from tfopt.measurement.parity import compare, degradation, without_tensor_float_32
from tfopt.reports.sensitivity_report import LayerSensitivity, Loss, MixedWeights, SensitivityReport
from tfopt.runtimes import Arrays, Runtime
from tfopt.saved_models.saved_model import opened
from tfopt.training.checkpointing.stored_measurements import StoredMeasurements

KERNELS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2", "Einsum", "GatherV2", *TRANSPOSED)
BATCH = 32
STEPS, SMALLEST_MIX, TINY = 10, 1e-4, 1e-30  # mixes of weights, and the last one's sum relative to the first one's


@dataclass(frozen=True)
class Settings:
    """Parameters of the component; no label is that of the examples."""

    label: str | None
    records: int
    split: str
    seed: int
    seconds: float
    checkpoints: str | None


@dataclass
class Layer:
    """An operation with a kernel, and the losses that were measured."""

    node: Node
    kernel: str  # tensor (``name:0``)
    input: str | None  # tensor of the activation that it reads; None for a lookup
    weights: NDArray[np.float32]
    losses: dict[str, Loss] = field(default_factory=dict)  # by ``weights PRECISION`` or ``input PRECISION``

    def report(self) -> LayerSensitivity:
        """Return the entry of the report."""
        weights, inputs = (
            {name.split()[1]: loss for name, loss in self.losses.items() if name.startswith(part)}
            for part in ("weights", "input")
        )
        return LayerSensitivity(self.node.name, self.node.op, *describe_kernel(self.weights), weights, inputs)


def open_progress(model: Model, examples: Examples, settings: Settings) -> StoredMeasurements:
    """Return the losses of this measurement, those that are in the folder of checkpoints included."""
    identity = (model.digest, examples.digest, model.signature, replace(settings, seconds=0, checkpoints=None))
    return StoredMeasurements(settings.checkpoints, identity)


@without_tensor_float_32()
def measure(model: Model, examples: Examples, settings: Settings) -> SensitivityReport:
    """Measure the sensitivities of a model, and return the report.

    Raises:
        ComponentError: If the model cannot be frozen, has no layer with float weights, or does not fit the examples.
    """
    start = time.monotonic()
    with opened(model) as frozen:
        folded = optimize(frozen, FOLDING, Report())
        layers, loops = find_layers(graph_of(folded), folded, model.signature)
        if not layers:
            received = f"{model.name}: no operation of its graph has float weights" + (
                " outside of loops" if loops else ""
            )
            raise ComponentError(received, "a float model with convolutions or matrix products", "pass another model")
        with FrozenRuntime(folded, model.signature) as runtime:
            batches, labels, source = _draw(runtime, examples, settings)
            losses = LossMeasure([runtime.run(batch) for batch in batches], labels)
            progress = open_progress(model, examples, settings)
            deadline = start + settings.seconds
            missing = _measure_layers(runtime, layers, batches, losses, progress, deadline)
            mixes = _measure_mixes(runtime, layers, batches, losses, deadline)
    return SensitivityReport(
        model=model.name,
        digest=model.digest,
        examples=examples.digest,
        signature=model.signature,
        inputs=source,
        records=sum(count_records(batch, runtime.inputs) for batch in batches),
        divergence=losses.divergence,
        task=losses.task,
        seconds=time.monotonic() - start,
        reused=progress.reused,
        layers=[layer.report() for layer in layers],
        mixes=mixes,
        not_measured=missing | dict.fromkeys(loops, "in the body of a loop or branch"),
    )


def find_layers(graph: Graph, frozen: Frozen, key: str) -> tuple[list[Layer], list[str]]:
    """Return the layers that a signature computes, and the names of those in bodies of loops and branches."""
    needed = reach([end.node for end in frozen.signatures[key].outputs.values()], graph.sources)
    layers: dict[str, Layer] = {}
    for node in graph.of_op(*KERNELS):
        kernels = [tensor for tensor in node.inputs if graph.is_constant(tensor)]
        arrays = [(tensor, graph.array(tensor)) for tensor in kernels]
        weights = [(tensor, array) for tensor, array in arrays if array.dtype == np.float32 and array.ndim > 1]
        if node.name not in needed or len(weights) != 1:
            continue
        kernel, array = weights[0]
        data = [tensor for tensor in node.inputs if not graph.is_constant(tensor)]
        reads = data[0] if data and "Gather" not in node.op else None
        name = f"{kernel.node}:{kernel.output}"  # a kernel of several operations is one layer
        layers.setdefault(name, Layer(node, name, reads and f"{reads.node}:{reads.output}", array))
    bodies = [
        f"{function.signature.name}/{node.name}"
        for function in graph.library.function
        for node in function.node_def
        if node.op in KERNELS and "Gather" not in node.op
    ]
    depths = {name: len(reach([layer.node.name], graph.sources)) for name, layer in layers.items()}
    return [layers[name] for name in sorted(layers, key=depths.__getitem__)], bodies


def _draw(
    runtime: Runtime, examples: Examples, settings: Settings
) -> tuple[list[Batch], list[NDArray[Any]] | None, str]:
    """Return batches of the inputs, the labels of each if there are any, and a description of their source."""
    files = examples.split(settings.split)
    stored, label = stored_features(files), settings.label or label_of(files)
    if settings.label and label not in stored:
        received, expected = f"label={label!r}: no such feature", f"one of {', '.join(stored)}"
        raise ComponentError(received, expected, "name another feature, or leave label out")
    specs = match_features(runtime.inputs, stored, label)
    has_label = label in stored and label not in specs and None not in stored[label].shape[1:]
    drawn = {**specs, label: stored[label]} if has_label else specs
    count = compared_records(runtime.inputs, settings.records, examples)
    inputs, source = draw_inputs(examples, drawn, records=count, seed=settings.seed, seen=settings.split)
    batches = list(split_batches(inputs, drawn, BATCH))
    labels = [batch.pop(label) for batch in batches] if has_label else None
    return batches, labels, source


def _measure_layers(
    runtime: FrozenRuntime,
    layers: Sequence[Layer],
    batches: Sequence[Batch],
    losses: LossMeasure,
    progress: StoredMeasurements,
    deadline: float,
) -> dict[str, str]:
    """Measure each layer in each precision until the deadline; return what was not measured."""
    missing: dict[str, str] = {}
    for weights, inputs in zip(WEIGHTS, INPUTS, strict=True):
        for layer in sorted(layers, key=lambda layer: -layer.weights.size):
            names = [f"weights {precision}" for precision in weights]
            names += [f"input {precision}" for precision in inputs if layer.input]
            read: list[NDArray[Any]] = []
            for name in names:
                whole = f"{layer.node.name} {name}"
                stored = progress.get(whole)
                loss = Loss(stored["divergence"] or 0.0, stored["task"]) if stored else None
                if loss is None and time.monotonic() < deadline:
                    read = read or _read_input(runtime, layer, batches)
                    loss = _measure_loss(runtime, layer, name, batches, read, losses)
                    if loss is None:
                        missing[whole] = "weights out of its range, or an input of another type"
                        continue
                    progress.add(whole, asdict(loss))
                if loss is None:
                    missing[whole] = "no time was left"
                    continue
                layer.losses[name] = loss
    return missing


def _read_input(runtime: FrozenRuntime, layer: Layer, batches: Sequence[Batch]) -> list[NDArray[Any]]:
    if layer.input is None:
        return []
    return [runtime.evaluate(batch, {}, {"read": layer.input})["read"] for batch in batches]


def _measure_loss(
    runtime: FrozenRuntime,
    layer: Layer,
    name: str,
    batches: Sequence[Batch],
    read: Sequence[NDArray[Any]],
    losses: LossMeasure,
) -> Loss | None:
    """Return the loss with one tensor of a layer rounded; None if it cannot be."""
    part, precision = name.split()
    weights: NDArray[Any] | None = layer.weights
    if part == "weights":
        weights = round_weights(layer.node, layer.weights, precision)
    elif all(array.dtype == np.float32 for array in read):
        read = round_inputs(read, precision)
    else:
        return None
    if weights is None:
        return None
    feeds = [{layer.input: array} for array in read] if layer.input else [{}] * len(batches)
    outputs = [
        runtime.evaluate(batch, {layer.kernel: weights, **fed}) for batch, fed in zip(batches, feeds, strict=True)
    ]
    loss = losses.measure(outputs)
    return loss if np.isfinite(loss.divergence) else replace(loss, divergence=float(np.finfo(np.float32).max))


class _MixedRuntime(Runtime):
    """The float model with other kernels."""

    def __init__(self, runtime: FrozenRuntime, kernels: Mapping[str, NDArray[Any]]) -> None:
        self.inputs, self.outputs, self.size = runtime.inputs, runtime.outputs, runtime.size
        self._runtime, self._kernels = runtime, dict(kernels)

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        return self._runtime.evaluate(arrays, self._kernels)


def _measure_mixes(
    runtime: FrozenRuntime,
    layers: Sequence[Layer],
    batches: Sequence[Batch],
    losses: LossMeasure,
    deadline: float,
) -> list[MixedWeights]:
    """Measure mixes of weights in int4, int8 and float32, with the sums of their divergences at equal ratios."""
    measured = [layer for layer in layers if {"weights int4", "weights int8"} <= layer.losses.keys()]
    kinds = ("int4", "int8", "float32")
    values = {
        layer.kernel: [layer.losses[f"weights {kind}"].divergence for kind in kinds[:2]] + [0.0] for layer in measured
    }
    steps = [
        (before - after, name, n)
        for name, each in values.items()
        for n, (before, after) in enumerate(pairwise(each), 1)
    ]
    steps.sort(key=lambda step: (-step[0], step[2]))
    level = dict.fromkeys(values, 0)
    forms = [dict(level)]
    for _, name, n in steps:
        level[name] = max(level[name], n)
        forms.append(dict(level))
    sums = [sum(values[name][n] for name, n in form.items()) for form in forms]
    targets = max(sums[0], TINY) * np.geomspace(1, SMALLEST_MIX, STEPS if measured else 0)
    chosen = {next((n for n, total in enumerate(sums) if total <= target), 0) for target in targets.tolist()}
    mixes = []
    for index in sorted(chosen, reverse=True):
        if time.monotonic() > deadline:
            break
        kernels = {
            layer.kernel: round_weights(layer.node, layer.weights, kinds[forms[index][layer.kernel]])
            for layer in measured
            if forms[index][layer.kernel] < 2
        }
        mixed = _MixedRuntime(runtime, {name: kernel for name, kernel in kernels.items() if kernel is not None})
        divergence = losses.measure([mixed.run(batch) for batch in batches]).divergence
        mixes.append(MixedWeights(sums[index], divergence, degradation(compare(runtime, mixed, batches).values())))
    return mixes
