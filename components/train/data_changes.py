"""Find what changed since the start model was trained, from its model card and manifest, without reading examples."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.components.train.parameters import Settings
from tfopt.data.feature_schema import MANIFEST, read_manifest
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics

SETTINGS = (
    *("label", "epochs", "batch_size", "patience", "seed", "precision", "gradient_accumulation", "class_weights"),
    *("temperature", "alpha"),
)


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
    for name, old, new in (
        ("mean", before.mean or 0.0, after.mean or 0.0),
        ("std", before.std or 0.0, after.std or 0.0),
    ):
        if abs(new - old) > min_change * spread:
            changes.append(f"{name} {old:.4g} became {new:.4g}")
    return changes


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def _total_variation(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in {*one, *other}) / 2
