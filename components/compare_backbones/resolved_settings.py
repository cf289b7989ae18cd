"""Settings of a comparison, completed from the examples and the installed runtimes, and checked."""

import importlib.util
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfopt import metric_table
from tfopt.artifacts import Examples
from tfopt.artifacts.formats import FORMATS
from tfopt.components.compare_backbones.parameters import (
    LAYER_NAMES,
    Settings,
    Size,
    format_size,
    read_formats,
    read_size,
)
from tfopt.data.feature_schema import feature_specs, first_record, read_manifest
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.keras_models.backbones import Backbone, read_backbones
from tfopt.measurement.goals import QUALITY, Goal, read_goals
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics

COSTS = tuple(
    cost for cost in metric_table.COSTS if cost not in ("throughput", *metric_table.LOADS)
)  # known before training
TOP_K = 5  # the default of `evaluate`
DEFAULT_SIZE = (224, 224, 3)


@dataclass(frozen=True)
class ResolvedSettings:
    """Settings with the values that depend on the examples and the machine."""

    settings: Settings  # as passed
    classes: int  # number of values of the head
    stored_size: Size  # of the images in the examples
    input_size: Size  # of the backbones' input
    unavailable: Mapping[str, str] = field(default_factory=dict)  # why a format is left out

    @property
    def backbones(self) -> list[Backbone]:
        """The backbones to compare."""
        return read_backbones(self.settings.backbones)

    @property
    def goals(self) -> list[Goal]:
        """The parsed goals."""
        return read_goals(self.settings.goals)

    @property
    def formats(self) -> list[str]:
        """The formats to measure."""
        return [name for name in read_formats(self.settings.formats) if name not in self.unavailable]

    def check(self, *, has_examples: bool) -> None:
        """Raise ComponentError if the comparison cannot be run, or a goal cannot be measured."""
        settings = self.settings
        if self.stored_size[2] != self.input_size[2]:
            received = f"input_size={format_size(self.input_size)}, and images of {format_size(self.stored_size)}"
            fix = f"pass input_size={self.input_size[0]}x{self.input_size[1]}x{self.stored_size[2]}"
            raise ComponentError(received, "the same number of channels, because resizing does not change it", fix)
        _check_sides(self.backbones, self.input_size)
        if not self.formats:
            raise ComponentError("; ".join(self.unavailable.values()), "an installed runtime", "add saved_model")
        cores = len(os.sched_getaffinity(0))
        if settings.threads > cores:
            received = f"threads={settings.threads}"
            raise ComponentError(received, f"at most {cores}, the cores here", f"pass threads={cores}")
        if settings.task == "classification" and self.classes < 2:
            raise ComponentError(f"classes={self.classes}", "two or more", "pass task=regression for a number")
        if not has_examples and settings.objective == QUALITY:
            received = "objective=quality without examples"
            raise ComponentError(received, "examples to train on", "pass examples, or objective=latency")
        for goal in self.goals:
            _check_goal(goal, settings.task, has_examples=has_examples)


def resolve_settings(settings: Settings, examples: Examples | None) -> ResolvedSettings:
    """Complete the settings from the examples and the installed runtimes.

    Raises:
        ComponentError: If the settings do not fit the examples, the machine, or each other.
    """
    _check_input_name(settings.image, settings.label)
    input_size = read_size(settings.input_size) if settings.input_size else None
    facts = read_facts(examples) if examples else ExamplesManifest()
    if examples:
        check_features(examples, facts, settings.image, settings.label)
    packages = {name: FORMATS[name].import_name for name in settings.formats}
    missing = {name: package for name, package in packages.items() if importlib.util.find_spec(package) is None}
    stored_size = image_size(facts, settings.image, input_size) if examples else input_size or DEFAULT_SIZE
    resolved = ResolvedSettings(
        settings,
        classes=count_classes(facts, settings.task, settings.label, settings.classes),
        stored_size=stored_size,
        input_size=input_size or stored_size,
        unavailable={name: f"{name}: the package {package} is not installed" for name, package in missing.items()},
    )
    resolved.check(has_examples=examples is not None)
    return resolved


def read_facts(examples: Examples) -> ExamplesManifest:
    """Return the content of ``examples.json``; without it, the features of the first record (imports TensorFlow)."""
    for split in ("train", "eval"):
        examples.split(split)
    manifest = read_manifest(examples.path)
    if manifest.features is not None:
        return manifest
    specs = feature_specs(first_record(examples.split("train")))
    return ExamplesManifest(
        features={name: FeatureStatistics(spec.dtype, [spec.shape[1]]) for name, spec in specs.items()}
    )


