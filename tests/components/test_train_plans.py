"""A plan is followed wherever it was measured; where that was elsewhere, the log and the card say so."""

import json
import logging
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.components.train_modules import DIGITS, write
from tfopt.artifacts import TrainingPlan
from tfopt.components.profile_training.component import profile_training
from tfopt.components.train.component import train
from tfopt.components.train.settings import Settings, apply_plan
from tfopt.measurement.machine_fingerprint import fingerprint


def test_a_plan_of_another_machine_is_followed_and_the_log_and_the_card_say_what_differs(
    tmp_path, digits_examples, caplog
):
    there = fingerprint() | {"gpus": [{"name": "NVIDIA L4"}]}
    there["versions"] = there["versions"] | {"tensorflow": "2.15.0"}
    found = trained(tmp_path, digits_examples, {"settings": {"prefetch": 4}, "environment": there})
    assert found["planned"] == {"prefetch": 4}
    assert [each.split(" became ")[0] for each in found["planned_elsewhere"]] == ["GPUs NVIDIA L4", "tensorflow 2.15.0"]
    warning = next(record for record in caplog.records if "may not fit this machine" in record.message)
    assert warning.levelno == logging.WARNING
    assert all(each in warning.message for each in found["planned_elsewhere"])


@pytest.mark.parametrize(
    ("content", "elsewhere"),
    [({"environment": fingerprint()}, []), ({}, ["it does not name the machine"])],
    ids=["of this machine", "of who knows where"],
)
def test_a_plan_of_this_machine_is_trusted_and_one_that_says_nothing_is_not(content, elsewhere, caplog, tmp_path):
    TrainingPlan(tmp_path / "plan").write({"settings": {"prefetch": 4}} | content)
    usual = Settings(**{each.name: train.parameters[each.name].default for each in fields(Settings)})
    settings, told = apply_plan(TrainingPlan(tmp_path / "plan"), usual, train.parameters)
    assert settings == replace(usual, prefetch=4)
    assert told == {"planned": {"prefetch": 4}, "planned_elsewhere": elsewhere}
    assert ("may not fit this machine" in caplog.text) is bool(elsewhere)


@pytest.mark.nightly
def test_what_was_profiled_here_is_trusted_here(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", DIGITS)
    profile_training(digits_examples, module, tmp_path / "measured", seconds=0.2, rounds=8)
    content = TrainingPlan(tmp_path / "measured").read()
    assert content["environment"]["cpu"]["model"]
    assert trained(tmp_path, digits_examples, content)["planned_elsewhere"] == []


def trained(folder: Path, examples: Path, plan: dict) -> dict:
    """The card of a model that was trained as planned."""
    TrainingPlan(folder / "plan").write(plan)
    made = train(examples, write(folder / "m.py", DIGITS), folder / "out", folder / "plan", epochs=1)["trained"]
    return json.loads((Path(made.uri) / "model_card.json").read_text())
