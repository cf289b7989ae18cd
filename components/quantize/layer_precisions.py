"""Choose the bits of each layer's weights: those of the recipe, and 4 where that costs least by the sensitivities."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt import keras_models
from tfopt.components.quantize.decompose_layers import decompose, whole_names
from tfopt.components.quantize.layer_kinds import KERNEL
from tfopt.components.quantize.parameters import FLOAT, Settings, parse_recipe
from tfopt.conversion.mixes.sensitivity_table import Kernel, SensitivityTable, describe_kernel
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.keras_models.batch_norm_algebra import CHANNEL_AXES, batch_norm_affine, fold
from tfopt.keras_models.kernels import matches
from tfopt.keras_models.layer_graph import Layer, calls, is_graph
from tfopt.value_types import JsonObject

log = logging.getLogger(__name__)


def choose_precisions(
    model: Layer, settings: Settings, sensitivities: SensitivityTable | None
) -> tuple[list[str], dict[str, int], JsonObject]:
    """Return the names of the layers that stay in floats, the bits of the weights of others, and facts for the card.

    Raises:
        ComponentError: If a name of the recipe matches no layer, or ``weight_bits`` cannot be reached.
    """
    names = [layer.name for layer in model._flatten_layers()]
    kinds = dict.fromkeys(settings.keep_float, FLOAT) | _kinds_of_recipe(settings.recipe, names)
    keep_float = [name for name, kind in kinds.items() if kind == FLOAT]
    bits = {name: int(kind.removeprefix("int")) for name, kind in kinds.items() if kind != FLOAT}
    if (4 in bits.values() or sensitivities or settings.learned_scales) and keras_models.is_keras_2(model):
        received = f"{'learned_scales' if settings.learned_scales else 'int4'} for {model.name}, a Keras 2 model"
        fix = "build the model with Keras 3, or use 4 bits after training: export_tflite precision=int4 or auto"
        raise ComponentError(received, "int8: TensorFlow's toolkit, which trains Keras 2 models, has 8 bits", fix)
    if sensitivities is None:
        return keep_float, bits, {}
    kernels = {name: kernel for name, kernel in _kernels(decompose(model, keep_float)) if name not in keep_float}
    fixed = {name: bits[whole] for name in kernels for whole in reversed(whole_names(name)) if whole in bits}
    chosen, unknown = _choose_four(kernels, fixed, sensitivities, settings.weight_bits)
    reached = _mean_bits(kernels, fixed | chosen)
    if reached > settings.weight_bits:
        left = f"; not in the sensitivities: {', '.join(unknown)}" if unknown else ""
        received = f"weight_bits={settings.weight_bits:g}: {reached:.2f} if every measured layer has 4 bits{left}"
        raise ComponentError(received, "a mean that can be reached", f"pass weight_bits={reached + 0.01:.2f}")
    log.info("%.2f bits in the mean: %s in int4", reached, ", ".join(chosen) or "none")
    facts: JsonObject = {"weight_bits": reached, "int4": list(chosen), "not_measured": unknown}
    return keep_float, bits | chosen, facts


def _kinds_of_recipe(recipe: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for pattern, kind in parse_recipe(recipe):
        matching = [name for name in names if matches(name, [pattern])]
        if not matching:
            raise ComponentError(f"recipe: {pattern!r}", "names of the model's layers", nearest(pattern, names))
        kinds |= dict.fromkeys(matching, kind)
    return kinds


def _choose_four(
    kernels: Mapping[str, Kernel], fixed: Mapping[str, int], table: SensitivityTable, goal: float
) -> tuple[dict[str, int], list[str]]:
    """Return the layers with 4 bits, those first that lose least for a weight, and the layers that were not measured.

    Layers whose bits are ``fixed`` by the recipe count in the mean.
    """
    costs, unknown = {}, []
    for name, kernel in ((name, kernel) for name, kernel in kernels.items() if name not in fixed):
        four, eight = (table.loss(kernel, precision, None) for precision in ("int4", "int8"))
        if four is None or eight is None:
            unknown.append(name)
        else:
            costs[name] = (four - eight) / kernel.weights
    chosen: dict[str, int] = {}
    for name in sorted(costs, key=costs.__getitem__):
        if _mean_bits(kernels, {**fixed, **chosen}) <= goal:
            break
        chosen[name] = 4
    for name in reversed(chosen.copy()):  # those that cost most and that a larger layer made superfluous
        others = {other: 4 for other in chosen if other != name}
        chosen = others if _mean_bits(kernels, {**fixed, **others}) <= goal else chosen
    return chosen, unknown


def _mean_bits(kernels: Mapping[str, Kernel], bits: Mapping[str, int]) -> float:
    weights = sum(kernel.weights for kernel in kernels.values())
    return sum(kernel.weights * bits.get(name, 8) for name, kernel in kernels.items()) / max(weights, 1)


def _kernels(model: Layer) -> Iterator[tuple[str, Kernel]]:
    """Yield the layers with one kernel, as `measure_sensitivities` identifies it: with its batch norm folded in."""
    readers: dict[int, list[Any]] = defaultdict(list)
    for call in calls(model):
        for tensor in call.inputs:
            readers[id(tensor)].append(call.layer)
    for call in calls(model):
        if is_graph(call.layer):
            yield from _kernels(call.layer)
        elif isinstance(call.layer, KERNEL):
            yield call.layer.name, describe_kernel(_folded(call.layer, readers[id(call.outputs[0])]))


def _folded(layer: Any, readers: Sequence[Any]) -> Any:
    kernel = next(weight for weight in layer.weights if weight.name == "kernel").numpy()
    norm = readers[0] if len(readers) == 1 else None
    if type(norm).__name__ != "BatchNormalization" or norm is None:
        return kernel
    gamma, beta = (None if weight is None else np.asarray(weight) for weight in (norm.gamma, norm.beta))
    statistics = {"mean": np.asarray(norm.moving_mean), "variance": np.asarray(norm.moving_variance)}
    affine = batch_norm_affine(gamma=gamma, beta=beta, **statistics, epsilon=norm.epsilon)
    return fold([kernel, np.zeros(len(affine.scale))], affine, CHANNEL_AXES[type(layer).__name__])[0]