def check_features(examples: Examples, facts: ExamplesManifest, image: str, label: str) -> None:
    """Raise ComponentError unless both features exist and contain numbers."""
    features = facts.features or {}
    for name, role in ((image, "image"), (label, "label")):
        if name not in features:
            received = f"{examples.uri}: no feature {name!r}"
            raise ComponentError(received, f"features {', '.join(features)}", nearest(name, features))
        if features[name].dtype == "string":
            fix = "prepare the examples with: tfopt prepare_examples, which decodes images and numbers classes"
            raise ComponentError(f"{examples.uri}: {role} {name!r} is text or a file of bytes", "numbers", fix)


def image_size(facts: ExamplesManifest, image: str, input_size: Size | None) -> Size:
    """Return the size of the images; the input size if the examples state only the number of values.

    Raises:
        ComponentError: If the input size has another number of values.
    """
    shape = (facts.features or {})[image].shape or [None]
    sizes = [size for size in shape if size is not None]
    if len(sizes) in (2, 3):
        return sizes[0], sizes[1], sizes[2] if len(sizes) == 3 else 1
    if input_size is None or [math.prod(input_size)] != shape:
        received = f"feature {image!r} has {shape[0]} values, and the examples do not state their shape"
        fix = "pass input_size, such as 96x96x3; or prepare the examples with: tfopt prepare_examples"
        raise ComponentError(received, "a size with as many values", fix)
    return input_size


def count_classes(facts: ExamplesManifest, task: str, label: str, classes: int | None) -> int:
    """Return the number of values of the head, from the parameter ``classes`` or the examples.

    Raises:
        ComponentError: If the number is not known, or the labels do not fit it.
    """
    feature = (facts.features or {}).get(label)
    if task == "regression":
        return classes or math.prod(size or 1 for size in (feature.shape if feature and feature.shape else [1]))
    if feature and feature.dtype != "int64":
        received = f"label {label!r} is {feature.dtype}"
        raise ComponentError(received, "int64 class numbers", "pass task=regression, or prepare classes")
    highest = int(feature.max) if feature and feature.max is not None else None
    if classes:
        if highest is not None and highest >= classes:
            received = f"classes={classes}, and label {label!r} goes up to {highest}"
            raise ComponentError(received, "classes numbered from 0", f"pass classes={highest + 1}, or none")
        return classes
    if facts.classes and facts.label == label:
        return len(facts.classes)
    if highest is not None:
        return highest + 1
    raise ComponentError("classes is not given", "the number of classes", "pass classes, such as classes=10")


def _check_input_name(image: str, label: str) -> None:
    """Raise ComponentError for a name that the input of no backbone can have."""
    if image == label:
        received = f"image={image!r} and label={label!r}"
        raise ComponentError(received, "two features", "pass the feature with the pixels as image")
    if not re.fullmatch(r"[a-z0-9]\w*", image, re.ASCII | re.IGNORECASE):
        expected = "a name of letters a to z, digits and _, which begins with no _"
        raise ComponentError(f"image={image!r}", expected, "rename that feature")
    if image in LAYER_NAMES:
        expected = (
            f"a name that no other layer has: {', '.join(LAYER_NAMES)} are layers of the head and the preprocessing"
        )
        raise ComponentError(f"image={image!r}", expected, "rename that feature")


def _check_sides(backbones: Sequence[Backbone], size: Size) -> None:
    too_large = [backbone for backbone in backbones if min(size[:2]) < backbone.architecture.min_side]
    if too_large:
        side = max(backbone.architecture.min_side for backbone in too_large)
        names = ", ".join(f"{backbone} (at least {backbone.architecture.min_side})" for backbone in too_large)
        fix = (
            f"pass input_size={max(side, size[0])}x{max(side, size[1])}x{size[2]}: images are resized in the "
            "model; or leave those backbones out"
        )
        raise ComponentError(f"images of {format_size(size)} for {names}", f"sides of {side} or more", fix)


def _check_goal(goal: Goal, task: str, *, has_examples: bool) -> None:
    if goal.kind == "max_regression":
        received = f"goal {goal.text!r}"
        raise ComponentError(received, "a goal that needs no earlier runs", "pass it to select_model instead")
    metrics = (QUALITY, *metric_table.task_metrics(task, TOP_K), *COSTS)
    if goal.metric not in metrics:
        raise ComponentError(f"goal {goal.text!r}", f"one of {', '.join(metrics)}", nearest(goal.metric, metrics))
    if goal.kind != "threshold" and goal.metric in COSTS and not has_examples:
        received = f"goal {goal.text!r} without examples"
        expected = "a threshold: the other kinds compare with the backbone that is best after training"
        raise ComponentError(received, expected, f"write {goal.metric} threshold NUMBER, or pass examples")
