"""Test goals of slices: when they are met, what they name, and when they are refused."""

from dataclasses import replace

import pytest

from tests.components.decisions import decide, decide_without_files, reason
from tests.reports import DIGITS, TRAINED
from tfopt.errors import ComponentError

INT8 = DIGITS[4]  # loses more of a digit the larger it is; there are 90 + DIGIT records of each


@pytest.mark.parametrize(
    ("goal", "passed"),
    [
        ("accuracy[label=3] max_degradation 1%", True),
        ("accuracy[label=8] max_degradation 1%", False),
        ("accuracy[label=8] max_degradation 0.018", True),
        ("quality[label=8] max_degradation 1%", False),
        ("accuracy[label=*] max_degradation 1%", False),
        ("accuracy[label=*] max_degradation 2%", True),
        ("accuracy[label=0] threshold 0.96", True),
        ("accuracy[label=9] threshold 0.96", False),
        ("log_loss[label=0] max_degradation 0.1", True),
    ],
)
def test_a_slice_is_compared_with_the_pessimistic_bound_of_its_own_difference(tmp_path, goal, passed):
    decision = decide_without_files([TRAINED, INT8], tmp_path, goals=[goal])
    assert decision["models"][1]["passed"] is passed


def test_the_reasons_name_the_slice(tmp_path):
    decision = decide([TRAINED, INT8], tmp_path, goals=["accuracy[label=8] max_degradation 1%"])
    assert reason(decision, "tflite int8") == (
        "10.6x as fast, but not proven: loses 0.80 points of accuracy where label is 8, perhaps 1.70 points; "
        "the goal allows 0.97 points (1%); about 6,000 examples instead of 98 could prove it"
    )
    row = decision["models"][1]
    assert row["missed_by"].startswith("misses 'accuracy[label=8] max_degradation 1%' by 0.74")
    assert row["summary"].startswith("accuracy where label is 8 not proven (0.74")


def test_every_slice_of_a_feature_is_one_goal_each(tmp_path):
    decision = decide_without_files([TRAINED, INT8], tmp_path, goals=["accuracy[label=*] max_degradation 1%"])
    text = reason(decision, "tflite int8")
    for label in range(10):
        assert (f"where label is {label}," in text) is (label >= 5)


def test_small_slices_are_left_out_and_named(tmp_path, caplog):
    goals = ["accuracy[label=*] max_degradation 1.8%"]
    assert not decide_without_files([TRAINED, INT8], tmp_path / "all", goals=goals)["models"][1]["passed"]
    assert not caplog.messages
    most = replace(INT8, delta=tuple(end / 3 for end in INT8.delta))
    decision = decide_without_files([TRAINED, most], tmp_path / "some", goals=goals, slice_records=98)
    assert decision["models"][1]["passed"]
    assert "fewer than 98 records: 0, 1, 2, 3, 4, 5, 6, 7" in caplog.text


@pytest.mark.parametrize(
    ("goal", "parameters", "received", "expected", "fix"),
    [
        ("accuracy[city=Oslo] threshold 0.9", {}, "city was not evaluated in slices", "label", "known: label"),
        ("accuracy[lable=3] threshold 0.9", {}, "lable was not evaluated", "label", "did you mean label"),
        ("accuracy[label=11] threshold 0.9", {}, "no record with label=11", "one of the 10 values", "did you mean 1"),
        ("acuracy[label=3] threshold 0.9", {}, "acuracy[label=3]", "accuracy", "did you mean accuracy"),
        ("size[label=3] threshold 9", {}, "size[label=3]", "accuracy, log_loss", "known: accuracy"),
        ("accuracy[label=3] threshold 0.9", {"slice_records": 94}, "93 records with label=3", "94", "slice_records=93"),
        ("accuracy[label=*] threshold 0.9", {"slice_records": 200}, "99 records with label=9", "200", "=99"),
        ("accuracy[label=3] max_regression 1%", {}, "max_regression", "for all records", "max_degradation"),
        ("accuracy[label] threshold 0.9", {}, "accuracy[label]", "METRIC[FEATURE=VALUE]", "its value"),
    ],
)
def test_a_goal_of_a_slice_that_cannot_be_checked_is_refused(tmp_path, goal, parameters, received, expected, fix):
    with pytest.raises(ComponentError) as refusal:
        decide_without_files([TRAINED, INT8], tmp_path, goals=[goal], **parameters)
    assert received in refusal.value.received
    assert expected in refusal.value.expected
    assert fix in refusal.value.fix
