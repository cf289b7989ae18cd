"""Warm start: begin training with the weights of a model of the same layers, or skip training if nothing changed."""

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.components.train.parameters import Settings
from tfopt.data.feature_schema import MANIFEST, read_manifest
from tfopt.data.learned_names import check_names
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import load_model
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics
from tfopt.storage.staging import link_tree
from tfopt.training.model_assembly import Assembly, check_same_keras
from tfopt.value_types import JsonObject

WITHOUT_EFFECT = ("name", "dtype")  # settings of a layer that do not change its function

SETTINGS = (
    *("label", "epochs", "batch_size", "patience", "seed", "precision", "gradient_accumulation", "class_weights"),
    *("temperature", "alpha"),
)

log = logging.getLogger(__name__)


def load_last_model(examples: Examples, settings: Settings) -> KerasModel | None:
    """Load the Keras model behind the newest version in the destination.

    None if no warm start is requested, or nothing was pushed there yet. Raise ComponentError if it learned other
    numbers for the examples' class names.
    """
    if not settings.warm_start or settings.destination is None:
        return None
    last = load_model(settings.destination)
    text = last.uri if last else "none yet, training starts from scratch"
    log.info("the last model in %s: %s", settings.destination, text)
    if last:
        check_names(last.card, read_manifest(examples.path), settings.label, f"the last model {last.uri}")
    return last


def load_start_weights(start: KerasModel, parts: Assembly, module: Path) -> JsonObject:
    """Copy the weights of a trained model into the module's layers; return facts for the model card.

    The state of ``preprocess`` (means, vocabularies) stays as the module defines it, the optimizer starts without
    state, and random generators are seeded by this training. Raise ComponentError if the layers differ in number, class
    or size.
    """
    start_model = keras_models.load(start)
    keras_models.check_weights(start_model)
    fix = "import the same Keras in the module, or leave start out"
    check_same_keras("start", start_model, parts.saved, f"as {module} builds", fix)
    layers = list(zip_longest(parts.saved.layers, start_model.layers))
    for number, (layer, start_layer) in enumerate(layers, 1):
        if _signature(layer) != _signature(start_layer):
            raise ComponentError(
                f"start {start.uri}: layer {number} is {_describe(start_layer)}",
                f"{_describe(layer)}, as in the model of {module}",
                "pass the output trained of an earlier run of this module, before it was folded, pruned or quantized, "
                "or leave start out",
            )
    trained_layers = {id(layer) for layer in parts.model.layers}
    for layer, start_layer in layers:
        name = layer.name
        if id(layer) in trained_layers:
            layer.set_weights(start_layer.get_weights())
        elif not all(map(np.array_equal, layer.get_weights(), start_layer.get_weights())):
            log.warning("start: preprocess() has another %s now: the weights were trained with the old one", name)
        changes = _changed_settings(layer.get_config(), start_layer.get_config())
        if changes:
            log.warning("start: layer %s: other %s than the weights were trained with", name, ", ".join(changes))
    log.info("starting from the weights of %s", start.name)
    return {"name": start.name, "digest": start.digest}


def find_loss_increase(start: KerasModel, metrics: Mapping[str, float], min_change: float) -> list[str]:
    """Describe the increase of the start's validation loss if it exceeds this fraction of the loss in its model card.

    The metrics are the start's on the current examples.
    """
    before = (start.card.metrics or {}).get("val_loss")
    now = metrics.get("val_loss", math.inf)
    before = before if isinstance(before, int | float) else None
    if before is not None and now <= before + min_change * abs(before):
        return []
    text = "unknown" if before is None else f"{before:.4g}"
    return [f"its val_loss, {text} when it was trained and {now:.4g} now"]


def pass_through(start: KerasModel, trained: KerasModel) -> None:
    """Write the start unchanged as the output, with its model card."""
    log.info("not trained: nothing changed since %s was trained, and its loss on the examples is as low", start.name)
    link_tree(start.path, trained.path)
    trained.metadata |= {"unchanged": 1}


