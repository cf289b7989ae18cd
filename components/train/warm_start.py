"""Where learning begins when it does not begin anew: with the weights of a model of the same layers."""

import logging
import math
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts import KerasModel
from tfopt.artifacts.staging import link_tree
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.training.model_assembly import Assembly

NO_SETTINGS = ("name", "dtype")  # of a layer: they change nothing that it could have learnt

log = logging.getLogger("tfopt")


def start_from(start: KerasModel, parts: Assembly, module: Path) -> dict[str, Any]:
    """Give the module's layers the weights of a model that was trained before; return what the card says of it.

    What ``preprocess`` knows (means, vocabularies) stays as the module says now, the optimizer begins anew, and random
    generators are those of this training's seed.

    Args:
        start: The model, with its preprocessing inside, as `train` saved it.
        parts: What the module's functions made.
        module: For errors.

    Raises:
        ComponentError: When a layer is of another class or size, or there are more or fewer of them.
    """
    given = keras_models.load(start)
    keras_models.check_weights(given)
    _check_library(given, parts.saved, module)
    layers = list(zip_longest(parts.saved.layers, given.layers))
    for place, (mine, theirs) in enumerate(layers, 1):
        if _shape(mine) != _shape(theirs):
            raise ComponentError(
                f"start {start.uri}: layer {place} is {_words(theirs)}",
                f"{_words(mine)}, as in the model of {module}",
                "give the output trained of an earlier run of this module, before it was folded, pruned or quantized, "
                "or leave start out",
            )
    learning = {id(layer) for layer in parts.model.layers}
    for mine, theirs in layers:
        if id(mine) in learning:
            mine.set_weights(theirs.get_weights())
        elif not _same(mine, theirs):
            log.warning("start: preprocess() has another %s now: the weights were learnt with the old one", mine.name)
        changed = _changed(mine.get_config(), theirs.get_config())
        if changed:
            log.warning("start: layer %s: other %s than the weights were learnt with", mine.name, ", ".join(changed))
    log.info("starting from the weights of %s", start.name)
    return {"name": start.name, "digest": start.digest}


def worse(start: KerasModel, now: Mapping[str, float], least: float) -> list[str]:
    """Say so where the loss on today's examples is higher than it was by more than this part of it."""
    before = start.card.get("metrics", {}).get("val_loss")
    today = now.get("val_loss", math.inf)
    if before is not None and today <= before + least * abs(before):
        return []
    was = "unknown" if before is None else f"{before:.4g}"
    return [f"its val_loss, {was} when it was trained and {today:.4g} today"]


def hand_on(start: KerasModel, trained: KerasModel) -> None:
    """Give the start out as what was trained, with its card."""
    log.info("not trained: nothing changed since %s was, and it is as good on today's examples", start.name)
    link_tree(start.path, trained.path)
    trained.metadata |= {"unchanged": 1}


def _check_library(given: Any, mine: Any, module: Path) -> None:
    versions = ["Keras 2" if keras_models.is_keras_2(one) else "Keras 3" for one in (given, mine)]
    if versions[0] != versions[1]:
        raise ComponentError(
            f"start: a {versions[0]} model",
            f"{versions[1]}, as {module} builds",
            "import the same Keras in the module, or leave start out",
        )


def _shape(layer: Any) -> Any:
    return layer and (type(layer).__name__, [tuple(weight.shape) for weight in layer.weights])


def _words(layer: Any) -> str:
    if layer is None:
        return "none"
    shapes = ["x".join(map(str, weight.shape)) or "a number" for weight in layer.weights]
    return f"{type(layer).__name__} {layer.name}" + (f" ({', '.join(shapes)})" if shapes else "")


def _same(mine: Any, theirs: Any) -> bool:
    pairs = zip(mine.get_weights(), theirs.get_weights(), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def _changed(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The settings that differ, with both values where these are short."""
    names = sorted({*mine, *theirs} - {*NO_SETTINGS})
    differ = [(name, str(theirs.get(name)), str(mine.get(name))) for name in names]
    return [
        f"{name} ({old}, now {new})" if len(old) + len(new) < 40 else name for name, old, new in differ if old != new
    ]
