"""Test the typed loading and writing of JSON reports."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from tfopt.errors import ComponentError
from tfopt.reports.report_schema import dump, load, parse


@dataclass(frozen=True)
class Score:
    """The value of a metric.

    Attributes:
        value: The value.
        resolution: Error bound, if the metric has one.
    """

    value: float
    resolution: float | None = None


@dataclass(frozen=True)
class Scores:
    """A report of scores.

    Attributes:
        task: Task of the model.
        scores: Scores by name.
        best: The best score, or None.
        shape: Dimensions.
        slice_value: Value of a feature.
        notes: Remarks.
        details: Any JSON.
    """

    schema_version: ClassVar[int] = 1
    task: Literal["binary", "regression"]
    scores: dict[str, list[Score]]
    best: Score | None
    shape: tuple[int, ...]
    slice_value: int | str
    notes: list[str] = field(default_factory=list)
    details: Any = None


CONTENT: dict[str, Any] = {
    "task": "binary",
    "scores": {"auc": [{"value": 0.5, "resolution": 0.1}, {"value": 1}]},
    "best": None,
    "shape": [2, 3],
    "slice_value": "a",
}
REPORT = Scores("binary", {"auc": [Score(0.5, 0.1), Score(1)]}, None, (2, 3), "a")


def test_a_report_survives_dump_and_load(tmp_path: Path):
    file = tmp_path / "scores.json"
    file.write_text(json.dumps(dump(REPORT)))
    assert load(Scores, file) == REPORT


def test_dump_writes_the_version_first_and_omits_fields_that_have_their_default():
    assert list(dump(REPORT)) == ["schema_version", *CONTENT]
    assert dump(REPORT) == {"schema_version": 1, **CONTENT}


def test_content_without_a_version_is_version_1():
    assert parse(Scores, CONTENT, "scores.json") == REPORT


def test_unknown_keys_are_ignored():
    assert parse(Scores, CONTENT | {"added_later": 1}, "scores.json") == REPORT


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_an_unknown_version_is_refused_in_three_parts(version: Any):
    with pytest.raises(ComponentError) as refusal:
        parse(Scores, CONTENT | {"schema_version": version}, "scores.json")
    assert refusal.value.received == f"scores.json: schema_version {version!r}"
    assert refusal.value.expected == "schema_version 1 of Scores"
    assert "run the step" in refusal.value.fix


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "ranking"}, 'Scores.task is "ranking"'),
        ({"scores": {"auc": [{"value": "high"}]}}, 'Scores.scores.auc[0].value is "high", not float'),
        ({"scores": {"auc": [{"value": True}]}}, "Scores.scores.auc[0].value is true, not float"),
        ({"scores": {"auc": [{}]}}, "Scores.scores.auc[0] has no 'value'"),
        ({"best": 3}, "Scores.best is 3, not Score"),
        ({"shape": [None]}, "Scores.shape[0] is null, not int"),
        ({"slice_value": 1.5}, "Scores.slice_value is 1.5, not str"),
        ({"slice_value": None}, "Scores.slice_value is null, not int"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(change: dict[str, Any], message: str):
    with pytest.raises(ComponentError) as refusal:
        parse(Scores, CONTENT | change, "scores.json")
    assert message in refusal.value.received


def test_a_missing_key_is_refused():
    with pytest.raises(ComponentError, match="Scores has no 'task'"):
        parse(Scores, {key: value for key, value in CONTENT.items() if key != "task"}, "scores.json")


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str | None):
    file = tmp_path / "scores.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ComponentError, match=r"scores\.json"):
        load(Scores, file)
