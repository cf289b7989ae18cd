"""Facts about the examples: features, size of the images, number of classes."""

import math

from tfopt.artifacts import Examples
from tfopt.components.compare_backbones.parameters import Size
from tfopt.data.feature_schema import feature_specs, first_record, read_manifest
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics


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
            raise ComponentError(
                f"{examples.uri}: no feature {name!r}", f"features {', '.join(features)}", nearest(name, features)
            )
        if features[name].dtype == "string":
            raise ComponentError(
                f"{examples.uri}: {role} {name!r} is text or a file of bytes",
                "numbers",
                "prepare the examples with: tfopt prepare_examples, which decodes images and numbers classes",
            )


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
        raise ComponentError(
            f"feature {image!r} has {shape[0]} values, and the examples do not state their shape",
            "a size with as many values",
            "pass input_size, such as 96x96x3; or prepare the examples with: tfopt prepare_examples",
        )
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
        raise ComponentError(
            f"label {label!r} is {feature.dtype}", "int64 class numbers", "pass task=regression, or prepare classes"
        )
    highest = int(feature.max) if feature and feature.max is not None else None
    if classes:
        if highest is not None and highest >= classes:
            raise ComponentError(
                f"classes={classes}, and label {label!r} goes up to {highest}",
                "classes numbered from 0",
                f"pass classes={highest + 1}, or none",
            )
        return classes
    if facts.classes and facts.label == label:
        return len(facts.classes)
    if highest is not None:
        return highest + 1
    raise ComponentError("classes is not given", "the number of classes", "pass classes, such as classes=10")
