"""Test the advice of `inspect_model`: its rules, order and commands, and that gains are those of docs/benchmarks.md."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tfopt import keras_models
from tfopt.artifacts import Inspection, Model
from tfopt.cli.main import main
from tfopt.component import find
from tfopt.components.inspect_model import advice
from tfopt.components.inspect_model.component import inspect_model
from tfopt.reports.inspection_report import InspectionReport, LighterBackbone

ROOT = Path(__file__).parents[2]
DRAW = np.random.default_rng(0)


@pytest.fixture(scope="module")
def inspection(tmp_path_factory) -> Inspection:
    """Inspect a small image model with one batch norm that can be folded."""
    import keras
    from keras import layers

    image = layers.Input((16, 16, 3), name="image")
    flow = layers.BatchNormalization()(layers.Conv2D(8, 3, use_bias=False)(image))
    flow = layers.GlobalAveragePooling2D()(layers.ReLU()(flow))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="scores")(flow))
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.set_weights([DRAW.uniform(0.5, 2, weights.shape) for weights in layer.get_weights()])
    folder = tmp_path_factory.mktemp("advice")
    keras_models.save(model, folder / "a model")
    return inspect_model(model=folder / "a model", inspection=folder / "inspection")["inspection"]


@pytest.fixture
def report(inspection: Inspection) -> InspectionReport:
    return inspection.load()


@pytest.fixture
def model(inspection: Inspection) -> Model:
    return Model.open(inspection.path.parent / "a model")


def large(report: InspectionReport, **changes: object) -> InspectionReport:
    """Return the report of a model with more parameters."""
    return replace(report, **{"parameters": replace(report.parameters, count=10**6), **changes})


def names(report: InspectionReport, model: Model) -> list[str]:
    """Return component and precision of each advice."""
    texts = [item.command for item in advice.advise(report, model)]
    return [" ".join(re.findall(r"^tfopt (\w+)|--(?:precision (\w+)|(sparse)$)", text)[-1]).strip() for text in texts]


def test_text_and_page_end_with_the_advice(inspection: Inspection):
    (first, *_), text = inspection.load().advice, (inspection.path / "inspection.txt").read_text()
    assert f"next           1. {first.command}\n                    {first.why}\n" in text
    page = (inspection.path / "report.html").read_text()
    assert "What to do next" in page and "--pattern channel" in page
    assert page.index("What to do next") > page.index("Lighter backbones")


def test_a_small_model_is_not_advised_to_become_int8(report: InspectionReport, model: Model):
    assert names(report, model) == ["prune", "fold_batch_norm", "dynamic"]


def test_the_largest_measured_gain_comes_first(report: InspectionReport, model: Model):
    assert names(large(report), model) == ["int8", "prune", "fold_batch_norm", "dynamic"]
    half = large(report, quantizable=replace(report.quantizable, flops=0.55, left_out={"Sin": 3}))
    assert names(half, model) == ["prune", "int8", "fold_batch_norm", "dynamic"]
    assert "55% of the work has integer kernels, not Sin" in advice.advise(half, model)[1].why
    little = large(report, quantizable=replace(report.quantizable, flops=0.4))
    assert "int8" not in names(little, model)


def test_a_model_without_keras_form_is_not_advised_to_be_fine_tuned(report: InspectionReport, inspection: Inspection):
    served = Model.open(inspection.path.parent / "a model" / "Format-Serving")
    assert not served.keras
    assert names(large(report), served) == ["int8", "fold_batch_norm", "dynamic"]


def test_backbones_and_zeros_have_rules(report: InspectionReport, model: Model):
    lighter = [LighterBackbone("larger", 10**5, 40.0), LighterBackbone("smaller", 10**5, 20.0)]
    backbones = replace(report.backbones, task="image classification", fitting=lighter)
    changed = large(report, backbones=backbones, sparsity=replace(report.sparsity, fraction=0.75))
    advised = advice.advise(changed, model)
    assert names(changed, model) == ["int8", "prune", "compare_backbones", "sparse", "fold_batch_norm", "dynamic"]
    assert "2 backbones need less: 20 to 40 million FLOP" in advised[2].why
    assert "75% of the weights are zero" in advised[3].why


def test_commands_name_what_the_components_declare(report: InspectionReport, model: Model):
    lighter = [LighterBackbone("smaller", 10**5, 20.0)]
    backbones = replace(report.backbones, task="image classification", fitting=lighter)
    for item in advice.advise(
        large(report, backbones=backbones, sparsity=replace(report.sparsity, fraction=0.75)), model
    ):
        program, name, *words = shlex.split(item.command)
        component, passed = find(name), {word[2:] for word in words if word.startswith("--")}
        assert program == "tfopt"
        assert passed <= {*component.inputs, *component.outputs, *component.parameters}
        required = {port.name for port in component.inputs.values() if not port.optional} | {*component.outputs}
        required |= {one.name for one in component.parameters.values() if one.required}
        assert required <= passed


def test_an_advised_command_runs(inspection: Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (command,) = (item.command for item in inspection.load().advice if "fold_batch_norm" in item.command)
    monkeypatch.chdir(tmp_path)
    assert not main(shlex.split(command)[1:])
    assert (tmp_path / "folded" / "Format-Serving").is_dir()


@pytest.mark.parametrize("column", ["speed", "size"])
def test_gains_are_those_of_the_benchmark_results(column: str):
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    section = text.partition("## Shrinking")[2].partition("\n## ")[0]
    tables = [[]]
    for line in section.splitlines():
        if line.startswith("| technique |"):
            tables.append([])
        if line.startswith("| ") and "---" not in line:
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    values: dict[str, list[float]] = {}
    for head, *rows in tables[1:]:
        for row in rows:
            if len(row) == len(head) and "TFLite" in head:  # the other tables have no speed
                cells = dict(zip(head, row, strict=True))
                cell = cells["TFLite" if column == "speed" else "smaller"]
                kilobytes = float(rows[0][head.index("size")].split()[0]) * (
                    1000 if "MB" in rows[0][head.index("size")] else 1
                )
                if cell != "-" and not (row[0] == "int8" and kilobytes < 4 * advice.FEW_PARAMETERS / 1000):
                    values.setdefault(row[0], []).append(float(cell.split("x")[0]))
    ranges = {
        "speed": [advice.INT8_SPEED, advice.SLIM_SPEED],
        "size": [advice.DYNAMIC_SIZE, advice.SPARSE_SIZE],
    }[column]
    for measured in ranges:
        assert (min(values[measured.technique]), max(values[measured.technique])) == (measured.low, measured.high)
