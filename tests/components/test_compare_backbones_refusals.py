"""Tests of the errors of `compare_backbones` that are raised before a framework is imported."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from tfopt.components.compare_backbones.resolved_settings import count_classes, image_size
from tfopt.errors import ComponentError
from tfopt.keras_models.backbones import read_backbones
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics
from tfopt.reports.report_schema import parse

DIGITS = {
    "image": {"dtype": "float32", "shape": [8, 8, 1]},
    "label": {"dtype": "int64", "shape": [1], "min": 0, "max": 9},
    "name": {"dtype": "string", "shape": [1]},
}
REFUSED = [
    ({}, "images of 8x8x1 for MobileNetV2 0.35 .at least 32.", "input_size=32x32x1"),
    ({"backbones": ["Xception"], "input_size": "32x32x1"}, "at least 71", "input_size=71x71x1"),
    ({"input_size": "32x32x3"}, "images of 8x8x1", "input_size=32x32x1"),
    ({"image": "imag", "input_size": "32x32x1"}, "no feature 'imag'", "did you mean image"),
    ({"label": "labl", "input_size": "32x32x1"}, "no feature 'labl'", "did you mean label"),
    ({"label": "name", "input_size": "32x32x1"}, "label 'name' is text", "prepare_examples"),
    ({"classes": 7, "input_size": "32x32x1"}, "goes up to 9", "classes=10"),
    ({"classes": 1, "input_size": "32x32x1"}, "goes up to 9", "classes=10"),
    ({"threads": 999, "input_size": "32x32x1"}, "threads=999", "threads="),
    ({"goals": ["latency max_regression 1%"], "input_size": "32x32x1"}, "max_regression", "select_model"),
    ({"goals": ["latenc threshold 1"], "input_size": "32x32x1"}, "latenc", "did you mean latency"),
    ({"examples": None}, "classes is not given", "classes=10"),
    ({"examples": None, "classes": 1}, "classes=1", "task=regression"),
    ({"examples": None, "classes": 2, "objective": "quality"}, "without examples", "objective=latency"),
    ({"examples": None, "classes": 2, "goals": ["latency min_improvement 1%"]}, "without examples", "threshold"),
    ({"image": "label", "input_size": "32x32x1"}, "image='label' and label='label'", "with the pixels"),
    ({"examples": None, "classes": 2, "image": "scores"}, "image='scores'", "rename"),
    ({"examples": None, "classes": 2, "image": "_image"}, "image='_image'", "rename"),
    ({"examples": None, "classes": 2, "image": "größe"}, "image='größe'", "rename"),
    ({"formats": ["tensorrt"], "input_size": "32x32x1"}, "tensorrt is not installed", "saved_model"),
]


def test_invalid_requests_are_refused_before_tensorflow_is_imported(tmp_path):
    examples, errors = tmp_path / "examples", tmp_path / "errors.json"
    for split in ("train", "eval"):
        (examples / f"Split-{split}").mkdir(parents=True)
        (examples / f"Split-{split}" / "data_tfrecord-00000.gz").write_bytes(b"never read")
    (examples / "examples.json").write_text(json.dumps({"features": DIGITS, "label": "label", "classes": []}))
    code = f"""
import json, sys
from pathlib import Path
from tfopt.component import find
from tfopt.errors import ComponentError
errors = []
for settings in json.loads(sys.argv[1]):
    settings = {{"examples": {str(examples)!r}, "backbones": ["MobileNetV2 0.35"]}} | settings
    try:
        find("compare_backbones")({str(tmp_path / "comparison")!r}, {str(tmp_path / "chosen")!r}, **settings)
    except ComponentError as error:
        errors.append(str(error))
assert not {{"tensorflow", "keras", "apache_beam"}} & set(sys.modules)
Path({str(errors)!r}).write_text(json.dumps(errors))
"""
    has_tensorrt = importlib.util.find_spec("tensorrt")
    rows = [row for row in REFUSED if not (has_tensorrt and row[0].get("formats"))]
    subprocess.run([sys.executable, "-c", code, json.dumps([settings for settings, _, _ in rows])], check=True)
    for text, (settings, received, fix) in zip(json.loads(errors.read_text()), rows, strict=True):
        first, *_, last = text.splitlines()
        assert re.search(received, first), (settings, text)
        assert re.search(fix, last), (settings, text)
    assert {path.name for path in tmp_path.iterdir()} == {"examples", "errors.json"}


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("MobilNetV2", "did you mean .*MobileNetV2"),
        ("MobileNetV2 wide", "MobileNetV2 0.5"),
        ("MobileNetV2 0", "MobileNetV2 0.5"),
        ("MobileNetV2 0.5 0.5", "MobileNetV2 0.5"),
        ("ResNet50 0.5", "ResNet50"),
        ("", "known: "),
    ],
)
def test_invalid_backbone_is_refused_with_a_suggestion(name: str, fix: str):
    with pytest.raises(ComponentError, match=f"how to fix: .*{fix}"):
        read_backbones(["ResNet50", name])


def test_size_and_classes_of_examples_without_a_manifest():
    images = {"image": FeatureStatistics("float32", [1024])}
    facts = ExamplesManifest(features=images | {"label": FeatureStatistics("int64", [1])})
    assert image_size(facts, "image", (32, 32, 1)) == (32, 32, 1)
    for size in ((8, 8, 1), None):
        with pytest.raises(ComponentError, match="has 1024 values"):
            image_size(facts, "image", size)
    assert count_classes(facts, "classification", "label", 7) == 7
    with pytest.raises(ComponentError, match="classes is not given"):
        count_classes(facts, "classification", "label", None)
    assert count_classes(facts, "regression", "label", None) == 1
    numbers = ExamplesManifest(features=images | {"label": FeatureStatistics("float32", [3])})
    assert count_classes(numbers, "regression", "label", None) == 3
    with pytest.raises(ComponentError, match="is float32"):
        count_classes(numbers, "classification", "label", 7)
    digits = parse(ExamplesManifest, {"features": DIGITS}, "examples.json")
    assert count_classes(digits, "classification", "label", None) == 10
    named = replace(digits, label="label", classes=["cat", "dog", *"abcdefghij"])
    assert count_classes(named, "classification", "label", None) == 12
