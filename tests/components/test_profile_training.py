"""`profile_training`: what is longest gets its name, what helps gets into the plan, and `train` follows the plan."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tests.chromium import measure
from tests.components.train_modules import DIGITS, write
from tfopt.artifacts import TrainingPlan
from tfopt.components.profile_training.bottleneck import STAGES, Measured, bottleneck
from tfopt.components.profile_training.component import profile_training
from tfopt.components.profile_training.findings import findings
from tfopt.components.profile_training.profile import PARTS, plan
from tfopt.components.profile_training.report import LEFT, page
from tfopt.components.profile_training.steps import Epochs
from tfopt.components.profile_training.training_variant import Setup
from tfopt.components.profile_training.variations import combined, variations
from tfopt.components.profile_training.worker import Worker
from tfopt.components.train.component import train
from tfopt.errors import ComponentError

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
USUAL = Measured(
    batch_size=64, prefetch=2, step=10, model=10, graph=9.5, larger=38, usual=None, input=1, cached=False, eager=False,
    loops=[], stages={"read": 0.2, "parse": 0.4, "preprocess": 0.1, "batch": 0.3}, spent={"MatMul": 9.0}, forward=4.0,
    epoch=100, beginning=0,
)  # fmt: skip
BUILT = {"supported": ["float32", "mixed_bfloat16"], "jit_compile": False, "gpus": [], "odd_sizes": []}
BASE = Setup("e", "m", "label", 0, True, 64, "float32", "off", "off", 0, 0, 0, 2)


def test_only_what_train_can_be_given_and_proved_faster_is_planned_and_the_rest_is_told():
    tried = variations("model", BASE, USUAL, BUILT)
    assert {one.name: one.where for one in tried} == {
        "mixed bfloat16": "plan",
        "compiled by XLA": "module",
        "oneDNN on": "environment",
        "oneDNN off": "environment",
        "batches of 256": "batch",
    }
    rows = [row(one, 2.0) for one in tried]
    assert plan(BASE, tried, rows) == {"precision": "mixed_bfloat16"}
    assert plan(BASE, tried, [row(one, 1.0) for one in tried]) == {}
    said = [one["text"] for one in findings(bottleneck(USUAL), USUAL, rows, BUILT, plan(BASE, tried, rows))]
    assert said[0].startswith("Bound by the model: 95% of a step of 10 ms")
    assert "Mixed bfloat16: faster, 2.00x (1.98x to 2.02x); it is in the plan." in said
    assert any("pass deterministic=False" in one for one in said)
    free = dataclasses.replace(BASE, deterministic=False)
    (compiled,) = [one for one in variations("model", free, USUAL, BUILT) if one.name == "compiled by XLA"]
    assert compiled.where == "plan"
    assert plan(free, [compiled], [row(compiled, 1.5)]) == {"jit_compile": "on"}


def test_settings_that_each_proved_faster_are_tried_together():
    memory, disk, ready = variations("slow reading", dataclasses.replace(BASE, prefetch=0), USUAL, BUILT)
    base = dataclasses.replace(BASE, prefetch=0)
    together = combined(base, [memory, disk, ready])
    assert together.setup == dataclasses.replace(base, cache="memory", prefetch=2)
    assert combined(base, [memory, disk]) is None
    assert combined(base, [memory]) is None


def test_against_short_epochs_longer_ones_are_tried_and_who_can_have_them_is_told():
    longer, *others = variations("short epochs", BASE, USUAL, BUILT)
    assert longer.setup == dataclasses.replace(BASE, repeated=16)
    assert [one.setup.cache for one in others[:2]] == ["memory", "disk"]
    named = dataclasses.replace(bottleneck(USUAL), name="short epochs")
    said = [one["text"] for one in findings(named, USUAL, [row(longer, 3.0)], BUILT, {})]
    assert any(
        one.startswith("Epochs 16 times as long: faster, 3.00x") and "keep one iterator over dataset.repeat()" in one
        for one in said
    )
    assert plan(BASE, [longer], [row(longer, 3.0)]) == {}


def test_turns_are_whole_epochs_each_from_its_beginning():
    seen = []
    epochs = Epochs([1, 2, 3], lambda batches: seen.append(next(batches)), calls=3)
    epochs.run(1)
    epochs.fill(10.0, cached=True)
    assert seen == [1, 2, 3, 1, 2, 3]
    epochs.run(1)
    assert epochs.turn(1e-9, whole=True) > 0
    assert seen[6:] == [1, 1, 2, 3]


@pytest.mark.parametrize(("took", "longer"), [([5, 1, 1], 4), ([5], 5)])
def test_the_beginning_of_an_epoch_is_what_its_first_call_takes_longer_than_the_others(monkeypatch, took, longer):
    clock = [0]
    monkeypatch.setattr("tfopt.components.profile_training.steps.time.perf_counter", lambda: clock[0])
    epochs = Epochs(took, lambda batches: clock.append(clock.pop() + next(batches)), calls=len(took))
    assert epochs.beginning() == 0
    epochs.fill(10.0, cached=True)
    epochs.turn(0.1, whole=True)
    assert epochs.beginning() == longer


@pytest.mark.nightly
def test_a_planted_fault_is_named_what_helps_is_planned_and_the_page_says_so(tmp_path, digits_examples):
    module = write(tmp_path / "slow.py", SLOW)
    given = {"cache": "off", "seconds": 0.4, "rounds": 8, "batch_size": 128}
    made = profile_training(digits_examples, module, tmp_path / "plan", **given)["plan"]
    content = made.read()
    assert content["bottleneck"]["name"] == made.metadata["bottleneck"] == "slow preprocessing"
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


@pytest.mark.parametrize("text", [DIGITS, pytest.param(DIGITS.replace("keras", "tf_keras"), marks=pytest.mark.nightly)])
def test_each_part_of_a_step_can_be_run_alone(tmp_path, digits_examples, text):
    module, worker = write(tmp_path / "m.py", text), Worker()
    setup = dataclasses.replace(BASE, examples=str(digits_examples), module=str(module), precision="module")
    built = worker.build(dataclasses.replace(setup, batch_size=100))
    try:
        assert (built["count"], built["epoch"], built["cached"], built["eager"]) == (1400, 14, False, False)
        took = {part: worker.burst(part, 0.02) for part in PARTS}
        assert worker.beginning() > 0
        assert all(0 < seconds < 5 for seconds in took.values())
        stages = worker.stages()
        assert list(stages) == list(STAGES)
        assert all(seconds > 0 for name, seconds in stages.items() if name != "preprocess")
        assert worker.loops() == []
        assert worker.memory()["process"] > 1e8
    finally:
        worker.close()


@pytest.mark.nightly
def test_what_cannot_run_is_refused_with_the_users_line(tmp_path, digits_examples):
    broken = SLOW.replace("            time.sleep(0.03)", "            raise ValueError('no such colour')")
    with pytest.raises(ComponentError, match="no such colour"):
        profile_training(digits_examples, write(tmp_path / "m.py", broken), tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


def made_up() -> dict:
    """What a plan holds, as far as its page shows it."""
    tried = variations("model", BASE, USUAL, BUILT)
    rows = [row(one, ratio) for one, ratio in zip(tried, (2.0, 0.4, 1.0, 1.02, 3.0), strict=True)]
    rows[1] |= {"speedup": None, "error": "cannot compile: <lookup>"}
    named = bottleneck(USUAL)
    return {
        "bottleneck": dataclasses.asdict(named), "findings": findings(named, USUAL, rows, BUILT, {}), "settings": {},
        "baseline": {"batch_size": 64}, "step_ms": {"wait": 2.0, "host": 1.0, "device": 7.0, "all": 10.0},
        "parts": {"input": {"ms": 1.0}, "model": {"ms": 10.0}}, "stages_ms": dict(USUAL.stages), "fixed_ms": 1.0,
        "operations_ms": dict(USUAL.spent), "trials": rows, "memory_bytes": {"process": 5e8}, "examples": 1000,
        "first_step_s": 1.5, "devices": ["CPU"], "interval": {"level": 0.99, "min_effect": 0.05},
    }  # fmt: skip


def test_the_page_is_whole_and_legible_on_a_phone(tmp_path):
    content = made_up()
    (tmp_path / "report.html").write_text(page(content, "m.py"))
    scripts = {
        "wide": "(page, view) => page.documentElement.scrollWidth - view.innerWidth",
        "text": "page => page.body.innerText",
        "marks": "page => [...page.querySelectorAll('svg g')].map(g => g.getAttribute('class'))",
    }
    found = measure(tmp_path / "report.html", scripts, width=390)
    assert found["wide"] <= 0
    assert not found["console"]
    assert found["marks"] == ["faster", "within-noise", "within-noise", "faster"]
    assert all(finding["text"] in found["text"] for finding in content["findings"])
    assert "cannot compile: <lookup>" in found["text"]


@pytest.mark.parametrize("effect", [0.0, 0.05, 1.0])
def test_what_is_too_small_to_matter_lies_within_the_picture(effect):
    shown = page(made_up() | {"interval": {"level": 0.99, "min_effect": effect}}, "m.py")
    assert float(re.search(r'class="band" x="([\d.-]+)"', shown)[1]) > LEFT


def test_train_follows_a_plan_where_nobody_said_otherwise(tmp_path, digits_examples, caplog):
    module = write(tmp_path / "m.py", DIGITS)
    TrainingPlan(tmp_path / "plan").write({"settings": {"prefetch": 4, "cache": "disk", "threads": 1}})
    trained = train(digits_examples, module, tmp_path / "out", tmp_path / "plan", epochs=1, cache="off")["trained"]
    assert trained.metadata["planned"] == {"prefetch": 4, "threads": 1}
    assert "the plan says cache=disk, and off was passed" in caplog.text
    card = json.loads((Path(trained.uri) / "model_card.json").read_text())
    assert card["planned"] == {"prefetch": 4, "threads": 1}


@pytest.mark.parametrize(
    ("settings", "said"), [({"prefetsh": 4}, "did you mean prefetch"), ({"cache": "tape"}, "cache='tape'")]
)
def test_a_plan_that_is_none_is_refused_before_anything_is_read(tmp_path, digits_examples, settings, said):
    TrainingPlan(tmp_path / "plan").write({"settings": settings})
    with pytest.raises(ComponentError, match=said):
        train(digits_examples, write(tmp_path / "m.py", DIGITS), tmp_path / "out", tmp_path / "plan")


def row(variation, value: float) -> dict:
    """As it would have been measured."""
    verdict = "faster" if value > 1.05 else "slower" if value < 0.95 else "within noise"
    return {
        "name": variation.name, "where": variation.where, "note": variation.note, "error": None, "memory_bytes": 1e9,
        "settings": variation.setup.planned(),
        "speedup": {"value": value, "low": 0.99 * value, "high": 1.01 * value, "verdict": verdict},
    }  # fmt: skip