def find_changes(
    start: KerasModel, examples: Examples, module: Path, teacher: Model | None, settings: Settings
) -> list[str]:
    """Describe what changed by more than ``min_change``; empty if another training would give the same model.

    The settings are those that were passed. ``min_change`` is a fraction of a feature's standard deviation, of the
    number of examples, or of their labels.
    """
    if not settings.min_change:
        return ["training requested"]
    card = start.card
    if card.component != "train" or "module" not in card.facts:
        return ["the start has no record of its training"]
    values, before = asdict(settings), card.parameters or {}
    changes = [f"{name}={values[name]}" for name in SETTINGS if before.get(name) != values[name]]
    changes += ["the module"] if card.facts["module"] != module_digest(module) else []
    changes += ["the teacher"] if (card.teacher and card.teacher.digest) != (teacher and teacher.digest) else []
    if card.data and card.data.digest == examples.digest:
        return changes
    then, now = read_manifest(start.path), read_manifest(examples.path)
    if not (_is_complete(then) and _is_complete(now)):
        return [*changes, f"the examples: no {MANIFEST} shows how much"]
    return [*changes, *_compare_manifests(then, now, settings.min_change)]


def module_digest(module: Path) -> str:
    """Return the SHA-256 of the user's file."""
    return hashlib.sha256(module.read_bytes()).hexdigest()


def _signature(layer: Any) -> Any:
    return layer and (type(layer).__name__, [tuple(weight.shape) for weight in layer.weights])


def _describe(layer: Any) -> str:
    if layer is None:
        return "none"
    shapes = ["x".join(map(str, weight.shape)) or "a number" for weight in layer.weights]
    return f"{type(layer).__name__} {layer.name}" + (f" ({', '.join(shapes)})" if shapes else "")


def _changed_settings(config: JsonObject, old_config: JsonObject) -> list[str]:
    """Return the names of settings that differ, with both values if these are short."""
    names = sorted({*config, *old_config} - {*WITHOUT_EFFECT})
    values = [(name, str(old_config.get(name)), str(config.get(name))) for name in names]
    return [
        f"{name} ({old}, now {new})" if len(old) + len(new) < 40 else name for name, old, new in values if old != new
    ]


def _is_complete(manifest: ExamplesManifest) -> bool:
    required = manifest.splits, manifest.features, manifest.label, manifest.label_counts, manifest.classes
    return all(value is not None for value in required)


def _compare_manifests(then: ExamplesManifest, now: ExamplesManifest, min_change: float) -> list[str]:
    counts = [sum((manifest.splits or {}).values()) for manifest in (then, now)]
    is_other_size = abs(counts[1] - counts[0]) > min_change * counts[0]
    changes = [f"{counts[0]} examples became {counts[1]}"] if is_other_size else []
    features_then, features_now = then.features or {}, now.features or {}
    for name in sorted({*features_then, *features_now}):
        before, after = features_then.get(name), features_now.get(name)
        if before is None or after is None:
            changes.append(f"feature {name} {'was added' if after else 'was removed'}")
        else:
            changes += [f"feature {name}: {change}" for change in _compare_feature(before, after, counts, min_change)]
    if (then.classes, then.label) != (now.classes, now.label):
        changes.append("the classes")
    counters = [map(Counter, (manifest.label_counts or {}).values()) for manifest in (then, now)]
    classes = [_shares(sum(counts_of_splits, Counter())) for counts_of_splits in counters]
    return [*changes, *(["the shares of the classes"] if _total_variation(*classes) > min_change else [])]


def _compare_feature(
    before: FeatureStatistics, after: FeatureStatistics, counts: Sequence[int], min_change: float
) -> list[str]:
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return [f"{before.dtype}{before.shape} became {after.dtype}{after.shape}"]
    changes = []
    if abs((after.missing or 0) / counts[1] - (before.missing or 0) / counts[0]) > min_change:
        changes.append("its missing values")
    if before.dtype == "string":
        words = [_shares({word: count for word, count in facts.top or []}) for facts in (before, after)]
        return [*changes, *(["its most frequent words"] if _total_variation(*words) > min_change else [])]
    spread = before.std or abs(before.mean or 0.0) or 1.0
    for name in ("mean", "std"):
        old, new = (getattr(facts, name) or 0.0 for facts in (before, after))
        if abs(new - old) > min_change * spread:
            changes.append(f"{name} {old:.4g} became {new:.4g}")
    return changes


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def _total_variation(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in {*one, *other}) / 2
