"""Test `profile_training`: the bottleneck, the plan, the report, and `train` with a plan."""

import dataclasses
import json
import os
import re
from pathlib import Path
from unittest import mock

import pytest

from tests.chart_boxes import TEXT_OVERLAPS
from tests.chromium import measure
from tests.components.train_modules import LINEAR, SMALL, write
from tfopt.artifacts import TrainingPlan
from tfopt.components.profile_training import steps
from tfopt.components.profile_training.bottleneck import STAGES, StepTimes, find_bottleneck
from tfopt.components.profile_training.component import profile_training
from tfopt.components.profile_training.profile import PARTS, choose_settings
from tfopt.components.profile_training.report import render_report, write_findings
from tfopt.components.profile_training.steps import Epochs
from tfopt.components.profile_training.training_variant import (
    TrainingVariant,
    Variation,
    combine,
    list_variations,
)
from tfopt.components.profile_training.worker import Worker
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.reports.benchmark_report import SpeedupEstimate
from tfopt.reports.training_plan import PartTime, StepParts, TrainingPlanReport, VariationResult

SLOW = """
import time
import keras
import tensorflow as tf
from keras import layers

class Slow(layers.Layer):
    def call(self, image):
        def wait(values):
            time.sleep(0.03)
            return values
        return tf.ensure_shape(tf.py_function(wait, [image], tf.float32), image.shape)
    def compute_output_shape(self, shape):
        return shape

def preprocess(features):
    return {"image": Slow()(features["image"])}

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    model = keras.Model(image, layers.Dense(10, activation="softmax")(layers.Flatten()(image)))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model
"""
TIMES = StepTimes(
    batch_size=64, prefetch=2, step=10, model=10, graph=9.5, larger=38, usual=None, input=1, cached=False, eager=False,
    loops=[], stages={"read": 0.2, "parse": 0.4, "preprocess": 0.1, "batch": 0.3}, spent={"MatMul": 9.0}, forward=4.0,
    epoch=100, beginning=0,
)  # fmt: skip
FACTS = {"supported": ["float32", "mixed_bfloat16"], "jit_compile": False, "gpus": [], "odd_sizes": []}
BASE = TrainingVariant(examples="e", module="m", seed=0, precision="float32", jit_compile="off", cache="off")


def list_model_variations() -> list[Variation]:
    """List those of a slow model, with both settings of oneDNN: the one that the test suite uses would be left out."""
    with mock.patch.dict(os.environ):
        os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)
        return list_variations("model", BASE, TIMES, FACTS)


def test_the_plan_contains_only_faster_settings_of_train_and_findings_report_the_others():
    variations = list_model_variations()
    assert {one.name: one.where for one in variations} == {
        "mixed bfloat16": "plan",
        "compiled by XLA": "module",
        "oneDNN on": "environment",
        "oneDNN off": "environment",
        "batches of 256": "batch",
    }
    results = [measured(one, 2.0) for one in variations]
    assert choose_settings(BASE, variations, results) == {"precision": "mixed_bfloat16"}
    assert choose_settings(BASE, variations, [measured(one, 1.0) for one in variations]) == {}
    settings = choose_settings(BASE, variations, results)
    findings = write_findings(find_bottleneck(TIMES), TIMES, results, FACTS, settings)
    texts = [finding.text for finding in findings]
    assert texts[0].startswith("Bound by the model: 95% of a step of 10 ms")
    assert "Mixed bfloat16: faster, 2.00x (1.98x to 2.02x); it is in the plan." in texts
    assert any("pass deterministic=False" in text for text in texts)
    free = dataclasses.replace(BASE, deterministic=False)
    (compiled,) = [one for one in list_variations("model", free, TIMES, FACTS) if one.name == "compiled by XLA"]
    assert compiled.where == "plan"
    assert choose_settings(free, [compiled], [measured(compiled, 1.5)]) == {"jit_compile": "on"}


def test_combine_joins_settings_that_are_faster_alone():
    memory, disk, ready = list_variations("slow reading", dataclasses.replace(BASE, prefetch=0), TIMES, FACTS)
    base = dataclasses.replace(BASE, prefetch=0)
    together = combine(base, [memory, disk, ready])
    assert together.variant == dataclasses.replace(base, cache="memory", prefetch=2)
    assert combine(base, [memory, disk]) is None
    assert combine(base, [memory]) is None


