"""Light backbones are measured before they are trained, the affordable ones learn, and one is chosen."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.chromium import measure
from tests.components.test_compare_backbones_modules import ASKED
from tests.components.test_compare_backbones_refusals import DIGITS
from tfopt.artifacts import Comparison, Examples, KerasModel, PythonModule
from tfopt.component import Input, find
from tfopt.components.compare_backbones.backbones import read_backbones
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.choice import choose, too_costly
from tfopt.components.compare_backbones.compare import content_of
from tfopt.components.compare_backbones.component import compare_backbones
from tfopt.components.compare_backbones.cost import cost
from tfopt.components.compare_backbones.entry import Entry
from tfopt.components.compare_backbones.keras_modules import file_name, module_text
from tfopt.components.compare_backbones.report import page
from tfopt.components.compare_backbones.short_training import draw
from tfopt.components.compare_backbones.untrained_models import EXPORTERS, LOOSE
from tfopt.dag.dag import StepOutput
from tfopt.dag.tracing import Steps, trace
from tfopt.data.tfrecords import read_records
from tfopt.errors import ComponentError
from tfopt.kfp.compiler import compile_pipeline
from tfopt.measurement.goals import read_goals


def row(p50: float, size: int) -> dict:
    """A row of ``benchmark.json``."""
    latency = {"p50": p50, "p90": p50 * 1.1, "p99": p50 * 1.5, "stable": True}
    return {
        "error": None, "latency": {"1": latency}, "throughput": {"1": 1000 / p50}, "load_seconds": 0.1, "notes": [],
        "sizes": {"raw": size, "gzipped": size}, "peak_memory_bytes": 300_000_000,
    }  # fmt: skip


def learnt(accuracy: float, delta: tuple[float, float, float]) -> dict:
    """A row of ``evaluation.json``."""
    value = {"value": accuracy, "low": accuracy - 0.01, "high": accuracy + 0.01, "higher_is_better": True}
    moved = dict(zip(("value", "low", "high"), delta, strict=True))
    confusion = [[300, 100], [100, 500]]  # of 1000 labels 600 are of one class
    return {"error": None, "metrics": {"accuracy": value}, "delta": {"accuracy": moved}, "confusion": confusion}


def entries(folder: Path, *, trained: bool = True) -> list[Entry]:
    """The best, a light one as good as it, a lighter one that is worse, a heavy one, and one that failed."""
    found = []
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
        module.write_text(module_text(backbone, ASKED))
        entry = Entry(backbone, module, folder)
        if numbers is None:
            entry.error = "building <it>: the process was killed by SIGKILL"
        else:
            p50, size, work, quality = numbers
            entry.counted = {"parameters": {"count": size // 4}, "flops": {"total": int(work), "not_counted": {}}}
            entry.speed = {"saved_model": row(p50 * 3, size), "tflite": row(p50, size), "onnx": {"error": "no such op"}}
            entry.quality = learnt(*quality) if trained else {}
        found.append(entry)
    return found


JUDGED = {"split": "eval", "counts": {"evaluated": 1000}, "interval": {"level": 0.95}, "best": "ResNet50"}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, "MobileNetV2"),  # the fastest that is proven to lose no more than the goal allows
        ({"goals": ["quality max_degradation 10%"]}, "MobileNetV2 0.35"),
        ({"objective": "quality"}, "ResNet50"),
        ({"objective": "quality", "goals": ["latency threshold 5"]}, "MobileNetV2"),
        ({"objective": "quality", "goals": ["size threshold 2e6"]}, "MobileNetV2 0.35"),
        ({"goals": ["quality max_degradation 0.3%"]}, "ResNet50"),  # not proven of the light one, whose loss is 0.1 %
        ({"goals": ["quality max_degradation 0.3%"], "proven": False}, "MobileNetV2"),
        ({"goals": ["accuracy threshold 0.945"], "proven": False}, "MobileNetV2"),
        ({"goals": ["latency min_improvement 95%"]}, "MobileNetV2 0.35"),  # against the one that learnt best
    ],
)
def test_the_best_at_the_objective_of_those_that_meet_the_goals_is_chosen(given, chosen, tmp_path):
    goals = read_goals(given.pop("goals", ["quality max_degradation 1%"]))
    choice = choose(entries(tmp_path), replace(ASKED, goals=goals, **given), JUDGED)
    assert choice.entry.name == chosen
    assert choice.reason.startswith(f"{chosen}: ")
    assert not choice.reasons[chosen]
    assert choice.reasons["DenseNet121"] == ["building <it>: the process was killed by SIGKILL"]


def test_what_nothing_beats_is_on_the_front_and_what_is_beaten_is_not(tmp_path):
    assert choose(entries(tmp_path), ASKED, JUDGED).front == {"ResNet50", "MobileNetV2", "MobileNetV2 0.35"}
    assert choose(entries(tmp_path, trained=False), ASKED, {}).front == {"MobileNetV2 0.35"}


def test_without_examples_the_choice_is_among_costs_and_says_so(tmp_path):
    choice = choose(entries(tmp_path, trained=False), ASKED, {})
    assert choice.entry.name == "MobileNetV2 0.35"
    assert choice.reason == "MobileNetV2 0.35: 1.00 ms in tflite, 1.60 MB; what it learns is not known."


def test_when_none_meets_the_goals_the_nearest_trained_one_is_chosen_with_what_it_misses(tmp_path):
    found = entries(tmp_path)
    found[2].untrained, found[2].quality = "latency is 1 ms; the goal asks for at most 0.1 ms", {}
    asked = replace(ASKED, goals=read_goals(["latency threshold 0.1", "accuracy threshold 0.99", "size threshold 1e7"]))
    choice = choose(found, asked, JUDGED)
    assert choice.entry.name == "MobileNetV2"  # misses two of three, as the one that nobody knows misses one
    assert len(choice.reasons["MobileNetV2"]) == 2
    assert "No backbone meets every goal" in choice.reason
    failed = [entry for entry in found if entry.error]
    with pytest.raises(ComponentError, match=r"DenseNet121: building .*SIGKILL"):
        choose(failed, asked, {})


@pytest.mark.parametrize(
    ("metric", "confusion", "best", "warned"),
    [
        ("accuracy", [[300, 100], [100, 500]], 0.60, "accuracy 60.00%"),  # 0.59 to 0.61
        ("accuracy", [[300, 100], [100, 500]], 0.62, ""),
        ("accuracy", [], 0.60, ""),  # too many classes to be counted
        ("auc", [[300, 100], [100, 500]], 0.505, "auc 0.5"),
        ("log_loss", [[300, 100], [100, 500]], 0.5, ""),
    ],
)
def test_a_choice_of_backbones_that_only_guess_says_so(metric, confusion, best, warned, tmp_path):
    found = entries(tmp_path)
    for number, entry in enumerate(entry for entry in found if entry.quality):
        quality = learnt(best - number / 10, (0.0, 0.0, 0.0))
        entry.quality = {**quality, "confusion": confusion} | {
            name: {metric: quality[name]["accuracy"]} for name in ("metrics", "delta")
        }
    reason = choose(found, replace(ASKED, goals=[]), JUDGED).reason
    assert ("guessing" in reason) == bool(warned)
    assert warned in reason


def test_what_misses_a_goal_on_its_cost_is_known_before_it_learns(tmp_path):
    found = {entry.name: entry for entry in entries(tmp_path, trained=False)}
    asked = replace(ASKED, goals=read_goals(["latency threshold 5", "quality max_degradation 1%"]))
    assert too_costly(found["MobileNetV2"], asked) == []
    assert too_costly(found["ResNet50"], asked) == ["latency is 40.0 ms; the goal asks for at most 5.00 ms"]
    assert too_costly(found["DenseNet121"], asked) == [found["DenseNet121"].error]


PICTURE = """page => [...page.querySelectorAll("svg.wide")].map(svg => ({
  bubbles: [...svg.querySelectorAll(".bubble")].map(b => [b.previousSibling.textContent, b.getAttribute("class"),
    +b.getAttribute("cx"), +b.getAttribute("cy")]),
  names: [...svg.querySelectorAll(".name")].map(n => n.textContent)}))[0]"""
TABLE_ROWS = "page => [...page.querySelectorAll('#backbones tbody tr')].map(r => r.innerText)"
OVERFLOW = "page => page.documentElement.scrollWidth > page.documentElement.clientWidth"


@pytest.mark.parametrize("trained", [True, False])
def test_the_page_shows_every_backbone_and_the_front(trained: bool, tmp_path):
    found = entries(tmp_path, trained=trained)
    asked = replace(ASKED, formats=["saved_model", "tflite", "onnx"])
    content, choice = content_of(asked, found, JUDGED if trained else {}, tmp_path)
    file = tmp_path / "report.html"
    file.write_text(page(content | {"minutes": 1.0, "environment": {"cpu": {"model": "a <CPU>"}}}))
    seen = measure(file, {"picture": PICTURE, "rows": TABLE_ROWS, "overflow": OVERFLOW}, width=1200)
    narrow = measure(file, {"overflow": OVERFLOW}, width=360, dark=True)
    assert seen["console"] == narrow["console"] == []
    assert not seen["overflow"]
    assert not narrow["overflow"]
    bubbles = {said.split(",")[0]: (kind, x, y) for said, kind, x, y in seen["picture"]["bubbles"]}
    assert bubbles.keys() == {"ResNet50", "MobileNetV2", "MobileNetV2 0.35", "EfficientNetB2"}
    assert {name for name, (kind, *_) in bubbles.items() if "front" in kind} == choice.front
    assert [name for name, (kind, *_) in bubbles.items() if "chosen" in kind] == [choice.entry.name]
    assert bubbles["MobileNetV2 0.35"][1] < bubbles["MobileNetV2"][1] < bubbles["ResNet50"][1]  # faster to the left
    higher = bubbles["ResNet50"][2] < bubbles["MobileNetV2 0.35"][2]
    assert higher == trained  # it learnt more, and is larger
    assert len(seen["rows"]) == len(found)
    assert seen["rows"][0].startswith(choice.entry.name)
    assert "building <it>" in seen["rows"][-1]
    json.dumps(content, allow_nan=False)


def test_a_backbone_that_fails_is_a_row_and_the_others_are_measured(tmp_path):
    good, broken = read_backbones(["MobileNet 0.25", "MobileNetV2 0.35"])
    asked, found = replace(ASKED, backbones=[good, broken]), []
    for backbone in asked.backbones:
        module = tmp_path / file_name(backbone)
        text = module_text(backbone, asked)
        module.write_text(text if backbone is good else text.replace("weights=None", 'weights="no such file"'))
        (tmp_path / module.stem).mkdir()
        found.append(Entry(backbone, module, tmp_path / module.stem))
    environment = cost(found, asked, None, Budget(10))
    assert environment["cpu"]
    assert found[1].error
    assert "no such file" in found[1].error
    assert not found[1].speed
    assert found[0].error is None
    assert found[0].fastest == "saved_model"
    assert found[0].counted["parameters"]["count"] > 200_000
    assert found[0].counted["flops"]["not_counted"] == {}
    assert 0 < found[0].latency < 1000


def test_the_budget_ends_it_and_leaves_nothing(tmp_path):
    with pytest.raises(ComponentError, match=r"no backbone could be measured.*no end after"):
        compare_backbones(
            tmp_path / "comparison", tmp_path / "chosen", backbones=["MobileNetV2 0.35", "ResNet50"], classes=10,
            input_size="32x32x1", minutes=0.1,
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_at_most_so_many_records_are_learnt_and_the_judges_stay(digits_examples, tmp_path):
    assert draw(str(digits_examples), str(tmp_path), 1400, 0) == str(digits_examples)
    drawn = Examples(draw(str(digits_examples), str(tmp_path / "a"), 100, 0))
    again = Examples(draw(str(digits_examples), str(tmp_path / "b"), 100, 0))
    records = list(read_records(drawn.split("train")))
    assert len(set(records)) == 100
    assert set(records) <= set(read_records(Examples(digits_examples).split("train")))
    assert records == list(read_records(again.split("train")))
    assert [*read_records(drawn.split("eval"))] == [*read_records(Examples(digits_examples).split("eval"))]


@pytest.mark.parametrize("kind", EXPORTERS)
def test_each_exporter_is_asked_for_what_it_takes(kind: str):
    step, output = EXPORTERS[kind]
    assert list(find(step).outputs) == [output]
    assert find(step).inputs.keys() == {"model", "examples"}
    assert find(step).check({"tolerance": LOOSE})["precision"] in ("float32", "fp16")


def test_the_choice_is_what_train_learns_with_in_one_dag(tmp_path):
    def chosen_and_trained(steps: Steps, examples: Input[Examples]) -> None:
        """Choose a backbone and train it."""
        compared = steps.compare_backbones(examples=examples, backbones=["MobileNetV2 0.35"])
        steps.train(examples=examples, module=compared.outputs["chosen"])

    dag = trace(chosen_and_trained)
    assert dag.steps["train"].inputs["module"] == StepOutput("compare_backbones", "chosen", PythonModule)
    compile_pipeline(dag, tmp_path / "dag.yaml")
    tasks = next(yaml.safe_load_all((tmp_path / "dag.yaml").read_text()))["root"]["dag"]["tasks"]
    wire = tasks["train"]["inputs"]["artifacts"]["module"]["taskOutputArtifact"]
    assert wire == {"outputArtifactKey": "chosen", "producerTask": "compare-backbones"}


@pytest.mark.nightly
def test_two_backbones_are_measured_trained_and_chosen_from_and_train_takes_the_choice(digits_examples, tmp_path):
    examples = tmp_path / "examples"
    examples.mkdir()
    for split in ("train", "eval"):
        (examples / f"Split-{split}").symlink_to(digits_examples / f"Split-{split}")
    told = {"features": DIGITS, "label": "label", "classes": [], "splits": {"train": 1400, "eval": 397}}
    (examples / "examples.json").write_text(json.dumps(told))
    made = compare_backbones(
        tmp_path / "comparison", tmp_path / "chosen", examples, backbones=["MobileNetV2 0.35", "MobileNet 0.25"],
        input_size="32x32x1", epochs=4, seconds=0.8, goals=["quality max_degradation 100%"],
    )  # fmt: skip
    content = made["comparison"].read()
    assert isinstance(made["comparison"], Comparison)
    assert content["formats"] == ["saved_model", "tflite", "onnx", "openvino"]
    for found in content["backbones"]:
        assert not found["error"]
        assert all(run["latency"]["1"]["p50"] > 0 for run in found["runtimes"].values())
        assert found["fastest"] != "saved_model"
        assert found["metrics"]["accuracy"]["value"] > 0.15
    assert content["training"]["counts"]["evaluated"] == 397
    chosen = next(found for found in content["backbones"] if found["chosen"])
    module = PythonModule.open(tmp_path / "chosen")
    assert module.path.read_text() == (tmp_path / "comparison" / chosen["module"]).read_text()
    trained = find("train")(examples=examples, module=tmp_path / "chosen", trained=tmp_path / "trained", epochs=1)
    assert KerasModel(trained["trained"].path).keras
