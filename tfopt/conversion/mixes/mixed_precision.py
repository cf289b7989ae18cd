"""Search for a precision of each layer: rank the layers by noise, then raise the worst ones until a limit is met.

Each format implements `MixedModel`; its kinds are precisions of a layer, such as int8. docs/adr/0070 has the reasons.
The noise is measured in the format's own files, or looked up in a report of `measure_sensitivities` (docs/adr/0078).
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.mixes.sensitivity_table import Kernel, SensitivityTable
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import simultaneous_error
from tfopt.measurement.evidence import DEGRADATION_NOTE, describe_first_form
from tfopt.measurement.exact_tests import least_share

# Bits of a weight; the first kinds of a mix come first. dynamic is int8 with ranges that are computed in each call.
BITS = {"int4": 4, "int8": 8, "dynamic": 8, "float16": 16, "float32": 32}
# Precisions of weights and inputs in a report of sensitivities, by kind.
ROUNDING = {"int4": ("int4", "dynamic"), "dynamic": ("int8", "dynamic"), "int8": ("int8", "int8")}
ERROR_RECORDS = 16  # to compare layers on; their order hardly depends on more
LEAST_BITS = 0.01  # for each weight, that a step adds which leaves the weights as they are
FINEST = 8  # the number of layers in a higher precision is found up to an eighth of it

File = TypeVar("File")
Promotion = tuple[str, str]  # a layer and the kind that it is raised to


@dataclass(frozen=True)
class Layer:
    """An op, identified by its output: names of its inputs, its kinds from the lowest one, its weights."""

    inputs: Sequence[str]
    output: str
    kinds: Sequence[str]
    weights: int = 0
    kernel: Kernel | None = None


class MixedModel(ABC, Generic[File]):
    """A float model in a format, which can be quantized with a kind for each layer, always with the same ranges."""

    inputs: str | None = None  # precision of the activations that integer kinds read; None for that of `ROUNDING`
    by_bytes = False  # True if a step is judged by the bytes that it adds, False if each costs a conversion of floats

    @property
    @abstractmethod
    def layers(self) -> list[Layer]:
        """Return the layers that may have another kind."""

    @abstractmethod
    def quantize(self, kinds: Mapping[str, str], lowest: str | None = None) -> File:
        """Return the file with these kinds of layers; the others have the kind ``lowest``, or that of the precision."""

    @abstractmethod
    def measure_noise(self, file: File) -> Mapping[str, float]:
        """Return the noise-to-signal ratio of each tensor of a file on `ERROR_RECORDS` records."""

    @abstractmethod
    def count_bytes(self, file: File) -> int:
        """Return the size of a file."""

    @abstractmethod
    def measure_seconds(self, files: Sequence[File]) -> list[float]:
        """Return the time of a call of each file with one record and one thread, measured in turns.

        It is infinite for a file that the runtime does not load.
        """

    def added_cost(self, layer: Layer, kind: str, following: str) -> float:
        """Return what a layer costs more in the following kind: hardly anything if only its activations change."""
        return layer.weights * max(BITS[following] - BITS[kind], LEAST_BITS) / 8 if self.by_bytes else 1


@dataclass(frozen=True)
class _Step:
    """A higher kind for a layer, with the noise that it removes and the cost that it adds."""

    layer: str
    kind: str
    removed: float
    added: float
    last: bool

    @property
    def use(self) -> float:
        return self.removed / self.added


def compare_tensors(pairs: Iterable[tuple[Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]]]) -> dict[str, float]:
    """Return the noise-to-signal ratio of each tensor of floats: the values of the float model and of the other."""
    signal, noise = defaultdict[str, float](float), defaultdict[str, float](float)
    for exact, rounded in pairs:
        for name in exact.keys() & rounded.keys():
            if exact[name].dtype.kind != "f":  # a condition, or indices
                continue
            signal[name] += float(np.square(exact[name], dtype=np.float64).sum())
            noise[name] += float(np.square(exact[name].ravel() - rounded[name].ravel(), dtype=np.float64).sum())
    return {name: noise[name] / (value or 1.0) for name, value in signal.items()}


def rank_promotions(model: MixedModel[File]) -> list[Promotion]:
    """Return the steps that take each layer from its lowest kind to float32, best first; see `_rank_steps`."""
    return [(step.layer, step.kind) for step in _rank_steps(model, {})[0]]


def _rank_steps(model: MixedModel[File], table: Mapping[Promotion, float]) -> tuple[list[_Step], float]:
    """Return the steps that take each layer from its lowest kind to float32, best first, and the noise without them.

    The best one removes most noise for what it adds (`MixedModel.added_cost`): bytes, or, in integer precisions, where
    each layer in float costs conversions, 1 for each step. A step leaves out the kinds that help less than the next
    one. Steps from float16, which is nearly exact, come last. The noise of a layer in a kind is that of the table. What
    it lacks is the noise-to-signal ratio of its output minus the largest one of its inputs, in a file whose layers are
    all of one kind, in the unit of the table: times the ratio of both sums for the layers that have both.
    """
    layers = model.layers
    used = {kind for layer in layers for kind in layer.kinds[:-1] if (layer.output, kind) not in table}
    noise = {kind: model.measure_noise(model.quantize({}, kind)) for kind in BITS if kind in used}

    def own_noise(layer: Layer, kind: str) -> float:
        tensors = noise.get(kind, {})
        return tensors.get(layer.output, 0.0) - max((tensors.get(name, 0.0) for name in layer.inputs), default=0.0)

    both = [(layer, kind) for layer in layers for kind in noise if (layer.output, kind) in table]
    sums = sum(table[layer.output, kind] for layer, kind in both), sum(own_noise(*pair) for pair in both)
    unit = sums[0] / sums[1] if min(sums) > 0 else 1.0

    def added_noise(layer: Layer, kind: str) -> float:
        loss = table.get((layer.output, kind))
        return unit * own_noise(layer, kind) if loss is None else loss

    steps, total = [], 0.0
    for layer in layers:
        if layer.output not in noise.get(layer.kinds[0], {}) and (layer.output, layer.kinds[0]) not in table:
            continue
        total += added_noise(layer, layer.kinds[0])
        path: list[_Step] = []
        for kind, following in pairwise(layer.kinds):
            removed = added_noise(layer, kind) - added_noise(layer, following)
            added = model.added_cost(layer, kind, following)
            step = _Step(layer.output, following, removed, added, last=kind == "float16")
            while path and not step.last and path[-1].use <= step.use:
                step = replace(step, removed=step.removed + path[-1].removed, added=step.added + path.pop().added)
            path.append(step)
        steps += path
    steps.sort(key=lambda step: (step.last, -step.use))  # stable: the steps of a layer stay in order
    return steps, total


def look_up(model: MixedModel[File], sensitivities: SensitivityTable) -> dict[Promotion, float]:
    """Return the losses of layers by kind, for the kinds that a layer may have and that were measured.

    Raises:
        ComponentError: If no layer has one.
    """
    table = {}
    for layer in model.layers:
        for kind in layer.kinds[:-1]:
            weights, inputs = ROUNDING.get(kind, (kind, None))
            loss = sensitivities.loss(layer.kernel, weights, inputs and (model.inputs or inputs))
            if loss is not None:
                table[layer.output, kind] = loss
    if not table:
        received = "sensitivities that have none of the kernels of this model"
        fix = "measure them again: tfopt measure_sensitivities --model PATH"
        raise ComponentError(received, "those of this model, with these weights", fix)
    return table


def limit_degradation(
    model: MixedModel[File],
    limit: float,
    measure: Callable[[File], float],
    *,
    mixed: bool,
    sensitivities: SensitivityTable | None = None,
) -> tuple[File, ConversionFacts]:
    """Raise the precision of the layers that add most noise, one kind at a time, until the degradation meets the limit.

    If the limit is not met without a step, the search goes on with one, or with as many as the sensitivities predict.
    Their number is increased by 1, 2, 4 until the limit is met, or decreased until it is not; then the smallest one is
    searched between the last two. Unless ``mixed``, at most half of the layers are left in float: a file with more is
    not of the requested precision.
    ``measure`` returns the degradation of a file on records that it was not calibrated on. Returned are the file and
    metadata for the model card.

    Raises:
        ComponentError: If the limit is exceeded even so, or the sensitivities are those of another model.
    """
    tried: list[dict[str, float]] = []
    promotions: list[Promotion] = []
    facts: ConversionFacts = {}

    def attempt(steps: int) -> tuple[File, bool]:
        file = model.quantize(dict(promotions[:steps]))
        tried.append({"steps": steps, "bytes": model.count_bytes(file), "degradation": measure(file)})
        return file, tried[-1]["degradation"] <= limit

    failed = steps = most = 0
    width = 1
    file, met = attempt(0)
    if not met:
        promotions, start, facts = _plan_steps(model, limit, sensitivities)
        most = _most_steps(promotions, mixed=mixed)
        steps, width = min(start, most), max(1, start // FINEST)
        file, met = attempt(steps) if steps else (file, met)
    while met and steps - width > failed:
        attempted, still_met = attempt(steps - width)
        failed, steps, file = (failed, steps - width, attempted) if still_met else (steps - width, steps, file)
        width *= 2
    while not met and steps < most:
        failed, steps, width = steps, min(steps + width, most), 2 * width
        file, met = attempt(steps)
    if not met:
        left = f"{len(_in_float(promotions[:steps]))} of {len(dict(promotions))} layers left in float"
        raise ComponentError(
            f"degradation {tried[-1]['degradation']:.3g} with {left}",
            f"at most max_degradation={limit:g}",
            "allow more, or choose a higher precision",
        )
    while steps - failed > max(1, steps // FINEST):
        middle = (failed + steps) // 2
        attempted, met = attempt(middle)
        failed, steps, file = (failed, middle, attempted) if met else (middle, steps, file)
    facts |= {"tried": tried, "left_in_float": _in_float(promotions[:steps]), "raised": dict(promotions[:steps])}
    facts["degradation"] = {form["steps"]: form["degradation"] for form in tried}[steps]
    if len(tried) > 1:
        facts[DEGRADATION_NOTE] = describe_first_form(len(tried))
    return file, facts


def _most_steps(promotions: Sequence[Promotion], *, mixed: bool) -> int:
    """Return the largest number of steps that is allowed: unless ``mixed``, half of the layers may be in float."""
    half = len(dict(promotions)) // 2
    allowed = (n for n in range(len(promotions), 0, -1) if mixed or len(_in_float(promotions[:n])) <= half)
    return next(allowed, 0)


def _plan_steps(
    model: MixedModel[File], limit: float, sensitivities: SensitivityTable | None
) -> tuple[list[Promotion], int, ConversionFacts]:
    """Return the steps, best first, the number to try first, and metadata for the model card.

    It is the number after which the sum of the losses is predicted to meet the limit, or one without sensitivities.
    """
    table = look_up(model, sensitivities) if sensitivities else {}
    steps, total = _rank_steps(model, table)
    promotions = [(step.layer, step.kind) for step in steps]
    if not sensitivities:
        return promotions, 1, {}
    left, allowed = total - np.cumsum([step.removed for step in steps]), sensitivities.predict_sum(limit)
    start = 1 if allowed is None else 1 + int(np.sum(left > allowed))
    return promotions, start, {"sensitivities": {"layers": len({name for name, _ in table}), "first_steps": start}}


def bound_degradation(facts: ConversionFacts) -> ConversionFacts:
    """Return the 95 % interval of the degradation that a search found, so that it holds for all forms it tried.

    It is that of the output with most changed classes; empty without classes, or without a search.
    """
    if "degradation" not in facts:
        return {}
    outputs = facts["verified"].get("outputs", {}).values()
    counts = [(output["agreement"], int(output["records"] or 0)) for output in outputs]
    shares = [(round((1 - agreement) * records), records) for agreement, records in counts if agreement is not None]
    if not shares:
        return {}
    tried = len(facts["tried"]) if "tried" in facts else len(facts["left_in_float"]) + 1
    changed, records = max(shares)
    level = simultaneous_error(tried) / 2
    high = 1 - least_share(records - changed, records, level)
    return {"degradation_interval": [least_share(changed, records, level), high]}


def _in_float(promotions: Iterable[Promotion]) -> list[str]:
    """Return the names of the layers that are in 16 or 32 bits after these steps."""
    return [name for name, kind in dict(promotions).items() if kind.startswith("float")]
