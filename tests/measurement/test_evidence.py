"""Test what goals a number of records can show."""

import pytest

from tfopt.errors import ComponentError
from tfopt.measurement.evidence import check_goals, describe_visible_loss


@pytest.mark.parametrize(
    ("goal", "records", "needed"),
    [
        ("accuracy max_degradation 1%", 62, "368"),
        ("quality max_degradation 0.01", 367, "368"),
        ("accuracy threshold 0.99", 100, "368"),
    ],
)
def test_a_goal_that_no_model_can_show_is_refused(goal, records, needed):
    with pytest.raises(ComponentError) as caught:
        check_goals([goal], "test", records, quality_is_share=True)
    assert goal in caught.value.received
    assert f"at least {needed} records" in caught.value.expected
    assert "confidence=estimate" in caught.value.fix


@pytest.mark.parametrize(
    ("goal", "records", "is_share"),
    [
        ("accuracy max_degradation 1%", 368, True),
        ("quality max_degradation 1%", 10, False),
        ("log_loss max_degradation 1%", 10, True),
        ("accuracy min_improvement 1%", 10, True),
        ("accuracy threshold 0.9", 62, True),
        ("latency threshold 5", 1, True),
    ],
)
def test_other_goals_pass(goal, records, is_share):
    check_goals([goal], "test", records, quality_is_share=is_share)


def test_the_sentence_names_the_records_and_the_candidates():
    assert describe_visible_loss(1000, 9) == (
        "1,000 records cannot exclude a loss of less than 0.59 points of accuracy in any of 9 candidates, even if no "
        "record differs"
    )


def test_a_metric_that_is_no_share_has_a_smallest_number_of_records():
    assert "records show nothing about auc: its interval is a bootstrap, which is used from 10 records on" in (
        describe_visible_loss(9, 1, "auc")
    )
    assert describe_visible_loss(1000, 9, "auc") == (
        "1,000 records cannot exclude a loss of auc that 0.59% of all records cause in any of 9 candidates, even if no "
        "record differs"
    )


@pytest.mark.parametrize("metric", ["label_accuracy", "balanced_accuracy", "mean_absolute_error"])
def test_only_shares_of_records_are_exact(metric):
    assert "of all records cause" in describe_visible_loss(100, 1, metric)
    assert "points of top 5 accuracy" in describe_visible_loss(100, 1, "top_5_accuracy")
