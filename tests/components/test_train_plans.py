"""Test training plans: they are followed, and the log and the model card report if they were measured elsewhere."""

import json
import logging
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.components.train_modules import LINEAR, write
from tfopt.artifacts import TrainingPlan
from tfopt.components.profile_training.component import profile_training
from tfopt.components.train.component import train
from tfopt.components.train.parameters import Settings, apply_plan
from tfopt.measurement.machine_fingerprint import fingerprint


def test_a_plan_of_another_machine_is_followed_and_the_differences_are_reported(tmp_path, digits_examples, caplog):
    there = fingerprint() | {"gpus": [{"name": "NVIDIA L4"}]}
    there["versions"] = there["versions"] | {"tensorflow": "2.15.0"}
    card = trained(tmp_path, digits_examples, {"settings": {"prefetch": 4}, "environment": there})
    assert card["planned"] == {"prefetch": 4}
    assert [each.split(" became ")[0] for each in card["planned_elsewhere"]] == ["GPUs NVIDIA L4", "tensorflow 2.15.0"]
    warning = next(record for record in caplog.records if "may not fit this machine" in record.message)
    assert warning.levelno == logging.WARNING
    assert all(each in warning.message for each in card["planned_elsewhere"])


@pytest.mark.parametrize(
    ("content", "elsewhere"),
    [({"environment": fingerprint()}, []), ({}, ["it does not name the machine"])],
    ids=["of this machine", "of who knows where"],
)
def test_a_plan_without_an_environment_counts_as_measured_elsewhere(content, elsewhere, caplog, tmp_path):
    TrainingPlan(tmp_path / "plan").write({"settings": {"prefetch": 4}} | content)
    usual = Settings(**{each.name: train.parameters[each.name].default for each in fields(Settings)})
    settings, facts = apply_plan(TrainingPlan(tmp_path / "plan"), usual, train.parameters)
    assert settings == replace(usual, prefetch=4)
    assert facts == {"planned": {"prefetch": 4}, "planned_elsewhere": elsewhere}
    assert ("may not fit this machine" in caplog.text) is bool(elsewhere)


@pytest.mark.nightly
def test_a_plan_that_was_profiled_here_has_no_differences(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", LINEAR)
    profile_training(digits_examples, module, tmp_path / "measured", seconds=0.2, rounds=8)
    content = TrainingPlan(tmp_path / "measured").read()
    assert content["environment"]["cpu"]["model"]
    assert trained(tmp_path, digits_examples, content)["planned_elsewhere"] == []


def trained(folder: Path, examples: Path, plan: dict) -> dict:
    """Return the model card of a model trained with a plan."""
    TrainingPlan(folder / "plan").write(plan)
    made = train(examples, write(folder / "m.py", LINEAR), folder / "out", folder / "plan", epochs=1)["trained"]
    return json.loads((Path(made.uri) / "model_card.json").read_text())
