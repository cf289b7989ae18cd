"""Tests of `compare_backbones`: costs, short training, selection and report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart_boxes import LABEL_PROBLEMS
from tests.chromium import measure_pages
from tests.components.test_compare_backbones_modules import RESOLVED, with_settings
from tests.components.test_compare_backbones_refusals import DIGITS
from tests.components.train_modules import SMALL
from tfopt.artifacts import Comparison, Examples, KerasModel, PythonModule
from tfopt.artifacts.formats import FORMATS
from tfopt.component import Input, find
from tfopt.components.compare_backbones.candidate import Budget, Candidate
from tfopt.components.compare_backbones.choice import missed_cost_goals, select_backbone
from tfopt.components.compare_backbones.compare import build_report, compare
from tfopt.components.compare_backbones.component import compare_backbones
from tfopt.components.compare_backbones.cost import TOLERANCE, measure_costs, write_random_examples
from tfopt.components.compare_backbones.keras_modules import file_name, module_text
from tfopt.components.compare_backbones.parameters import RUNTIMES
from tfopt.components.compare_backbones.report import render_html
from tfopt.components.compare_backbones.short_training import draw_examples
from tfopt.dag.dag import StepOutput
from tfopt.dag.tracing import Steps, trace
from tfopt.data.tfrecords import read_records
from tfopt.errors import ComponentError
from tfopt.keras_models.backbones import read_backbones
from tfopt.kfp.compiler import compile_pipeline
from tfopt.reports.benchmark_report import Latency, ModelBenchmark
from tfopt.reports.comparison_report import ComparisonReport, FailedMeasurement, ShortTraining
from tfopt.reports.evaluation_report import Difference, IntervalMethod, Metric, ModelEvaluation, RecordCounts
from tfopt.reports.inspection_report import (
    BatchNormCount,
    CostBudget,
    FlopCount,
    InspectionReport,
    LighterBackbones,
    OpCoverage,
    ParameterCount,
    Sparsity,
)
from tfopt.reports.report_schema import dump, parse


def benchmark(p50: float, size: int) -> ModelBenchmark:
    """Return a row of ``benchmark.json``."""
    return ModelBenchmark(
        name="model", digest="", format="tflite", error=None, environment={}, sizes={"raw": size, "gzipped": size},
        import_seconds=None, load_seconds=0.1, first_call_seconds=None, runtime_memory_bytes=None,
        peak_memory_bytes=300_000_000, latency={"1": Latency(p50, p50 * 1.1, p50 * 1.5, p50, 100, 0.0, True)},
        throughput={"1": 1000 / p50}, speedup={}, saturation=None, notes=[],
    )  # fmt: skip


def evaluation(accuracy: float, delta: tuple[float, float, float]) -> ModelEvaluation:
    """Return a row of ``evaluation.json``."""
    metric = Metric(accuracy, accuracy - 0.01, accuracy + 0.01, higher_is_better=True)
    confusion = [[300, 100], [100, 500]]  # of 1000 labels 600 are of one class
    return ModelEvaluation(
        name="model", digest="", format="keras", error=None, notes=[], metrics={"accuracy": metric},
        delta={"accuracy": Difference(*delta)}, parity={}, confusion=confusion, roc=[], slices=[],
    )  # fmt: skip


def inspection(parameters: int, flops: int) -> InspectionReport:
    """Return the content of ``inspection.json``."""
    return InspectionReport(
        model="model", digest="", signature="serving_default", inputs={}, outputs={}, assumed={}, ops={},
        parameters=ParameterCount(parameters, 4 * parameters), flops=FlopCount(flops, {}, {}), bytes_moved=0,
        busiest=[], batch_norms=BatchNormCount(0, 0, []), quantizable=OpCoverage(None, None, {}),
        xnnpack=OpCoverage(None, None, {}), channels=[], sparsity=Sparsity(0, 0.0, 0, []),
        backbones=LighterBackbones(None, None, CostBudget(None, None), True, []),
    )  # fmt: skip


def create_candidates(folder: Path, *, trained: bool = True) -> list[Candidate]:
    """Return the best, a light one as good as it, a lighter one that is worse, a heavy one, and one that failed."""
    candidates = []
    table = {
        "ResNet50": (40.0, 90_000_000, 24e6, (0.95, (0.0, 0.0, 0.0))),
        "MobileNetV2": (4.0, 9_000_000, 6e6, (0.949, (-0.001, -0.004, 0.002))),
        "MobileNetV2 0.35": (1.0, 1_600_000, 1e6, (0.90, (-0.05, -0.06, -0.04))),
        "EfficientNetB2": (60.0, 31_000_000, 9e6, (0.93, (-0.02, -0.03, -0.01))),
        "DenseNet121": None,
    }
    for name, numbers in table.items():
        (backbone,) = read_backbones([name])
        module = folder / "modules" / file_name(backbone)
        module.parent.mkdir(exist_ok=True)
        module.write_text(module_text(backbone, RESOLVED))
        candidate = Candidate(backbone, module, folder)
        if numbers is None:
            candidate.error = "building <it>: the process was killed by SIGKILL"
        else:
            p50, size, flops, quality = numbers
            candidate.inspection = inspection(size // 4, int(flops))
            candidate.benchmarks = {
                "saved_model": benchmark(p50 * 3, size),
                "tflite": benchmark(p50, size),
                "onnx": FailedMeasurement("no such op"),
            }
            candidate.evaluation = evaluation(*quality) if trained else None
        candidates.append(candidate)
    return candidates


TRAINING = ShortTraining(
    epochs=1, records=100, batch_size=32, split="eval", counts=RecordCounts(1000, 1000, 0, {}),
    interval=IntervalMethod("bootstrap", 400, 0.95, 0), best="ResNet50",
)  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, "MobileNetV2"),  # the fastest whose loss is proven to be within the goal
        ({"goals": ["quality max_degradation 10%"]}, "MobileNetV2 0.35"),
        ({"objective": "quality"}, "ResNet50"),
        ({"objective": "quality", "goals": ["latency threshold 5"]}, "MobileNetV2"),
        ({"objective": "quality", "goals": ["size threshold 2e6"]}, "MobileNetV2 0.35"),
        ({"goals": ["quality max_degradation 0.3%"]}, "ResNet50"),  # not proven for the light one, whose loss is 0.1 %
        ({"goals": ["quality max_degradation 0.3%"], "confidence": "point"}, "MobileNetV2"),
        ({"goals": ["accuracy threshold 0.945"], "confidence": "point"}, "MobileNetV2"),
        ({"goals": ["latency min_improvement 95%"]}, "MobileNetV2 0.35"),  # compared with the best after training
    ],
)
def test_best_at_the_objective_that_meets_the_goals_is_selected(settings, chosen, tmp_path):
    choice = select_backbone(create_candidates(tmp_path), with_settings(**settings), TRAINING)
    assert choice.candidate.name == chosen
    assert choice.reason.startswith(f"{chosen}: ")
    assert not choice.reasons[chosen]
    assert choice.reasons["DenseNet121"] == ["building <it>: the process was killed by SIGKILL"]


def test_front_holds_the_non_dominated_backbones(tmp_path):
    with_quality = select_backbone(create_candidates(tmp_path), RESOLVED, TRAINING)
    assert with_quality.front == {"ResNet50", "MobileNetV2", "MobileNetV2 0.35"}
    assert select_backbone(create_candidates(tmp_path, trained=False), RESOLVED, None).front == {"MobileNetV2 0.35"}


def test_without_examples_the_selection_considers_only_costs(tmp_path):
    choice = select_backbone(create_candidates(tmp_path, trained=False), RESOLVED, None)
    assert choice.candidate.name == "MobileNetV2 0.35"
    assert choice.reason == "MobileNetV2 0.35: 1.00 ms in tflite, 1.60 MB; its quality is unknown."


def test_if_none_meets_the_goals_a_trained_one_with_the_fewest_misses_is_selected(tmp_path):
    candidates = create_candidates(tmp_path)
    candidates[2].untrained, candidates[2].evaluation = "latency is 1 ms; the goal asks for at most 0.1 ms", None
    resolved = with_settings(goals=("latency threshold 0.1", "accuracy threshold 0.99", "size threshold 1e7"))
    choice = select_backbone(candidates, resolved, TRAINING)
    assert choice.candidate.name == "MobileNetV2"  # misses two of three; the untrained one misses only one
    assert len(choice.reasons["MobileNetV2"]) == 2
    assert "No backbone meets every goal" in choice.reason
    failed = [candidate for candidate in candidates if candidate.error]
    with pytest.raises(ComponentError, match=r"DenseNet121: building .*SIGKILL"):
        select_backbone(failed, resolved, None)


@pytest.mark.parametrize(
    ("metric", "confusion", "best", "warning"),
    [
        ("accuracy", [[300, 100], [100, 500]], 0.60, "accuracy 60.00%"),  # 0.59 to 0.61
        ("accuracy", [[300, 100], [100, 500]], 0.62, ""),
        ("accuracy", [], 0.60, ""),  # too many classes for a confusion matrix
        ("auc", [[300, 100], [100, 500]], 0.505, "auc 0.5"),
        ("log_loss", [[300, 100], [100, 500]], 0.5, ""),
    ],
)
def test_quality_at_chance_level_is_a_warning(metric, confusion, best, warning, tmp_path):
    candidates = create_candidates(tmp_path)
    for number, candidate in enumerate(candidate for candidate in candidates if candidate.evaluation):
        row = evaluation(best - number / 10, (0.0, 0.0, 0.0))
        candidate.evaluation = replace(
            row,
            confusion=confusion,
            metrics={metric: row.metrics["accuracy"]},
            delta={metric: row.delta["accuracy"]},
        )
    reason = select_backbone(candidates, with_settings(goals=()), TRAINING).reason
    assert ("constant predictions" in reason) == bool(warning)
    assert warning in reason


def test_missed_cost_goals_are_found_before_training(tmp_path):
    candidates = {candidate.name: candidate for candidate in create_candidates(tmp_path, trained=False)}
    resolved = with_settings(goals=("latency threshold 5", "quality max_degradation 1%"))
    assert missed_cost_goals(candidates["MobileNetV2"], resolved) == []
    expected = ["latency is 40.0 ms; the goal asks for at most 5.00 ms"]
    assert missed_cost_goals(candidates["ResNet50"], resolved) == expected
    assert missed_cost_goals(candidates["DenseNet121"], resolved) == [candidates["DenseNet121"].error]


CHART = """page => [...page.querySelectorAll("svg.wide circle")].map(c => [
  c.textContent, c.getAttribute("fill"), c.getAttribute("stroke"), +c.getAttribute("cx"), +c.getAttribute("cy")])"""
LABELS = {"problems": LABEL_PROBLEMS}
TABLE_ROWS = "page => [...page.querySelectorAll('#backbones tbody tr')].map(r => r.innerText)"
OVERFLOW = "page => page.documentElement.scrollWidth > page.documentElement.clientWidth"


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> dict[bool, dict[str, Any]]:
    """Candidates, choice, report and measured page of backbones that were trained, and of others."""
    results, resolved = {}, with_settings(formats=("saved_model", "tflite", "onnx"))
    for trained in (True, False):
        folder, training = tmp_path_factory.mktemp("compared"), TRAINING if trained else None
        candidates = create_candidates(folder, trained=trained)
        choice = select_backbone(candidates, resolved, training)
        report = build_report(resolved, candidates, training, choice, {"cpu": {"model": "a <CPU>"}}, folder)
        (folder / "report.html").write_text(render_html(report))
        results[trained] = {
            "candidates": candidates,
            "choice": choice,
            "report": report,
            "page": folder / "report.html",
        }
    pages = [result["page"] for result in results.values()]
    scripts = {"chart": CHART, "rows": TABLE_ROWS, "overflow": OVERFLOW, **LABELS}
    desktop, phone = measure_pages(pages, scripts, [1200]), measure_pages(pages, scripts, [360], dark=True)
    for result in results.values():
        result |= {"desktop": desktop[result["page"]][1200], "phone": phone[result["page"]][360]}
    return results


@pytest.mark.parametrize("trained", [True, False])
def test_html_report_shows_every_backbone_and_the_front(trained: bool, compared):
    candidates, choice, report, _, desktop, phone = compared[trained].values()
    assert desktop["console"] == phone["console"] == []
    assert not desktop["overflow"]
    assert not phone["overflow"]
    assert desktop["problems"] == phone["problems"] == []
    bubbles = {tooltip.split(",")[0]: facts for tooltip, *facts in desktop["chart"]}
    assert bubbles.keys() == {"ResNet50", "MobileNetV2", "MobileNetV2 0.35", "EfficientNetB2"}
    assert {name for name, (fill, *_) in bubbles.items() if fill != "var(--card)"} == choice.front
    assert [name for name, (_, stroke, *_) in bubbles.items() if stroke == "var(--accent)"] == [choice.candidate.name]
    assert bubbles["MobileNetV2 0.35"][2] < bubbles["MobileNetV2"][2] < bubbles["ResNet50"][2]  # faster to the left
    is_higher = bubbles["ResNet50"][3] < bubbles["MobileNetV2 0.35"][3]
    assert is_higher == trained  # its accuracy is higher, and it is larger
    assert len(desktop["rows"]) == len(candidates)
    assert desktop["rows"][0].startswith(choice.candidate.name)
    assert "building <it>" in desktop["rows"][-1]
    content = json.loads(json.dumps(dump(report), allow_nan=False))
    assert parse(ComparisonReport, content, "comparison.json") == report


def test_failing_backbone_is_a_row_and_the_others_are_measured(tmp_path):
    names = ("MobileNet 0.25", "MobileNetV2 0.35")
    resolved, candidates = with_settings(backbones=names, formats=("tflite",), seconds=0.1), []
    for backbone in resolved.backbones:
        module = tmp_path / file_name(backbone)
        text = module_text(backbone, resolved)
        is_broken = backbone.builder == "MobileNetV2"
        module.write_text(text.replace("weights=None", 'weights="no such file"') if is_broken else SMALL)
        (tmp_path / module.stem).mkdir()
        candidates.append(Candidate(backbone, module, tmp_path / module.stem))
    examples = write_random_examples(tmp_path / "examples", resolved)
    environment = measure_costs(candidates, resolved, examples, Budget(10))
    assert environment["cpu"]
    measured, broken = candidates
    assert broken.error
    assert "no such file" in broken.error
    assert not broken.benchmarks
    assert measured.error is None
    assert measured.fastest_format == "tflite"
    assert measured.inspection.parameters.count == 64 * 10 + 10 + 4 * 64
    assert measured.inspection.flops.not_counted == {}
    assert 0 < measured.latency < 1000


def test_spent_budget_is_an_error(tmp_path):
    resolved = with_settings(backbones=("MobileNetV2 0.35", "ResNet50"), minutes=0.005)
    with pytest.raises(ComponentError, match=r"no backbone could be measured.*(no end after|no budget left)"):
        compare(resolved, None, tmp_path / "comparison", tmp_path / "module.py")


@pytest.mark.nightly
def test_spent_budget_leaves_no_files(tmp_path):
    with pytest.raises(ComponentError, match=r"no backbone could be measured.*(no end after|no budget left)"):
        compare_backbones(
            tmp_path / "comparison", tmp_path / "chosen", backbones=["MobileNetV2 0.35", "ResNet50"], classes=10,
            input_size="32x32x1", minutes=0.1,
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_only_the_training_split_is_reduced_to_the_limit_of_records(digits_examples, tmp_path):
    assert draw_examples(str(digits_examples), str(tmp_path), 1400, 0) == str(digits_examples)
    drawn = Examples(draw_examples(str(digits_examples), str(tmp_path / "a"), 100, 0))
    again = Examples(draw_examples(str(digits_examples), str(tmp_path / "b"), 100, 0))
    records = list(read_records(drawn.split("train")))
    assert len(set(records)) == 100
    assert set(records) <= set(read_records(Examples(digits_examples).split("train")))
    assert records == list(read_records(again.split("train")))
    assert [*read_records(drawn.split("eval"))] == [*read_records(Examples(digits_examples).split("eval"))]


@pytest.mark.parametrize("name", [name for name in (*RUNTIMES, "tensorrt") if FORMATS[name].exporter])
def test_exporters_accept_the_arguments_that_are_passed(name: str):
    exporter, output = FORMATS[name].exporter, FORMATS[name].exported
    assert list(find(exporter).outputs) == [output]
    assert exporter in compare_backbones.runs
    assert find(exporter).inputs.keys() - {"sensitivities"} == {"model", "examples"}
    assert find(exporter).check({"tolerance": TOLERANCE})["precision"] in ("float32", "fp16")


def test_train_accepts_the_selected_module_in_a_dag(tmp_path):
    def chosen_and_trained(steps: Steps, examples: Input[Examples]) -> None:
        """Select a backbone and train it."""
        comparison = steps.compare_backbones(examples=examples, backbones=["MobileNetV2 0.35"])
        steps.train(examples=examples, module=comparison.outputs["chosen"])

    dag = trace(chosen_and_trained)
    assert dag.steps["train"].inputs["module"] == StepOutput("compare_backbones", "chosen", PythonModule)
    compile_pipeline(dag, tmp_path / "dag.yaml")
    tasks = next(yaml.safe_load_all((tmp_path / "dag.yaml").read_text()))["root"]["dag"]["tasks"]
    wire = tasks["train"]["inputs"]["artifacts"]["module"]["taskOutputArtifact"]
    assert wire == {"outputArtifactKey": "chosen", "producerTask": "compare-backbones"}


@pytest.mark.nightly
def test_two_backbones_are_measured_and_trained_and_train_accepts_the_selected_one(digits_examples, tmp_path):
    examples = tmp_path / "examples"
    examples.mkdir()
    for split in ("train", "eval"):
        (examples / f"Split-{split}").symlink_to(digits_examples / f"Split-{split}")
    manifest = {"features": DIGITS, "label": "label", "classes": [], "splits": {"train": 1400, "eval": 397}}
    (examples / "examples.json").write_text(json.dumps(manifest))
    outputs = compare_backbones(
        tmp_path / "comparison", tmp_path / "chosen", examples, backbones=["MobileNetV2 0.35", "MobileNet 0.25"],
        input_size="32x32x1", epochs=4, seconds=0.8, goals=["quality max_degradation 100%"],
    )  # fmt: skip
    content = outputs["comparison"].read()
    assert isinstance(outputs["comparison"], Comparison)
    assert content["formats"] == ["saved_model", "tflite", "onnx", "openvino"]
    for row in content["backbones"]:
        assert not row["error"]
        assert all(run["latency"]["1"]["p50"] > 0 for run in row["runtimes"].values())
        assert row["fastest"] != "saved_model"
        assert row["metrics"]["accuracy"]["value"] > 0.15
    assert content["training"]["counts"]["evaluated"] == 397
    chosen = next(row for row in content["backbones"] if row["chosen"])
    module = PythonModule.open(tmp_path / "chosen")
    assert module.path.read_text() == (tmp_path / "comparison" / chosen["module"]).read_text()
    trained = find("train")(examples=examples, module=tmp_path / "chosen", trained=tmp_path / "trained", epochs=1)
    assert KerasModel(trained["trained"].path).keras
