"""Search for a precision of each layer: rank the layers by noise, then raise the worst ones until a limit is met.

Each format implements `MixedModel`; its kinds are precisions of a layer, such as int8. docs/adr/0070 has the reasons.
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
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import simultaneous_error
from tfopt.measurement.evidence import DEGRADATION_NOTE, describe_first_form
from tfopt.measurement.exact_tests import least_share

# Bits of a weight; the first kinds of a mix come first. dynamic is int8 with ranges that are computed in each call.
BITS = {"int4": 4, "int8": 8, "dynamic": 8, "float16": 16, "float32": 32}
ERROR_RECORDS = 16  # to compare layers on; their order hardly depends on more
FINEST = 8  # the number of layers in a higher precision is found up to an eighth of it

File = TypeVar("File")
Promotion = tuple[str, str]  # a layer and the kind that it is raised to


@dataclass(frozen=True)
class Layer:
    """An op, identified by its output: names of its inputs, its kinds from the lowest one, and number of weights."""

    inputs: Sequence[str]
    output: str
    kinds: Sequence[str]
    weights: int = 0


class MixedModel(ABC, Generic[File]):
    """A float model in a format, which can be quantized with a kind for each layer, always with the same ranges."""

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
    """Return the noise-to-signal ratio of each tensor: the values of the float model and of the other, by record."""
    signal, noise = defaultdict[str, float](float), defaultdict[str, float](float)
    for exact, rounded in pairs:
        for name in exact.keys() & rounded.keys():
            signal[name] += float(np.square(exact[name], dtype=np.float64).sum())
            noise[name] += float(np.square(exact[name].ravel() - rounded[name].ravel(), dtype=np.float64).sum())
    return {name: noise[name] / (value or 1.0) for name, value in signal.items()}


def rank_promotions(model: MixedModel[File]) -> list[Promotion]:
    """Return the steps that take each layer from its lowest kind to float32, best first.

    The best one removes most noise for each byte that it adds; in integer precisions, where each layer in float
    costs conversions, just most noise. A step leaves out the kinds that help less than the next one. Steps from
    float16, which is nearly exact, come last. The noise of a layer is the noise-to-signal ratio of its output minus
    the largest one of its inputs, in a file whose layers are all of one kind.
    """
    layers = model.layers
    used = {kind for layer in layers for kind in layer.kinds[:-1]}
    noise = {kind: model.measure_noise(model.quantize({}, kind)) for kind in BITS if kind in used}

    def added_noise(layer: Layer, kind: str) -> float:
        tensors = noise.get(kind, {})
        return tensors.get(layer.output, 0.0) - max((tensors.get(name, 0.0) for name in layer.inputs), default=0.0)

    steps = []
    for layer in layers:
        if layer.output not in noise.get(layer.kinds[0], {}):
            continue
        path: list[_Step] = []
        for kind, following in pairwise(layer.kinds):
            removed = added_noise(layer, kind) - added_noise(layer, following)
            added = layer.weights * (BITS[following] - BITS[kind]) / 8 if model.by_bytes else 1
            step = _Step(layer.output, following, removed, added, last=kind == "float16")
            while path and not step.last and path[-1].use <= step.use:
                step = replace(step, removed=step.removed + path[-1].removed, added=step.added + path.pop().added)
            path.append(step)
        steps += path
    steps.sort(key=lambda step: (step.last, -step.use))  # stable: the steps of a layer stay in order
    return [(step.layer, step.kind) for step in steps]


def limit_degradation(
    model: MixedModel[File], limit: float, measure: Callable[[File], float], *, mixed: bool
) -> tuple[File, ConversionFacts]:
    """Raise the precision of the layers that add most noise, one kind at a time, until the degradation meets the limit.

    The number of steps is doubled until it does, then the smallest one is searched between the last two. Unless
    ``mixed``, at most half of the layers are left in float: a file with more is not of the requested precision.
    ``measure`` returns the degradation of a file on records that it was not calibrated on. Returned are the file and
    metadata for the model card.

    Raises:
        ComponentError: If the limit is exceeded even so.
    """
    tried: list[dict[str, float]] = []
    promotions: list[Promotion] = []

    def attempt(steps: int) -> tuple[File, bool]:
        file = model.quantize(dict(promotions[:steps]))
        tried.append({"steps": steps, "bytes": model.count_bytes(file), "degradation": measure(file)})
        return file, tried[-1]["degradation"] <= limit

    failed = steps = most = 0
    file, met = attempt(0)
    if not met:
        promotions = rank_promotions(model)
        half = len(dict(promotions)) // 2
        allowed = (n for n in range(len(promotions), 0, -1) if mixed or len(_in_float(promotions[:n])) <= half)
        most = next(allowed, 0)
    while not met and steps < most:
        failed, steps = steps, min(max(1, 2 * steps), most)
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
    facts: ConversionFacts = {"tried": tried, "left_in_float": _in_float(promotions[:steps])}
    facts["raised"] = dict(promotions[:steps])
    facts["degradation"] = {form["steps"]: form["degradation"] for form in tried}[steps]
    if len(tried) > 1:
        facts[DEGRADATION_NOTE] = describe_first_form(len(tried))
    return file, facts


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