def test_longer_epochs_are_tried_against_short_ones_and_the_finding_explains_how_to_get_them():
    longer, *others = list_variations("short epochs", BASE, TIMES, FACTS)
    assert longer.variant == dataclasses.replace(BASE, repeated=16)
    assert [one.variant.cache for one in others[:2]] == ["memory", "disk"]
    named = dataclasses.replace(find_bottleneck(TIMES), name="short epochs")
    findings = write_findings(named, TIMES, [measured(longer, 3.0)], FACTS, {})
    assert any(
        finding.text.startswith("Epochs 16 times as long: faster, 3.00x")
        and "use one iterator over dataset.repeat()" in finding.text
        for finding in findings
    )
    assert choose_settings(BASE, [longer], [measured(longer, 3.0)]) == {}


def test_a_turn_runs_whole_epochs_from_their_beginning():
    seen = []
    epochs = Epochs([1, 2, 3], lambda batches: seen.append(next(batches)), calls=3)
    epochs.run(1)
    epochs.fill(10.0, cached=True)
    assert seen == [1, 2, 3, 1, 2, 3]
    epochs.run(1)
    assert epochs.turn(1e-9, whole=True) > 0
    assert seen[6:] == [1, 1, 2, 3]


@pytest.mark.parametrize(("seconds", "longer"), [([5, 1, 1], 4), ([5], 5)])
def test_beginning_is_the_extra_time_of_the_first_call_of_an_epoch(monkeypatch, seconds, longer):
    clock = [0]
    monkeypatch.setattr(steps.time, "perf_counter", lambda: clock[0])
    epochs = Epochs(seconds, lambda batches: clock.append(clock.pop() + next(batches)), calls=len(seconds))
    assert epochs.beginning() == 0
    epochs.fill(10.0, cached=True)
    epochs.turn(0.1, whole=True)
    assert epochs.beginning() == longer


@pytest.mark.nightly
def test_a_planted_bottleneck_is_found_planned_against_and_shown_in_the_report(tmp_path, digits_examples):
    module = write(tmp_path / "slow.py", SLOW)
    parameters = {"cache": "off", "seconds": 0.4, "rounds": 8, "batch_size": 128}
    plan = profile_training(digits_examples, module, tmp_path / "plan", **parameters)["plan"]
    content = plan.read()
    assert plan.load().settings == content["settings"]
    assert content["bottleneck"]["name"] == plan.metadata["bottleneck"] == "slow preprocessing"
    assert content["settings"]["cache"] in ("memory", "disk")
    cached = next(row for row in content["trials"] if row["name"] == "examples cached in memory")
    assert cached["speedup"]["verdict"] == "faster"
    assert cached["speedup"]["low"] > 1.5
    assert [loop["kind"] for loop in content["loops"]] == ["python"]
    assert content["memory_bytes"]["process"] > 1e8
    assert list((tmp_path / "plan" / "trace").rglob("*.xplane.pb"))
    text = (tmp_path / "plan" / "report.html").read_text()
    assert "Slow preprocessing" in text
    assert "time.sleep" not in text
    assert "tf.py_function(wait" in text


@pytest.mark.parametrize("text", [SMALL, pytest.param(SMALL.replace("keras", "tf_keras"), marks=pytest.mark.nightly)])
def test_the_worker_measures_each_part_of_a_step(tmp_path, digits_examples, text):
    module, worker = write(tmp_path / "m.py", text), Worker()
    variant = dataclasses.replace(BASE, examples=str(digits_examples), module=str(module), precision="module")
    facts = worker.build(dataclasses.replace(variant, batch_size=100))
    try:
        assert (facts["count"], facts["epoch"], facts["cached"], facts["eager"]) == (1400, 14, False, False)
        seconds = {part: worker.burst(part, 0.02) for part in PARTS}
        assert worker.beginning() > 0
        assert all(0 < each < 5 for each in seconds.values())
        stages = worker.stages()
        assert list(stages) == list(STAGES)
        assert all(each > 0 for name, each in stages.items() if name != "preprocess")
        assert worker.loops() == []
        times = worker.trace(str(tmp_path / "trace"), 3, {})
        assert set(times.by_part) >= {"optimizer", *facts["weights"]}
        of_the_step = sum(seconds for kind, seconds in times.by_kind.items() if not kind.startswith("ParseExample"))
        assert 0.5 * of_the_step < sum(times.by_part.values()) <= sum(times.by_kind.values())
        assert worker.memory()["process"] > 1e8
    finally:
        worker.close()


