"""Test the goals of `select_model`: when they are met, the explanations, the missed amounts, and wrong goals."""

from dataclasses import replace

import pytest

from tests.components.decisions import decide, decide_without_files, reason
from tests.reports import DIGITS, TRAINED, Row, make_models, write_reports
from tfopt.components.select_model.component import select_model
from tfopt.errors import ComponentError


def test_a_loss_equal_to_the_allowed_one_is_accepted(tmp_path):
    lost = 0.97 - 0.98  # slightly more than 0.01 because of rounding
    row = replace(DIGITS[4], accuracy=0.97, delta=(lost, lost, lost))
    assert decide([replace(TRAINED, accuracy=0.98), row], tmp_path)["selected"] == "tflite int8"


@pytest.mark.parametrize(
    ("goal", "passed"),
    [
        ("accuracy threshold 0.96", True),
        ("accuracy threshold 0.98", False),
        ("latency threshold 0.0389", True),
        ("latency threshold 0.038", False),
        ("latency_p99 threshold 0.06", True),
        ("throughput threshold 30000", True),
        ("size threshold 45100", True),
        ("size_gzipped threshold 41000", False),
        ("memory threshold 9e7", False),
        ("load threshold 0.02", True),
        ("error threshold 0.2", True),
        ("error threshold 0.1", False),
        ("latency min_improvement 0.37", True),
        ("latency min_improvement 0.38", False),
        ("latency min_improvement 90%", True),
        ("latency min_improvement 91%", False),
        ("throughput min_improvement 930%", True),
        ("throughput min_improvement 931%", False),
        ("size min_improvement 75%", True),
        ("accuracy min_improvement 0", False),
        ("accuracy max_degradation 0.0085", True),
        ("accuracy max_degradation 0.0084", False),
        ("accuracy max_degradation 0.87%", True),
        ("accuracy max_degradation 0.86%", False),
        ("log_loss max_degradation 0.0021", True),
        ("log_loss max_degradation 0.002", False),
        ("quality max_degradation 1%", True),
    ],
)
def test_each_kind_of_goal_is_compared_with_the_pessimistic_bound(tmp_path, goal, passed):
    decision = decide_without_files([TRAINED, DIGITS[4]], tmp_path, goals=[goal])
    assert decision["models"][1]["passed"] is passed
    assert bool(passed) == (decision["selected"] == "tflite int8")


def test_an_insignificant_goal_needs_more_examples_and_the_point_meets_it(tmp_path):
    goals = ["accuracy max_degradation 0.006"]
    decision = decide([TRAINED, DIGITS[4]], tmp_path / "a", goals=goals)
    assert reason(decision, "tflite int8") == (
        "10.6x as fast, but not proven: loses 0.40 points of accuracy, perhaps 0.85 points; the goal allows 0.60 "
        "points; about 10,000 examples instead of 1,000 could prove it"
    )
    assert decide([TRAINED, DIGITS[4]], tmp_path / "b", goals=goals, confidence="point")["selected"] == "tflite int8"


def test_the_page_states_what_the_records_can_show(tmp_path):
    decide([TRAINED, DIGITS[4]], tmp_path)
    page = (tmp_path / "decision" / "report.html").read_text()
    assert "1,000 records cannot exclude a loss of less than 0.37 points of accuracy, even if no record differs" in page


def test_a_baseline_that_misses_a_threshold_is_replaced_by_a_candidate_that_meets_it(tmp_path):
    slower = Row("better", accuracy=0.99, delta=(0.009, 0.004, 0.014), speedup=(0.9, 0.88, 0.92, "slower"), p50=0.46)
    decision = decide([TRAINED, slower], tmp_path, goals=["accuracy threshold 0.975"])
    assert decision["selected"] == "better"
    assert reason(decision, "trained") == (
        "not proven: accuracy is 98.10%, perhaps 97.20%; the goal asks for at least 97.50%; about 4,600 examples "
        "instead of 1,000 could prove it"
    )


def test_the_default_goal_applies_to_regression(tmp_path):
    models = make_models(DIGITS[:2], tmp_path / "models")
    evaluation, benchmark = write_reports(DIGITS[:2], models, tmp_path, samples=False)
    content = evaluation.read()
    for row in content["models"]:
        row["metrics"] = {"mean_absolute_error": {"value": 2.5, "low": 2.4, "high": 2.6, "higher_is_better": False}}
        row["delta"] = {"mean_absolute_error": {"value": 0.03, "low": 0.01, "high": 0.04}} if row["delta"] else {}
        row["slices"] = []
    evaluation.write(content)
    outputs = select_model(models[0], models[1:], evaluation, benchmark, *(tmp_path / name for name in "sdb"))
    assert outputs["decision"].read()["models"][1]["reasons"] == [
        "1.37x as fast, but is 0.03 worse in mean absolute error; the goal allows 0.025 (1%)"
    ]


