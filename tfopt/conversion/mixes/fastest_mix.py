"""Search for the fastest mix of precisions that meets a limit of the degradation: costs are measured times of calls.

The whole file in each kind is timed first. The search of `mixed_precision` then begins with the fastest kind instead of
the lowest one, and judges a step by the noise that it removes for each second that it adds to a call, which is measured
with a file for each layer and kind: conversions between the kinds of neighbors are part of such a time. The mix is then
timed against the files of one kind, and the search is repeated from the next kind if that one is faster than the mix.
docs/adr/0105 has the reasons.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.mixes.mixed_precision import BITS, File, Layer, MixedModel, Promotion, limit_degradation
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import DEGRADATION_NOTE, describe_first_form
from tfopt.value_types import JsonObject

TIMED_S = 0.2  # for each file that is timed
FEWEST_CALLS = 5
STEPS_S = 60.0  # for the times of all steps; the others are estimated
TIED = 0.03  # of a time: smaller differences are within noise
LEAST_SHARE = 1e-3  # of a call: a step that adds less, or makes a call faster, costs as much


def call_seconds(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median time of each call. They are made in turns, so that other load slows all of them."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    until = time.monotonic() + TIMED_S * len(calls)
    while len(times[0]) < FEWEST_CALLS or time.monotonic() < until:
        for call, measured in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            measured.append(time.perf_counter() - start)
    return [statistics.median(measured) for measured in times]


def minimize_latency(
    model: MixedModel[File],
    limit: float,
    measure: Callable[[File], float],
    *,
    sensitivities: SensitivityTable | None = None,
) -> tuple[File, ConversionFacts]:
    """Return the fastest form that was found to meet the limit, and metadata for the model card.

    Args:
        model: The float model.
        limit: The largest degradation.
        measure: Returns the degradation of a file on records that it was not calibrated on.
        sensitivities: Losses of layers, in place of the noise in the model's own files.

    Raises:
        ComponentError: If the limit is exceeded even in float32, no file can be run, or the sensitivities are those of
            another model.
    """
    forms = _forms_of_one_kind(model)
    files = {kind: model.quantize(form) for kind, form in forms.items()}
    seconds = dict(zip(files, model.measure_seconds([*files.values()]), strict=True))
    tried, timed_steps, used, best = list[dict[str, float]](), 0, "", math.inf
    left = {kind: value for kind, value in seconds.items() if math.isfinite(value)}
    if not left:
        received = "minimize='latency' for a model whose files this machine cannot run, in no precision"
        raise ComponentError(received, "a file whose calls can be timed", "leave minimize out")
    while left and min(left.values()) < best * (1 - TIED):
        kind = _fastest(left)
        del left[kind]
        timed = _TimedModel(model, forms[kind])
        mixed, search_facts = limit_degradation(timed, limit, measure, mixed=True, sensitivities=sensitivities)
        tried += search_facts["tried"]
        timed_steps += len(timed.seconds)
        name = kind
        if search_facts["raised"]:
            name = f"mix from {kind}"
            files[name] = mixed
            seconds = dict(zip(files, model.measure_seconds([*files.values()]), strict=True))
        if seconds[name] < seconds.get(used, math.inf) * (1 - TIED):
            used, facts, form = name, search_facts, timed.base | search_facts["raised"]
        best = seconds.get(used, math.inf)
        left = {kind: seconds[kind] for kind in left}
    report: JsonObject = {
        "milliseconds": {name: 1e3 * value for name, value in seconds.items() if math.isfinite(value)},
        "timed_steps": timed_steps,
        "used": used,
    }
    lowest = {layer.output: layer.kinds[0] for layer in model.layers}
    raised = {name: kind for name, kind in form.items() if kind != lowest[name]}
    in_float = [name for name, kind in form.items() if kind.startswith("float")]
    facts |= {"tried": tried, "raised": raised, "left_in_float": in_float, "latency": report}
    return files[used], facts | ({DEGRADATION_NOTE: describe_first_form(len(tried))} if len(tried) > 1 else {})


def is_fastest(model: MixedModel[File], kind: str) -> bool:
    """Return True if the file with all layers in this kind is faster than those in the others."""
    forms = _forms_of_one_kind(model)
    seconds = model.measure_seconds([model.quantize(form) for form in forms.values()])
    return _fastest(dict(zip(forms, seconds, strict=True))) == kind


def _fastest(seconds: Mapping[str, float]) -> str:
    """Return the fastest kind; of those that are about as fast the lowest one, whose file is smaller."""
    return next(kind for kind in BITS if seconds.get(kind, math.inf) <= min(seconds.values()) * (1 + TIED))


def _forms_of_one_kind(model: MixedModel[File]) -> dict[str, dict[str, str]]:
    """Return the kind of each layer for files that are all of one kind, as far as the layers have it."""
    layers = model.layers
    kinds = [kind for kind in BITS if any(kind in layer.kinds for layer in layers)]
    return {kind: {layer.output: _nearest(layer, kind) for layer in layers} for kind in kinds}


def _nearest(layer: Layer, kind: str) -> str:
    """Return the lowest kind of a layer that is at least this one, or its highest one."""
    order = list(BITS)
    return next((one for one in layer.kinds if order.index(one) >= order.index(kind)), layer.kinds[-1])


class _TimedModel(MixedModel[File]):
    """A model whose layers begin with given kinds, and whose steps cost the time that they add to a call."""

    def __init__(self, model: MixedModel[File], base: Mapping[str, str]) -> None:
        self._model, self.base, self.inputs = model, dict(base), model.inputs
        layers = [layer for layer in model.layers if base[layer.output] in layer.kinds]
        self._layers = [replace(one, kinds=one.kinds[one.kinds.index(base[one.output]) :]) for one in layers]
        self.seconds: dict[Promotion, float] = {}
        self._call = 0.0  # seconds of the file without a step

    @property
    def layers(self) -> list[Layer]:
        return self._layers

    def quantize(self, kinds: Mapping[str, str], lowest: str | None = None) -> File:
        return self._model.quantize(kinds, lowest) if lowest else self._model.quantize({**self.base, **kinds})

    def measure_noise(self, file: File) -> Mapping[str, float]:
        return self._model.measure_noise(file)

    def measure_seconds(self, files: Sequence[File]) -> list[float]:
        return self._model.measure_seconds(files)

    def count_bytes(self, file: File) -> int:
        return self._model.count_bytes(file)

    def added_cost(self, layer: Layer, kind: str, following: str) -> float:
        """Return the seconds that a step adds, as far as they are measured; of others the mean of such steps."""
        if not self.seconds:
            self._measure_steps()
        added = self._added(layer.output, following) - self._added(layer.output, kind)
        return max(added, LEAST_SHARE * self._call)

    def _added(self, output: str, kind: str) -> float:
        if kind == self.base[output]:
            return 0.0
        others = [seconds for (_, other), seconds in self.seconds.items() if other == kind]
        mean = statistics.mean(others) if others else 0.0
        return self.seconds.get((output, kind), mean)

    def _measure_steps(self) -> None:
        """Time files in which one layer has a higher kind, in random order, while there is time."""
        base, until = self.quantize({}), time.monotonic() + STEPS_S
        steps = [(layer.output, kind) for layer in self._layers for kind in layer.kinds[1:]]
        random.Random(0).shuffle(steps)
        for output, kind in steps:
            self._call, seconds = self.measure_seconds([base, self.quantize({output: kind})])
            if math.isfinite(seconds):
                self.seconds[output, kind] = seconds - self._call
            if time.monotonic() > until:
                break
