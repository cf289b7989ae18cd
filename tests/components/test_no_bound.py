"""Test that an interval which is no bound proves nothing."""

from dataclasses import replace

import numpy as np
import pytest

from tests.components.decisions import decide, decide_without_files, reason
from tests.components.test_evaluate_runners import model
from tests.conftest import write_examples
from tests.reports import DIGITS, TRAINED
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.metrics.estimates import Sampled
from tfopt.components.evaluate.summary import _intervals

WHY = "9 records, and a bootstrap is used from 10 on"


def without_bound(content: dict) -> None:
    for row in content["models"]:
        for kind in ("metrics", "delta", "over_constant"):
            for estimate in row.get(kind, {}).values():
                estimate["no_bound"] = WHY


@pytest.mark.parametrize(
    "goal", ["accuracy max_degradation 5%", "accuracy threshold 0.5", "quality max_degradation 0.05"]
)
def test_a_goal_is_not_proven(tmp_path, goal):
    decision = decide([TRAINED, DIGITS[4]], tmp_path, edit=without_bound, goals=[goal])
    assert not decision["models"][1]["passed"]
    assert f"not proven: the interval of accuracy is no bound: {WHY}; the goal is {goal!r}" in (
        reason(decision, "tflite int8")
    )


def test_measured_values_are_compared_nevertheless(tmp_path):
    goals = ["accuracy max_degradation 5%"]
    decision = decide([TRAINED, DIGITS[4]], tmp_path, edit=without_bound, goals=goals, confidence="estimate")
    assert decision["selected"] == "tflite int8"


def test_no_gain_is_significant(tmp_path):
    rows = [TRAINED, DIGITS[3]]
    rows[1] = replace(rows[1], accuracy=0.99, delta=(0.009, 0.004, 0.014))
    better = {"goals": [], "objective": "quality"}
    assert decide_without_files(rows, tmp_path / "a", **better)["selected"] != "trained"
    assert decide(rows, tmp_path / "b", edit=without_bound, **better)["selected"] == "trained"


def test_replicates_that_are_not_defined_give_no_bound():
    defined = Sampled(0.5, np.full((1, 400), 0.4), np.full((1, 400), 0.6), True)
    undefined = Sampled(0.5, np.full((1, 400), np.nan), np.full((1, 400), np.nan), True)
    results = _intervals({"own": undefined}, {"own": defined}, 0.05)
    for kind in ("metrics", "delta"):
        assert results[kind]["own"].no_bound == "the metric is not defined for most samples of the records"
    assert _intervals({"own": defined}, {"own": defined}, 0.05)["delta"]["own"].no_bound is None


@pytest.mark.parametrize(("records", "why"), [(9, WHY), (10, None)])
def test_a_bootstrap_is_used_from_ten_records_on(tmp_path, records, why):
    values = np.random.default_rng(0).normal(size=(records, 4))
    labels = (np.arange(records) % 2).astype(int)
    write_examples(tmp_path / "examples" / "Split-eval" / "a_tfrecord", {"x": values, "label": labels})
    models = [model(tmp_path / f"{name}.keras", np.ones(4) * size) for name, size in (("a", 1), ("b", 2))]
    report = evaluate(models[0], models[1:], tmp_path / "examples", tmp_path / "evaluation")["evaluation"].read()
    for kind in ("metrics", "delta", "over_constant"):
        row = report["models"][1][kind]
        assert row["f1"].get("no_bound") == row["log_loss"].get("no_bound") == why
    assert "no_bound" not in report["models"][1]["delta"]["accuracy"], "exact at every number of records"
