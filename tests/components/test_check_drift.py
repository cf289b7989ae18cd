"""Test check_drift: planted drifts on a real int8 model, its exit codes, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.components.exporters import ONNX, OPENVINO, TFLITE, Exporter
from tests.conftest import write_examples
from tfopt.artifacts import Drift, Examples, KerasModel, Model
from tfopt.cli.main import main
from tfopt.components.check_drift.decision import decide
from tfopt.components.check_drift.graph_levels import FloatRange
from tfopt.components.check_drift.levels import Levels
from tfopt.components.check_drift.parameters import DriftTest
from tfopt.components.check_drift.samples import compare_samples
from tfopt.components.quantize_graph.component import quantize_graph
from tfopt.errors import ComponentError
from tfopt.reports.drift_report import DriftReport

EVAL = 397  # images of the split eval
TEST = DriftTest(limit=500)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels, those of the split eval first."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(images))[::-1]
    return images[rows].reshape(-1, 8, 8, 1).astype(np.float32), labels[rows]


@pytest.fixture
def check(digits_model, digits_examples, exported_digits, tmp_path):
    """Return a function that checks images against the reference of the digits, in this process."""

    def run(images: np.ndarray, exporter: Exporter | None = TFLITE, *, has_parent: bool = True) -> DriftReport:
        if exporter:
            served = Model(exported_digits(exporter, "int8")[0])
        else:
            served = quantize_graph(model=digits_model, examples=digits_examples, quantized=tmp_path / "8 bits")[
                "quantized"
            ]
        parent, reference = KerasModel(digits_model) if has_parent else None, Examples(digits_examples)
        samples = compare_samples(served, record(images, tmp_path), reference, parent, TEST)
        return decide(samples, served, reference, parent, TEST)

    return run


def record(images: np.ndarray, folder: Path) -> Path:
    rows = [{"instances": [{"image": image.tolist()}]} for image in images]
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "requests.jsonl"


def test_requests_like_the_reference_need_nothing(check, digits):
    report = check(digits[0][:EVAL])
    assert (report.decision, report.reasons) == ("nothing", [])
    assert {change.kind for change in report.changes} >= {"saturation", "class", "distribution", "repeated"}


def test_brighter_images_need_other_ranges(check, digits):
    report = check(2 * digits[0][:EVAL])
    assert report.decision == "recalibrate"
    assert any("8-bit range" in reason for reason in report.reasons) and "parent's" in report.reasons[-1]


@pytest.mark.parametrize("format", ["onnx", pytest.param("openvino", marks=pytest.mark.nightly), "quantized"])
def test_without_the_parent_saturation_decides(format, check, digits):
    exporter = {"onnx": ONNX, "openvino": OPENVINO}.get(format)
    report = check(2 * digits[0][:EVAL], exporter, has_parent=False)
    assert report.decision == "recalibrate"
    layer = "rescaling_1/add" if format == "quantized" else "image"
    assert f"{layer}: values at the ends of the 8-bit range" in report.reasons[0]
    assert "without the parent" in report.notes[0]


@pytest.mark.parametrize("drift", ["class balance", pytest.param("sensor saturation", marks=pytest.mark.nightly)])
def test_drifts_that_no_range_repairs_need_a_training(check, digits, drift):
    images, labels = digits
    if drift == "class balance":
        images = images[(labels == 3) | (np.arange(len(labels)) % 6 == 0)]
        expected = "class 3: share of the answers"
    else:
        images = np.minimum(images[:EVAL], 6)
        expected = "records with the same value (value 6)"
    report = check(images, has_parent=False)
    assert report.decision == "retrain"
    assert any(expected in reason for reason in report.reasons), report.reasons


def test_few_requests_are_refused(check, digits):
    with pytest.raises(ComponentError, match="99 records") as error:
        check(digits[0][:99])
    assert "min_records=100" in error.value.expected


def test_the_command_reports_a_missing_input(digits_examples, exported_digits, tmp_path):
    """All requests lack the only input of the model."""
    recording = tmp_path / "requests.jsonl"
    recording.write_text("\n".join([json.dumps({"inputs": {}})] * 120))
    words = ["check_drift", "--model", str(exported_digits(TFLITE, "int8")[0]), "--recording", str(recording)]
    words += ["--reference", str(digits_examples), "--drift", str(tmp_path / "drift")]
    assert main([*words, "--detailed-exitcode"]) == 7
    drift = Drift(tmp_path / "drift")
    assert drift.load().reasons == ["image: requests without the input, 100.00% instead of 0.00%"]
    assert drift.load().decision == "retrain" and "retrain" in (drift.path / "report.html").read_text()


def test_levels_at_zero_are_not_saturated():
    """A ReLU has the lowest level for zero; without it both ends count."""
    values = np.array([-128, -128, 0, 127], np.int8)
    assert Levels.of("relu", np.int8, -128).share(values) == 0.25
    assert Levels.of("sum", np.int8, 3).share(values) == 0.75
    values = np.array([0, 0, 1, 12.73, 99], np.float32)
    assert FloatRange("relu", 0.0, 12.75, 256).share(values) == 0.4
    assert FloatRange("sum", -0.01, 12.74, 256).share(values) == 0.8


def test_records_without_a_feature_are_counted(digits_examples, exported_digits, tmp_path):
    write_examples(tmp_path / "records" / "a.gz", {"other": np.zeros((120, 3))})
    model = Model(exported_digits(TFLITE, "int8")[0])
    samples = compare_samples(model, tmp_path / "records", Examples(digits_examples), None, TEST)
    assert samples.served.lacking == {"image": 120}
