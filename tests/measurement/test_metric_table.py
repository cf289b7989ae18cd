"""Test that a metric is known everywhere by its row in the table."""

import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

import tfopt.metric_table as table
from tfopt.component import find
from tfopt.components.evaluate.metrics.task_metrics import COLUMNS, Scoring, class_metrics

MORE_ROWS = (
    'METRICS += (MetricRow("margin", "share", True, (CLASSIFICATION,), "%"),'
    ' MetricRow("joules", "clock", unit="ms", title="energy"))'
)
# With the rows above, run before any other module reads the table.
EVERYWHERE = """
import numpy as np
from tfopt import formatting
from tfopt.reports.evaluation_report import Metric
from tfopt.components.compare_backbones.resolved_settings import _check_goal
from tfopt.components.evaluate.metrics.task_metrics import COLUMNS, Scoring
from tfopt.measurement.evidence import describe_visible_loss
from tfopt.measurement.goals import read_goals
from tfopt.measurement.metric_names import check_goal_metrics
from tfopt.measurement.model_measurements import from_quality
from tfopt.model_store.run_history import SPEED
from tfopt.training.fine_tuner import _measured

goals = read_goals(["margin max_degradation 1%", "joules threshold 3"])
for task in ("classification", "auto"):
    check_goal_metrics(goals, task=task, top_k=5, metrics=[], slices=[])
for goal in goals:
    _check_goal(goal, "classification", has_examples=True)
scoring = Scoring("classification", False, 3, 5)
column = scoring.metrics.index("margin")
assert "margin" in scoring.shares and "top_5_accuracy" not in scoring.metrics
COLUMNS["margin"] = lambda scoring, predictions, labels: predictions.max(1) > 0.5
assert scoring.values(np.eye(3), np.array([[0], [1], [0]]))[:, column].tolist() == [1, 1, 1]
assert formatting.amount("margin", 0.5) == "50.00%" and formatting.amount("joules", 2) == "2.00 ms"
assert formatting.title("joules") == "energy" and "joules" in SPEED
assert "points of margin" in describe_visible_loss(62, 1, "margin")
assert _measured({"margin": 0.5}).higher_is_better("margin")
assert not from_quality({}, None).higher_is_better("joules")
"""


@pytest.mark.nightly
def test_a_metric_in_the_table_is_known_everywhere(tmp_path):
    text = Path(table.__file__).read_text()
    first = text.index("\n\ndef names_of_kind")
    (tmp_path / "metric_table.py").write_text(f"{text[:first]}\n{MORE_ROWS}\n{text[first:]}")
    start = f"import sys, tfopt; tfopt.__path__.insert(0, {str(tmp_path)!r})\n"
    subprocess.run([sys.executable, "-c", start + EVERYWHERE], check=True)


@pytest.mark.parametrize("row", [row for row in table.METRICS if row.tasks], ids=lambda row: row.name)
def test_every_metric_of_a_task_is_computed(row):
    if row.kind in ("share", "mean"):
        assert callable(COLUMNS[row.name])
    elif row.kind == "counts":
        assert row.name in class_metrics(np.ones((3, 1)))
    assert all(table.find_metric(name) is row for task in row.tasks for name in row.names(task, 3))


def test_computed_metrics_and_objectives_are_in_the_table():
    assert COLUMNS.keys() == {row.name for task in table.TASKS for row in table.mean_metrics(task)}
    for component in ("benchmark", "select_model"):
        assert set(find(component).parameters["objective"].choices) <= {*table.COSTS, "quality"}
    assert {kind for kind in typing.get_type_hints(table.MetricRow)["kind"].__args__} == {
        row.kind for row in table.METRICS
    }


@pytest.mark.parametrize("task", table.TASKS)
def test_shares_are_the_means_of_zeros_and_ones(task):
    scoring = Scoring(task, False, 6 if task == "classification" else 1 if task == "binary" else 2, 5)
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, (40, 2 if task in ("multi_label", "regression") else 1))
    values = scoring.values(draw.uniform(0, 1, (40, scoring.width)), labels)
    for name, column in zip(scoring.metrics, values.T, strict=True):
        assert (set(column) <= {0.0, 1.0}) == (name in scoring.shares)


@pytest.mark.parametrize(
    ("name", "higher"),
    [("val_binary_accuracy", True), ("acc", True), ("f1_score", True), ("loss", False), ("mae", False)],
)
def test_the_direction_of_a_metric_of_keras_is_known_by_the_end_of_its_name(name, higher):
    assert name.endswith(table.HIGHER_IS_BETTER) == higher
