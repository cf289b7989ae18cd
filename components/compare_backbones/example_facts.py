"""What the examples say of themselves: their features, how large the images are, how many classes there are."""

import math
from collections.abc import Mapping
from typing import Any

from tfopt.artifacts import Examples
from tfopt.components.compare_backbones.reading import Size
from tfopt.data.feature_schema import feature_specs, first_record, read_manifest
from tfopt.errors import ComponentError, nearest


def facts_of(examples: Examples) -> dict[str, Any]:
    """What ``examples.json`` says; else what the first record does, and that takes TensorFlow."""
    for split in ("train", "eval"):
        examples.split(split)
    content = read_manifest(examples.path)
    if "features" in content:
        return content
    stored = feature_specs(first_record(examples.split("train")))
    return {"features": {name: {"dtype": spec.dtype, "shape": [spec.shape[1]]} for name, spec in stored.items()}}


def check_features(examples: Any, facts: Mapping[str, Any], image: str, label: str) -> None:
    """Raise ComponentError unless there are both features, as numbers."""
    features = facts["features"]
    for name, what in ((image, "image"), (label, "label")):
        if name not in features:
            raise ComponentError(
                f"{examples.uri}: no feature {name!r}", f"features {', '.join(features)}", nearest(name, features)
            )
        if features[name]["dtype"] == "string":
            raise ComponentError(
                f"{examples.uri}: {what} {name!r} is text or a file of bytes",
                "numbers",
                "prepare the examples with: tfopt prepare_examples, which decodes images and numbers classes",
            )


def stored_size(facts: Mapping[str, Any], image: str, taken: Size | None) -> Size:
    """The size of the images; the size that is asked for where the examples know only how many values there are.

    Raises:
        ComponentError: When that are other values.
    """
    shape = facts["features"][image]["shape"]
    if len(shape) in (2, 3):
        return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
    if taken is None or math.prod(taken) != shape[0]:
        raise ComponentError(
            f"feature {image!r} has {shape[0]} values, and nothing says in which shape",
            "a size with as many values",
            "pass input_size, such as 96x96x3; or prepare the examples with: tfopt prepare_examples",
        )
    return taken


def classes_of(facts: Mapping[str, Any], task: str, label: str, given: int | None) -> int:
    """How many numbers the head gives.

    Args:
        facts: Of the examples; empty without any.
        task: What the head is for.
        label: The feature to learn.
        given: What the user says.

    Raises:
        ComponentError: When nothing says it, or the labels are others.
    """
    found = facts.get("features", {}).get(label, {})
    if task == "regression":
        return given or int(math.prod(found.get("shape", [1])))
    if found and found["dtype"] != "int64":
        raise ComponentError(
            f"label {label!r} is {found['dtype']}", "int64 class numbers", "pass task=regression, or prepare classes"
        )
    highest = found.get("max")
    if given:
        if highest is not None and highest >= given:
            raise ComponentError(
                f"classes={given}, and label {label!r} goes up to {highest}",
                "classes numbered from 0",
                f"pass classes={highest + 1}, or none",
            )
        return given
    named = facts.get("classes") if facts.get("label") == label else None
    if named:
        return len(named)
    if highest is not None:
        return int(highest) + 1
    raise ComponentError("classes is not given", "how many classes there are", "pass classes, such as classes=10")