@pytest.mark.nightly
def test_a_module_that_raises_is_refused_with_the_users_line(tmp_path, digits_examples):
    broken = SLOW.replace("            time.sleep(0.03)", "            raise ValueError('no such colour')")
    with pytest.raises(ComponentError, match="no such colour"):
        profile_training(digits_examples, write(tmp_path / "m.py", broken), tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


def plan_report(min_effect: float = 0.05) -> TrainingPlanReport:
    """Return a plan with made-up measurements."""
    variations = list_model_variations()
    results = [measured(one, ratio) for one, ratio in zip(variations, (2.0, 0.4, 1.0, 1.02, 3.0), strict=True)]
    results[1] = dataclasses.replace(results[1], speedup=None, error="cannot compile: <lookup>")
    bottleneck = find_bottleneck(TIMES)
    return TrainingPlanReport(
        bottleneck=bottleneck, settings={}, findings=write_findings(bottleneck, TIMES, results, FACTS, {}),
        baseline={"batch_size": 64}, step_ms=StepParts(2.0, 1.0, 7.0, 10.0), stages_ms=dict(TIMES.stages), fixed_ms=1.0,
        parts={"input": PartTime(1.0, None), "model": PartTime(10.0, None)}, operations_ms=dict(TIMES.spent), loops=[],
        trials=results, memory_bytes={"process": 5 * 10**8}, examples=1000, first_step_s=1.5, devices=["CPU"],
        interval={"level": 0.99, "min_effect": min_effect},
    )  # fmt: skip


def test_the_plan_is_written_and_loaded_unchanged(tmp_path):
    artifact = TrainingPlan(tmp_path)
    artifact.write(plan_report())
    assert artifact.load() == plan_report()
    assert artifact.read()["schema_version"] == 1


def test_the_report_is_complete_and_readable_on_a_phone(tmp_path):
    plan = plan_report()
    (tmp_path / "report.html").write_text(render_report(plan, "m.py"))
    scripts = {
        "wide": "(page, view) => page.documentElement.scrollWidth - view.innerWidth",
        "text": "page => page.body.innerText",
        "marks": "page => [...page.querySelectorAll('.narrow circle')].map(c => c.getAttribute('fill'))",
        "overlaps": TEXT_OVERLAPS,
    }
    page = measure(tmp_path / "report.html", scripts, width=390)
    assert page["wide"] <= 0
    assert not page["console"]
    assert page["marks"] == [f"var(--{name})" for name in ("accent", "soft", "soft", "accent")]
    assert page["overlaps"] == []
    assert all(finding.text in page["text"] for finding in plan.findings)
    assert "cannot compile: <lookup>" in page["text"]


@pytest.mark.parametrize("effect", [0.0, 0.05, 1.0])
def test_the_band_of_differences_too_small_to_matter_is_inside_the_chart(effect):
    picture = render_report(plan_report(min_effect=effect), "m.py").split('class="picture speedups wide"')[1]
    band = re.search(
        r'<rect x="([\d.]+)" y="[\d.]+" height="[\d.]+" width="([\d.]+)"[^>]* fill="var\(--band\)"', picture
    )
    panel = re.search(r'<clipPath[^>]*><rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', picture)
    assert 0 < float(band[1]) < float(band[1]) + float(band[2]) < float(panel[1])


def test_train_uses_planned_settings_for_parameters_with_their_default(tmp_path, digits_examples, caplog):
    module = write(tmp_path / "m.py", LINEAR)
    TrainingPlan(tmp_path / "plan").write({"settings": {"prefetch": 4, "cache": "disk", "threads": 1}})
    trained = train(digits_examples, module, tmp_path / "out", tmp_path / "plan", epochs=1, cache="off")["trained"]
    assert trained.metadata["planned"] == {"prefetch": 4, "threads": 1}
    assert "the plan has cache=disk, but off was passed" in caplog.text
    card = json.loads((Path(trained.uri) / "model_card.json").read_text())
    assert card["planned"] == {"prefetch": 4, "threads": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"settings": {"prefetsh": 4}}, "did you mean prefetch"),
        ({"settings": {"cache": "tape"}}, "cache='tape'"),
        ({"settings": [4]}, "PlannedSettings.settings is"),
        ({"settings": {}, "schema_version": 9}, "schema_version 9"),
    ],
)
def test_an_invalid_plan_is_refused(tmp_path, digits_examples, content, message):
    TrainingPlan(tmp_path / "plan").write(content)
    with pytest.raises(ComponentError, match=message):
        train(digits_examples, write(tmp_path / "m.py", LINEAR), tmp_path / "out", tmp_path / "plan")


def measured(variation, value: float) -> VariationResult:
    """Return the result of a variation with a made-up speedup."""
    verdict = "faster" if value > 1.05 else "slower" if value < 0.95 else "within noise"
    speedup = SpeedupEstimate(value, 0.99 * value, 1.01 * value, verdict)
    settings = variation.variant.planned()
    return VariationResult(variation.name, variation.where, variation.note, settings, speedup, 1.0, 10**9, None)
