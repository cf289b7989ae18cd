"""Each model that lost is told what it would take to win, and how sure that is."""

from pathlib import Path

import pytest

from tests.reports import DIGITS, TRAINED, Row, make_models, write_reports
from tfopt.artifacts import Decision
from tfopt.components.select_model.component import select_model

BEST = Row("best", accuracy=0.98, p50=0.1, speedup=(4.0, 3.9, 4.1, "faster"), size=90_000)
LOSSY = Row("lossy", accuracy=0.96, delta=(-0.021, -0.031, -0.012), p50=0.05, speedup=(8.0, 7.8, 8.2, "faster"))
SAME = Row("same", p50=0.41, speedup=(1.0, 0.98, 1.02, "within noise"), size=180_000)


def to_win(rows: list[Row], folder: Path, **parameters) -> dict[str, str]:
    """What each model is told."""
    models = make_models(rows, folder / "models")
    evaluation, benchmark = write_reports(rows, models, folder, samples=False)
    benchmark.write(benchmark.read() | {"interval": {"min_effect": 0.03}})
    given = {"goals": ["accuracy max_degradation 0.01"]} | parameters
    select_model(models[0], models[1:], evaluation, benchmark, folder / "s", folder / "d", folder / "b", **given)
    return {row["name"]: row["to_win"] for row in Decision(folder / "d").read()["models"]}


@pytest.mark.parametrize(
    ("rows", "parameters", "name", "said"),
    [
        ([BEST, LOSSY], {}, "lossy",
         "would win if the goal allowed accuracy to be 3.10 points worse (measured: -2.10 points, -3.10 to -1.20)"),
        ([BEST, LOSSY], {"confidence": "point"}, "lossy",
         "would win if the goal allowed accuracy to be 2.10 points worse (measured: -2.10 points, -3.10 to -1.20)"),
        ([BEST, LOSSY], {"goals": ["accuracy threshold 0.97"]}, "lossy",
         "would win if the goal asked for accuracy of at least 95.10% (it has 96.00%, 95.10% to 96.80%)"),
        ([BEST, LOSSY], {"goals": ["accuracy max_degradation 0.01", "size min_improvement 50%"]}, "lossy",
         "would win if the goal allowed accuracy to be 3.10 points worse (measured: -2.10 points, -3.10 to -1.20); and "
         "the goal asked for 36.4 kB better in size (measured: -36.4 kB)"),
        ([SAME], {}, "same",
         "would win if it were at least 1.03x as fast as trained beyond doubt (measured: 1.00x, 0.98x to 1.02x)"),
        ([BEST, SAME], {"objective": "size"}, "same", "would win if it were 90.0 kB better in size, as best is"),
    ],
    ids=["allowed more", "as measured", "a lower threshold", "two goals", "faster than the parent", "by size"],
)  # fmt: skip
def test_it_says_which_goal_or_how_much_faster(tmp_path, rows, parameters, name, said):
    found = to_win([TRAINED, *rows], tmp_path, **parameters)
    assert found[name] == said
    assert found["trained"] == ""


def test_what_could_not_be_measured_is_told_nothing(tmp_path):
    assert to_win([TRAINED, BEST, Row("broken", error="no")], tmp_path)["broken"] == ""


def test_all_candidates_are_told_what_it_would_take(tmp_path):
    models = make_models(DIGITS, tmp_path / "models")
    evaluation, benchmark = write_reports(DIGITS, models, tmp_path, samples=False)
    select_model(
        models[0], models[1:], evaluation, benchmark, tmp_path / "s", tmp_path / "d", tmp_path / "b",
        goals=["accuracy max_degradation 0.01"],
    )  # fmt: skip
    said = {row["name"]: row["to_win"] for row in Decision(tmp_path / "d").read()["models"]}
    assert said["trained"] == said["tflite int8"] == ""
    assert said["tflite float32"] == (
        "would win if it were 1.58x as fast as it is (1.50x to 1.65x), which tflite int8 is"
    )
    assert said["pruned 90%"] == (
        "would meet the goals if the goal allowed accuracy to be 3.10 points worse (measured: -2.10 points, -3.10 to "
        "-1.20); to win, then if it were 8.15x as fast as it is (7.69x to 8.72x), which tflite int8 is"
    )
    assert "It would win if it were 1.58" in (tmp_path / "d" / "report.html").read_text()
