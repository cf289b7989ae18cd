"""What is other than when the start was trained: told from what lies beside it, without reading an example."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.components.train.settings import Settings
from tfopt.data.feature_schema import MANIFEST, manifest

KNOWN = ("splits", "features", "label", "label_counts", "classes")  # by a manifest that says how much there is
LEARNT_BY = (
    *("label", "epochs", "batch_size", "patience", "seed", "precision", "gradient_accumulation", "class_weights"),
    *("temperature", "alpha"),
)

Facts = Mapping[str, Any]


def changes(start: KerasModel, examples: Examples, module: Path, teacher: Model | None, asked: Settings) -> list[str]:
    """Say what changed by more than ``min_change``; nothing where training again would learn the same again.

    Args:
        start: The model that would be trained on.
        examples: Today's.
        module: Today's.
        teacher: Today's.
        asked: The parameters, as they were passed. The least change is a part of a feature's spread, of the examples,
            or of their labels.
    """
    card = start.card
    if card.get("component") != "train" or "module" not in card:
        return ["the start does not say how it was trained"]
    given, before = asdict(asked), card.get("parameters", {})
    found = [f"{name}={given[name]}" for name in LEARNT_BY if before.get(name) != given[name]]
    found += ["the module"] if card["module"] != digest(module) else []
    found += ["the teacher"] if card.get("teacher", {}).get("digest") != (teacher and teacher.digest) else []
    if (card.get("data") or {}).get("digest") == examples.digest:
        return found
    then, now = manifest(start.path), manifest(examples.path)
    if not all(name in facts for facts in (then, now) for name in KNOWN):
        return [*found, f"the examples, of which no {MANIFEST} says how much"]
    return [*found, *_changed(then, now, asked.min_change)]


def digest(module: Path) -> str:
    """The SHA-256 of the user's file."""
    return hashlib.sha256(module.read_bytes()).hexdigest()


def _changed(then: Facts, now: Facts, least: float) -> list[str]:
    counts = [sum(one["splits"].values()) for one in (then, now)]
    found = [f"{counts[0]} examples became {counts[1]}"] if abs(counts[1] - counts[0]) > least * counts[0] else []
    for name in sorted({*then["features"], *now["features"]}):
        had, has = then["features"].get(name), now["features"].get(name)
        if had is None or has is None:
            found.append(f"feature {name} {'came' if has else 'went'}")
        else:
            found += [f"feature {name}: {said}" for said in _moved(had, has, counts, least)]
    if then["classes"] != now["classes"] or then["label"] != now["label"]:
        found.append("the classes")
    classes = [_shares(_total(one["label_counts"])) for one in (then, now)]
    return [*found, *(["the shares of the classes"] if _apart(*classes) > least else [])]


def _moved(had: Facts, has: Facts, counts: Sequence[int], least: float) -> list[str]:
    if [had["dtype"], had["shape"]] != [has["dtype"], has["shape"]]:
        return [f"{had['dtype']}{had['shape']} became {has['dtype']}{has['shape']}"]
    found = []
    if abs(has["missing"] / counts[1] - had["missing"] / counts[0]) > least:
        found.append("its missing values")
    if had["dtype"] == "string":
        words = [_shares(dict(one["top"])) for one in (had, has)]
        return [*found, *(["its commonest words"] if _apart(*words) > least else [])]
    spread = had.get("std") or abs(had.get("mean", 0.0)) or 1.0
    for name in ("mean", "std"):
        before, after = had.get(name, 0.0), has.get(name, 0.0)
        if abs(after - before) > least * spread:
            found.append(f"{name} {before:.4g} became {after:.4g}")
    return found


def _total(splits: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return dict(sum((Counter(counts) for counts in splits.values()), Counter()))


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def _apart(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The part of one that would have to move to make it the other."""
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in {*one, *other}) / 2