@pytest.mark.parametrize(
    ("goal", "received", "fix"),
    [
        ("accuracy", "'accuracy'", "write the goal in this form"),
        ("accuracy max_degredation 0.01", "max_degredation", "did you mean max_degradation"),
        ("accuracy threshold high", "high", "write a number instead of high"),
        ("accuracy threshold nan", "nan", "write a number"),
        ("accuracy threshold 95%", "95%", "write accuracy threshold 95"),
        ("accuracy threshold 95", "95", "write accuracy threshold 0.95"),
        ("accuracy max_degradation 1", "1", "write accuracy max_degradation 0.01"),
        ("latency max_degradation -5%", "-5%", "write latency min_improvement 5%"),
        ("acuracy threshold 0.9", "acuracy was not measured", "did you mean"),
        ("mean_squared_error threshold 1", "was not measured", "known: accuracy"),
    ],
)
def test_a_wrong_goal_is_refused_in_three_parts(tmp_path, goal, received, fix):
    with pytest.raises(ComponentError) as refusal:
        decide(DIGITS[:2], tmp_path, goals=[goal])
    assert received in refusal.value.received
    assert refusal.value.expected
    assert fix in refusal.value.fix
    assert not (tmp_path / "decision").exists()


def test_the_error_for_an_unmeasured_metric_lists_the_measured_ones(tmp_path):
    with pytest.raises(ComponentError) as refusal:
        decide(DIGITS[:2], tmp_path, goals=["auc threshold 0.9"])
    for metric in ("accuracy", "log_loss", "latency_p99", "throughput", "size_gzipped", "memory", "load", "error"):
        assert metric in refusal.value.expected


BEST = Row("best", p50=0.1, speedup=(4.0, 3.9, 4.1, "faster"), size=90_000)
LOSSY = Row("lossy", accuracy=0.96, delta=(-0.021, -0.031, -0.012), p50=0.05, speedup=(8.0, 7.8, 8.2, "faster"))
UNSURE = Row("unsure", p50=0.09, speedup=(4.2, 0.99, 9.0, "within noise"), size=50_000)
LARGE = Row("large", p50=0.1, speedup=(4.0, 3.9, 4.1, "faster"), size=100_000)
SLOWER = Row("slower", p50=0.2, speedup=(2.0, 1.9, 2.1, "faster"), size=80_000)
WORSE = Row("worse", accuracy=0.979, delta=(-0.002, -0.004, 0.0))
GOOD = Row("good", accuracy=0.984, delta=(0.003, 0.001, 0.008), size=90_000)


@pytest.mark.parametrize(
    ("rows", "parameters", "expected"),
    [
        ([BEST, LOSSY], {}, "misses 'accuracy max_degradation 0.01' by 2.10 points at the pessimistic bound"),
        ([BEST, LOSSY], {"confidence": "point"}, "misses 'accuracy max_degradation 0.01' by 1.10 points"),
        ([BEST, LOSSY], {"goals": ["accuracy threshold 0.97"]},
         "misses 'accuracy threshold 0.97' by 1.90 points at the pessimistic bound"),
        ([BEST, LOSSY], {"goals": ["accuracy max_degradation 0.01", "size min_improvement 50%"]},
         "misses 'accuracy max_degradation 0.01' by 2.10 points at the pessimistic bound; misses "
         "'size min_improvement 50%' by 56.8 kB"),
        ([BEST, UNSURE], {}, "misses a significant speedup by 0.04x"),
        ([BEST, SLOWER], {}, "misses best by 0.103 ms in latency"),  # from the speedups: 0.412 ms / 2 - 0.412 ms / 4
        ([BEST, LARGE], {}, "misses best by 10.0 kB in size"),
        ([GOOD, WORSE], {"objective": "quality"}, "misses a significant gain in accuracy by 0.40 points"),
        ([GOOD, LARGE], {"objective": "quality"}, ""),
        ([BEST, SLOWER], {"objective": "size"}, ""),
    ],
    ids=["pessimistic bound", "point", "threshold", "two goals", "not significant", "slower", "larger", "not better",
         "no gain", "selected"],
)  # fmt: skip
def test_the_amount_by_which_a_candidate_misses_is_reported(tmp_path, rows, parameters, expected):
    decision = decide_without_files([TRAINED, *rows], tmp_path, **parameters)
    missed = {row["name"]: row.get("missed_by", "") for row in decision["models"]}
    assert missed[rows[-1].name] == expected
    assert missed["trained"] == missed[decision["selected"]] == ""


def test_the_report_shows_the_missed_amount(tmp_path):
    decide([TRAINED, BEST, LARGE], tmp_path)
    assert "misses best by 10.0 kB in size" in (tmp_path / "decision" / "report.html").read_text()


def test_a_candidate_with_an_error_misses_no_amount(tmp_path):
    decision = decide_without_files([TRAINED, BEST, Row("broken", error="no")], tmp_path)
    assert "missed_by" not in decision["models"][2]
